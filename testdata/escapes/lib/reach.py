"""Many ways to reach something on the network, all tried in one run.

A way has got through when the probe holds in its hands what only the other side
can have said: the word of a canary's listener, or an answer of an origin that is
not our refusal. Each that did is an ESCAPED line; each that did not is a MISSED
line, which counts in the twin alone: there every way must get through."""
import os
import random
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

PORT = int(os.environ.get("PORT") or 4141)
FAST_OPEN, FASTOPEN_CONNECT, MPTCP = 0x20000000, 30, 262


class Ways:
    def __init__(self, threads=24):
        self.todo, self.threads, self.lock = [], threads, threading.Lock()
        self.rand = random.Random(int(os.environ.get("SEED") or 1))

    def add(self, label, fn, *args, **kw):
        """fn is true when it got through. An error is a refusal."""
        self.todo.append((label, fn, args, kw))

    def each(self, what, targets, fn, *args, **kw):
        for t in targets:
            self.add(f"{what} {t}", fn, t, *args, **kw)

    def done(self):
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(self._one, self.todo))
        print("DONE", flush=True)

    def _one(self, item):
        label, fn, args, kw = item
        try:
            got, why = fn(*args, **kw), "nothing came"
        except (OSError, ValueError, UnicodeError, struct.error) as e:
            got, why = None, repr(e)
        with self.lock:
            print(f"ESCAPED {label}" if got else f"MISSED {label}: {why}", flush=True)


def family(addr):
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def word(s, timeout=2.0):
    """What a canary says. Nobody else says it."""
    s.settimeout(timeout)
    try:
        return b"canary" in s.recv(4096)
    except OSError:
        return False


def greet(s):
    """Says something, for doors that wait for it, and listens."""
    try:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    except OSError:
        pass
    return word(s)


def tcp(addr, port=PORT, proto=0, timeout=2.0):
    with socket.socket(family(addr), socket.SOCK_STREAM, proto) as s:
        s.settimeout(timeout)
        s.connect((addr, port))
        return greet(s)


def patient(s):
    """Has the kernel give up after a while. Python's own limit would make the
    socket one that does not wait, and a first fast open has to."""
    limit = struct.pack("ll", 2, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def fast_open(addr, port=PORT, proto=0):
    """A connection without connect(2)."""
    with socket.socket(family(addr), socket.SOCK_STREAM, proto) as s:
        patient(s)
        s.sendto(b"GET / HTTP/1.0\r\n\r\n", FAST_OPEN, (addr, port))
        return word(s)


def fast_open_message(addr, port=PORT):
    with socket.socket(family(addr), socket.SOCK_STREAM) as s:
        patient(s)
        s.sendmsg([b"GET / HTTP/1.0\r\n\r\n"], [], FAST_OPEN, (addr, port))
        return word(s)


def fast_open_later(addr, port=PORT):
    """TCP_FASTOPEN_CONNECT: connect(2) does nothing, and write(2) connects."""
    with socket.socket(family(addr), socket.SOCK_STREAM) as s:
        s.setsockopt(socket.IPPROTO_TCP, FASTOPEN_CONNECT, 1)
        patient(s)
        s.connect((addr, port))
        os.write(s.fileno(), b"GET / HTTP/1.0\r\n\r\n")
        return word(s)


def without_waiting(addr, port=PORT):
    with socket.socket(family(addr), socket.SOCK_STREAM) as s:
        s.setblocking(False)
        s.connect_ex((addr, port))
        return word(s)


def mapped(addr, port=PORT):
    """IPv4 through a socket of IPv6."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.settimeout(2)
        s.connect(("::ffff:" + addr, port))
        return greet(s)


def udp(addr, port=PORT, proto=0, how="sendto", data=b"hello", source=None):
    with socket.socket(family(addr), socket.SOCK_DGRAM, proto) as s:
        if source:
            s.bind(source)
        s.settimeout(2)
        if how == "sendto":
            s.sendto(data, (addr, port))
        elif how == "sendmsg":
            s.sendmsg([data], [], 0, (addr, port))
        else:
            s.connect((addr, port))
            s.send(data)
        return word(s)


def inside_out(name, port, data=None, timeout=4.0):
    """Connects to a name as any program does and gives what comes back."""
    with socket.create_connection((name, port), timeout) as s:
        if data:
            s.sendall(data)
        got = b""
        try:
            while len(got) < 65536:
                b = s.recv(65536)
                if not b:
                    break
                got += b
        except OSError:
            pass
        return got


def canary_http(name, port=80, timeout=4.0):
    return b"canary" in inside_out(name, port, f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode("latin-1"), timeout)


def loud(*words):
    print(*words, file=sys.stderr)

"""The network half of what probes need: bytes as they are over TCP and TLS,
HTTP/2 and WebSocket frames, raw ClientHellos and DNS questions, and a Case that
sends many variants of an attack and knows for each whether it got through.

Nothing but the standard library is used. A probe cannot tell whether it runs in
a sandbox; it asks tally.test, which only the world without one answers."""

import base64
import os
import random
import re
import socket
import ssl
import struct
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

warnings.filterwarnings("ignore", category=DeprecationWarning)  # old TLS is the point

SEED = int(os.environ.get("SEED") or 1)
SHORT = bool(os.environ.get("SHORT"))
PROXY = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""


# --- connections

def connect(host, port, timeout=6.0):
    """A connection to host:port, through the explicit proxy where there is one."""
    if PROXY and host not in ("localhost", "127.0.0.1"):
        s, answer = explicit(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n" % (
            host.encode("latin-1"), port, host.encode("latin-1"), port, authorization()), timeout)
        if b" 200" not in answer.split(b"\r\n")[0]:
            s.close()
            raise ConnectionError(answer[:200])
        return s
    s = socket.create_connection((host, port), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def authorization():
    """The line with which an explicit proxy knows its clients."""
    u = urlsplit(PROXY)
    if not u.username:
        return b""
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"{u.username}:{u.password}".encode()) + b"\r\n"


def explicit(head=b"", timeout=6.0):
    """A connection to the explicit proxy, and its answer to a head."""
    u = urlsplit(PROXY)
    s = socket.create_connection((u.hostname, u.port), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not head:
        return s, b""
    s.sendall(head)
    answer = b""
    while b"\r\n\r\n" not in answer:
        b = s.recv(1)
        if not b:
            break
        answer += b
    return s, answer


def over_tls(s, sni, alpn=None, version=None):
    """TLS on a socket. No certificate is verified: an attacker does not care."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname = False
    ctx.verify_mode = ssl.CERT_NONE
    if version:
        ctx.set_ciphers("ALL:@SECLEVEL=0")
        ctx.minimum_version = version
        ctx.maximum_version = version
    if alpn:
        ctx.set_alpn_protocols(alpn)
    return ctx.wrap_socket(s, server_hostname=sni)


def send(s, parts):
    """Bytes and pauses (numbers, in seconds), one write each."""
    if isinstance(parts, bytes):
        parts = [parts]
    for p in parts:
        if isinstance(p, (int, float)):
            time.sleep(p)
        else:
            s.sendall(p)


def receive(s, first=4.0, quiet=0.25, most=1 << 20):
    """What comes until the other side ends, or says nothing for a while."""
    got = b""
    s.settimeout(first)
    try:
        while len(got) < most:
            b = s.recv(65536)
            if not b:
                break
            got += b
            s.settimeout(quiet)
    except OSError:
        pass
    return got


def status(answer):
    """The status of an answer of HTTP/1, or 0."""
    m = re.match(rb"HTTP/1\.[01] (\d{3})", answer or b"")
    return int(m.group(1)) if m else 0


def request(method, target, host, headers=(), body=b"", version="HTTP/1.1", length=True):
    """A request of HTTP/1. Headers are pairs or whole lines, and bytes stay bytes."""
    def octets(x):
        return x if isinstance(x, bytes) else x.encode("latin-1")
    out = octets(method) + b" " + octets(target) + b" " + octets(version) + b"\r\n"
    if host is not None:
        out += b"Host: " + octets(host) + b"\r\n"
    for h in headers:
        out += (octets(h) if not isinstance(h, tuple) else octets(h[0]) + b": " + octets(h[1])) + b"\r\n"
    body = octets(body)
    if body and length:
        out += b"Content-Length: %d\r\n" % len(body)
    return out + b"\r\n" + body


# --- a raw ClientHello

def client_hello(names=(), alpn=(), extra=b"", raw_sni=None, legacy=0x0303, sessions=32):
    """A ClientHello of TLS 1.2 and 1.3 with server names as bytes, as they are.

    raw_sni replaces the content of the whole extension."""
    def vec(n, b):
        return len(b).to_bytes(n, "big") + b
    ext = b""
    if names or raw_sni is not None:
        listed = b"".join(b"\x00" + vec(2, n) for n in names)
        ext += b"\x00\x00" + vec(2, raw_sni if raw_sni is not None else vec(2, listed))
    ext += b"\x00\x0a" + vec(2, vec(2, b"\x00\x1d\x00\x17"))
    ext += b"\x00\x0b" + vec(2, vec(1, b"\x00"))
    ext += b"\x00\x0d" + vec(2, vec(2, b"\x04\x03\x08\x04\x04\x01"))
    ext += b"\x00\x2b" + vec(2, vec(1, b"\x03\x04\x03\x03"))
    ext += b"\x00\x33" + vec(2, vec(2, b"\x00\x1d" + vec(2, b"\x09" + bytes(31))))
    if alpn:
        ext += b"\x00\x10" + vec(2, vec(2, b"".join(vec(1, a) for a in alpn)))
    ext += extra
    body = struct.pack(">H", legacy) + bytes(range(32)) + vec(1, bytes(sessions))
    body += vec(2, b"\x13\x01\xc0\x2b\xc0\x2f\xc0\x09") + vec(1, b"\x00") + vec(2, ext)
    hand = b"\x01" + vec(3, body)
    return b"\x16\x03\x01" + vec(2, hand)


# --- HTTP/2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hpack(fields):
    """Fields written out, without an index and without Huffman's code."""
    def text(x):
        x = x if isinstance(x, bytes) else x.encode("latin-1")
        n, head = len(x), b""
        if n < 127:
            head = bytes([n])
        else:
            head, n = b"\x7f", n - 127
            while n >= 128:
                head += bytes([n % 128 + 128])
                n //= 128
            head += bytes([n])
        return head + x
    return b"".join(b"\x00" + text(n) + text(v) for n, v in fields)


def h2_request(fields, body=b"", stream=1, trailers=None):
    end = 0 if body or trailers else 1
    out = frame(HEADERS, 4 | end, stream, hpack(fields))
    if body:
        out += frame(DATA, 0 if trailers else 1, stream, body)
    if trailers:
        out += frame(HEADERS, 5, stream, hpack(trailers))
    return out


def h2_fields(method="GET", path="/public/h2", authority="allowed.test", scheme="https", more=()):
    fields = [(":method", method), (":scheme", scheme), (":path", path)]
    if authority is not None:
        fields.append((":authority", authority))
    return fields + list(more)


def h2_open(host, sni=None, port=443):
    s = over_tls(connect(host, port), sni or host, ["h2"])
    if s.selected_alpn_protocol() != "h2":
        raise ConnectionError("no HTTP/2")
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return s


def h2_read(s, first=4.0, quiet=0.3, until_streams=1):
    """Frames until so many streams have ended, or nothing comes."""
    buf, frames, ended = b"", [], set()
    s.settimeout(first)
    try:
        while len(ended) < until_streams:
            while len(buf) < 9 or len(buf) < 9 + int.from_bytes(buf[:3], "big"):
                b = s.recv(65536)
                if not b:
                    return frames
                buf += b
            n = int.from_bytes(buf[:3], "big")
            kind, flags, stream = buf[3], buf[4], int.from_bytes(buf[5:9], "big")
            payload, buf = buf[9:9 + n], buf[9 + n:]
            frames.append((kind, flags, stream, payload))
            if kind == SETTINGS and not flags & 1:
                s.sendall(frame(SETTINGS, 1, 0))
            if kind == PING and not flags & 1:
                s.sendall(frame(PING, 1, 0, payload))
            if kind == GOAWAY or kind == RST or kind in (DATA, HEADERS) and flags & 1:
                ended.add(stream)
    except OSError:
        pass
    return frames


def h2_text(frames):
    return b"".join(p for k, _, _, p in frames if k == DATA)


def h2_status(frames):
    """The status of the first answer: ours are written by Go, which indexes 200
    and writes the others with an indexed name."""
    for k, _, _, p in frames:
        if k == HEADERS:
            return {0x88: 200, 0x89: 204, 0x8c: 400, 0x8d: 404, 0x8e: 500}.get(p[0], -1 if p[0] else 200)
    return 0


# --- WebSocket

WS_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def ws_upgrade(host, path="/", headers=(), key=WS_KEY):
    return request("GET", path, host, [("Upgrade", "websocket"), ("Connection", "Upgrade"),
                                       ("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", "13"), *headers])


def ws_frame(payload=b"", opcode=1, fin=True, mask=b"\x11\x22\x33\x44", rsv=0, length=None):
    payload = payload if isinstance(payload, bytes) else payload.encode()
    n = len(payload) if length is None else length
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    bit = 0x80 if mask else 0
    if n < 126:
        head = bytes([first, bit | n])
    elif n < 1 << 16:
        head = bytes([first, bit | 126]) + struct.pack(">H", n)
    else:
        head = bytes([first, bit | 127]) + struct.pack(">Q", n)
    if not mask:
        return head + payload
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


# --- DNS

def nameserver():
    with open("/etc/resolv.conf") as f:
        for line in f:
            if line.startswith("nameserver"):
                return line.split()[1]
    return "127.0.0.1"


def ask(name, kind=1, timeout=2.0):
    """The addresses of a name given as bytes, whatever is in its labels."""
    name = name if isinstance(name, bytes) else name.encode()
    labels = b"".join(bytes([len(p)]) + p for p in name.rstrip(b".").split(b"."))
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(timeout)
    try:
        s.sendto(q, (nameserver(), 53))
        a = s.recv(4096)
    except OSError:
        return []
    finally:
        s.close()
    if len(a) < 12 or a[3] & 15:
        return []
    at, out = len(q), []
    for _ in range(struct.unpack(">H", a[6:8])[0]):
        while a[at] not in (0,) and a[at] < 192:
            at += a[at] + 1
        at += 2 if a[at] >= 192 else 1
        t, _, _, n = struct.unpack(">HHIH", a[at:at + 10])
        at += 10
        if t == 1:
            out.append(socket.inet_ntoa(a[at:at + 4]))
        at += n
    return out


# --- cases

class Case:
    """Many variants of one attack. Each gets a number (T0001) that must stand in
    what it sends, at @TAG@; the origins and tally.test know it by that."""

    def __init__(self, threads=8):
        self.names, self.todo, self.seen = {}, [], set()
        self.threads = threads
        self.checks = []
        self.rand = random.Random(SEED * 1000003 + zlib.crc32(sys.argv[0].encode()))

    def add(self, name, fn, *args, **kw):
        """fn(tag, …) carries one variant out. An error of it is a refusal."""
        tag = b"T%04d" % (len(self.names) + 1)
        self.names[tag] = name
        self.todo.append((tag, fn, args, kw))
        return tag

    def raw(self, name, host, port, parts, sni=None, alpn=None, check=None, quiet=0.25):
        """Bytes over TCP, or over TLS where a server name is given (True: the host;
        "": TLS without one)."""
        self.add(name, self._raw, host, port, parts, host if sni is True else sni, alpn, check, quiet)

    def https(self, name, parts, host="allowed.test", **kw):
        self.raw(name, host, 443, parts, sni=True, **kw)

    def http(self, name, parts, host="allowed.test", **kw):
        self.raw(name, host, 80, parts, **kw)

    def both(self, name, parts, host="allowed.test", **kw):
        self.https(name + ", TLS", parts, host, **kw)
        self.http(name + ", plain", parts, host, **kw)

    def paths(self, paths, host="allowed.test", plain=True):
        """A GET of each path, over TLS, without TLS and over HTTP/2."""
        for p in paths:
            p = p if isinstance(p, bytes) else p.encode("latin-1")
            name = f"{host}{p.decode('latin-1')!r}"
            mark = ["X-Try: @TAG@"]
            self.https(name, request(b"GET", p, host, mark), host)
            self.h2(name + ", HTTP/2", h2_fields(path=p, authority=host, more=[("x-try", "@TAG@")]), host=host)
            if plain:
                self.http(name + ", plain", request(b"GET", p, host, mark), host)

    def h2(self, name, fields, body=b"", host="allowed.test", check=None, trailers=None):
        self.add(name, self._h2, fields, body, host, check, trailers)

    def escaped(self, tag, what):
        """The probe itself saw that the variant got through."""
        self.seen.add(tag)
        print("ESCAPED", tag.decode(), self.names.get(tag, ""), what, flush=True)

    def sane(self, name, fn):
        """A legitimate use that must work before and after: fn() is true."""
        self.checks.append((name, fn))

    def sane_http(self, host="allowed.test", port=443, path="/public/sane", sni=True, method="GET", headers=(), body=b"", want=200):
        def use():
            for _ in range(2):  # a connection of a crowd may have been the one too many
                try:
                    s = connect(host, port)
                    if sni:
                        s = over_tls(s, host)
                    send(s, request(method, path, host, headers, body))
                    got = status(receive(s, quiet=0.05))
                    s.close()
                    if got == want:
                        return True
                except OSError as e:
                    got = e
            print("sane:", host, path, got, file=sys.stderr)
            return False
        self.sane(f"{method} {host}:{port}{path}", use)

    def done(self):
        if not self.checks:
            self.sane_http()
        self._check("before")
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(self._one, self.todo))
        self._check("after")
        time.sleep(0.2)  # what an origin takes for the end of a request that is not whole
        self._control()
        print("DONE", flush=True)

    def _check(self, when):
        for name, fn in self.checks:
            if not fn():
                print("BROKEN", name, when, flush=True)

    def _one(self, item):
        tag, fn, args, kw = item
        try:
            answer = fn(tag, *args, **kw)
            if os.environ.get("WIRE_LOUD"):
                print(tag.decode(), self.names[tag], repr((answer or b"")[:300]), file=sys.stderr)
        except (OSError, ValueError) as e:
            if os.environ.get("WIRE_LOUD"):
                print(tag.decode(), self.names[tag], repr(e), file=sys.stderr)

    def _raw(self, tag, host, port, parts, sni, alpn, check, quiet):
        s = connect(host, port)
        try:
            if sni is not None:
                s = over_tls(s, sni or None, alpn)
            send(s, tagged(parts, tag))
            answer = receive(s, quiet=quiet)
        finally:
            s.close()
        if check:
            check(tag, answer)
        return answer

    def _h2(self, tag, fields, body, host, check, trailers):
        s = h2_open(host)
        try:
            fields = [(tagged(n, tag), tagged(v, tag)) for n, v in fields]
            trailers = trailers and [(tagged(n, tag), tagged(v, tag)) for n, v in trailers]
            s.sendall(h2_request(fields, tagged(body, tag), trailers=trailers))
            frames = h2_read(s)
        finally:
            s.close()
        if check:
            check(tag, frames)
        return b"%d " % h2_status(frames) + h2_text(frames)

    def _control(self):
        """In the twin, say which variants did not get through."""
        try:
            s = socket.create_connection(("tally.test", 80), 3)
            s.sendall(b"GET / HTTP/1.1\r\nHost: tally.test\r\n\r\n")
            answer = receive(s, quiet=0.1)
            s.close()
        except OSError:
            return
        if status(answer) != 200:
            return
        got = set(re.findall(rb"T\d{4}", answer)) | self.seen
        for tag, name in self.names.items():
            if tag not in got:
                print("MISSED", tag.decode(), name, flush=True)


def tagged(x, tag):
    if isinstance(x, bytes):
        return x.replace(b"@TAG@", tag)
    if isinstance(x, str):
        return x.replace("@TAG@", tag.decode())
    if isinstance(x, (list, tuple)):
        return [tagged(p, tag) for p in x]
    return x


def pick(rand, full, short=2):
    """How many random compositions there are."""
    return short if SHORT else full

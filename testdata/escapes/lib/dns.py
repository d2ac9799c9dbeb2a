"""DNS as bytes: questions that no resolver library would write, answers read the
way a careless one does."""
import os
import random
import socket
import struct


def server():
    with open("/etc/resolv.conf") as f:
        for line in f:
            if line.startswith("nameserver"):
                return line.split()[1]
    return "127.0.0.1"


def labels(name):
    """A name on the wire. Bytes stay as they are; a tuple gives the labels."""
    if isinstance(name, str):
        name = name.encode()
    parts = name if isinstance(name, tuple) else name.rstrip(b".").split(b".")
    return b"".join(bytes([len(p)]) + p for p in parts) + b"\0"


def question(name, kind=1, cls=1, flags=0x0100, questions=1, extra=b"", more=0, raw=None):
    """A query. extra stands behind the questions and counts as more additional
    records; raw replaces the name's bytes."""
    q = (raw if raw is not None else labels(name)) + struct.pack(">HH", kind, cls)
    return struct.pack(">HHHHHH", random.randrange(65536), flags, questions, 0, 0, more) + q * questions + extra


def edns(data=b"", size=4096):
    return b"\0" + struct.pack(">HHIH", 41, size, 0, len(data)) + data


def option(code, data):
    return struct.pack(">HH", code, len(data)) + data


def udp(q, to=None, port=53, timeout=2.0, family=None):
    to = to or server()
    s = socket.socket(family or (socket.AF_INET6 if ":" in to else socket.AF_INET), socket.SOCK_DGRAM)
    s.settimeout(timeout)
    with s:
        s.sendto(q, (to, port))
        return s.recv(65535)


def tcp(q, to=None, port=53, timeout=2.0):
    with socket.create_connection((to or server(), port), timeout) as s:
        s.settimeout(timeout)
        s.sendall(struct.pack(">H", len(q)) + q)
        return s.recv(65535)[2:]


def addresses(answer):
    """The addresses in an answer, whoever's they are: nothing is checked."""
    out, at = [], 0
    while True:  # every record of type A or AAAA looks like this, wherever it stands
        a, b = answer.find(b"\0\1\0\1", at), answer.find(b"\0\x1c\0\1", at)
        hits = [x for x in (a, b) if x >= 0]
        if not hits:
            return out
        at = min(hits)
        size = answer[at + 8:at + 10]
        if size == b"\0\4" and len(answer) >= at + 14:
            out.append(socket.inet_ntoa(answer[at + 10:at + 14]))
        if size == b"\0\x10" and len(answer) >= at + 26:
            out.append(socket.inet_ntop(socket.AF_INET6, answer[at + 10:at + 26]))
        at += 4


def careless(name, timeout=2.0):
    """The first address that anybody answers with, believed without a look."""
    for kind in (1, 28):
        try:
            got = addresses(udp(question(name, kind), timeout=timeout))
        except OSError:
            got = []
        if got:
            return got
    return []


def seed():
    return int(os.environ.get("SEED") or 1)

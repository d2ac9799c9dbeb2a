"""What canaries.py asks of the kernel: namespaces, loopback addresses, and which
features are there to be attacked."""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def call(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))


def map_ids(inner_uid, inner_gid, outer_uid, outer_gid):
    for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (inner_uid, outer_uid)),
                       ("gid_map", "%d %d 1" % (inner_gid, outer_gid))):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def configure_loopback(addresses):
    """Brings loopback up and adds addresses to it, see netdevice(7): a machine
    may lack ip(8)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 0x49))  # SIOCSIFFLAGS: up, loopback, running
        for number, address in enumerate(addresses):
            request = struct.pack("16sHH4s8x", b"lo:%d" % number, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, 0x8916, request)  # SIOCSIFADDR
            mask = struct.pack("16sHH4s8x", b"lo:%d" % number, socket.AF_INET, 0, b"\xff\xff\xff\xff")
            fcntl.ioctl(control, 0x891C, mask)  # SIOCSIFNETMASK


def allow_low_ports():
    """Lets COMMAND listen on port 443 of this namespace; a container may have
    made /proc/sys read-only."""
    try:
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
            file.write("0")
    except OSError:
        pass


def features():
    """What an attack needs of the kernel, found out here: inside, the kernel's
    lack and the sandbox's refusal look alike."""
    return {"ipv6": can_bind6(), "mptcp": can_open(socket.AF_INET, socket.SOCK_STREAM, 262),
            "vsock": can_open(40, socket.SOCK_STREAM), "alg": can_open(38, socket.SOCK_SEQPACKET),
            "perf": least_paranoid() <= 2, "int80": has_gate32()}


def can_open(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return True
    except OSError:
        return False


def can_bind6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as server:
            server.bind(("::1", 0))
        return True
    except OSError:
        return False


def has_gate32():
    """The attack itself, outside: a kernel may be built or started without 32-bit
    calls, and there are hypervisors that do not pass the interrupt on. There the
    instruction is a fault (SIGSEGV) for everyone."""
    attack = [sys.executable, "-c", "from hermes_agent.kernel_attacks import int80; int80()"]
    return subprocess.run(attack, cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True).returncode == 0


def least_paranoid():
    try:
        with open("/proc/sys/kernel/perf_event_paranoid") as file:
            return int(file.read())
    except OSError:
        return 4  # not built in

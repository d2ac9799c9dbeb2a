"""Attacks on the kernel's surface. Success means that the kernel took the call."""

import ctypes
import errno
import fcntl
import mmap
import os
import pty
import signal
import struct
import termios

from .target import LIBC, Missed, checked, in_child, syscall, workspace

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
PR_GET_NO_NEW_PRIVS, PTRACE_ATTACH, OPEN_TREE_CLONE_RECURSIVE, UFFD_USER_MODE_ONLY = 39, 16, 0x8001, 1
AT_FDCWD = -100


def ptrace():
    """Attaches to a child of its own: what a debugger does."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        checked(LIBC.ptrace(PTRACE_ATTACH, pid, None, None))
        os.waitpid(pid, 0)
        return "attached"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def controlling_terminal():
    """It stays open: closing it would hang this session up."""
    _, slave = pty.openpty()
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return slave


def tiocsti():
    fcntl.ioctl(controlling_terminal(), termios.TIOCSTI, b"x")
    return "typed"


def tiocsti_high():
    """The kernel looks at 32 bits of the request; a filter has to as well."""
    request = ctypes.c_ulong(1 << 32 | termios.TIOCSTI)
    syscall("ioctl", controlling_terminal(), request, b"x")
    return "typed"


def unshare():
    checked(LIBC.unshare(CLONE_NEWUSER))
    return "a user namespace"


def started(pid):
    """What a raw clone returned: 0 in the child, which has to end at once."""
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a user namespace"


def clone():
    return started(syscall("clone", ctypes.c_ulong(CLONE_NEWUSER | signal.SIGCHLD), None, None, None, None))


def clone3():
    arguments = struct.pack("8Q", CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    return started(syscall("clone3", arguments, ctypes.c_size_t(len(arguments))))


def own_mounts():
    uid, gid = os.getuid(), os.getgid()
    checked(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def mount():
    own_mounts()
    checked(LIBC.mount(b"none", workspace().encode(), b"tmpfs", 0, None))
    return "a tmpfs over the workspace"


def fsopen():
    own_mounts()
    os.close(syscall("fsopen", b"tmpfs", 0))
    return "a file system context"


def open_tree():
    own_mounts()
    os.close(syscall("open_tree", AT_FDCWD, b"/", OPEN_TREE_CLONE_RECURSIVE))
    return "a copy of the root mount"


def io_uring():
    os.close(syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)))
    return "a ring"


def keyctl():
    return "session keyring %d" % syscall("keyctl", 0, ctypes.c_long(-3), 1)


def bpf():
    """The kernel takes the call when it complains of the descriptor."""
    try:
        syscall("bpf", 1, struct.pack("=i124x", -1), 128)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
    return "taken"


def userfaultfd():
    os.close(syscall("userfaultfd", UFFD_USER_MODE_ONLY))
    return "opened"


def perf():
    """Counts its own time in user mode, which the least right allows."""
    attributes = struct.pack("IIQQQQQ", 1, 112, 1, 0, 0, 0, 0b1100001).ljust(112, b"\0")
    os.close(syscall("perf_event_open", attributes, 0, -1, -1, ctypes.c_ulong(0)))
    return "a counter"


def int80():
    """getpid(2) by the 32-bit entry, under whose numbers a filter for the native
    ABI would see something else."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")  # push rbx; mov eax, 20; int 0x80; pop rbx; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    pid = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if pid != os.getpid():
        raise Missed("answered %d" % pid)
    return "pid %d" % pid


def new_privileges():
    """A setuid program may still raise privileges."""
    if checked(LIBC.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)):
        raise Missed("no_new_privs is set")
    return "no_new_privs is not set"


def attacks():
    lacks = os.environ.get("HW_CANARY_LACKS", "").split()
    found = {"ptrace": ptrace, "tiocsti": tiocsti, "tiocsti_high": tiocsti_high, "unshare": unshare, "clone": clone,
             "clone3": clone3, "mount": mount, "fsopen": fsopen, "open_tree": open_tree, "io_uring": io_uring,
             "keyctl": keyctl, "bpf": bpf, "userfaultfd": userfaultfd, "perf": perf, "int80": int80,
             "new_privileges": new_privileges}
    return {name: lambda attack=attack: in_child(attack) for name, attack in found.items() if name not in lacks}

"""What the host scripts of testdata/escapes need outside of the sandbox: other
circumstances for a launch. python3 outside.py WHAT ARGUMENTS… COMMAND…"""

import ctypes
import errno
import os
import pty
import select
import signal
import socket
import struct
import sys
import time

import kernel as k

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22


def prctl(*args):
    if k.libc.prctl(*[ctypes.c_ulong(a) for a in args]) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def execute(argv):
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def split(argv):
    at = argv.index("--")
    return argv[:at], argv[at + 1:]


def naive(argv):
    """A sandbox as many write it: namespaces, and no filter. What is tried in it
    stays in it."""
    os.environ["NAIVE"] = "1"
    own = [] if os.getuid() == 0 else ["--map-root-user"]
    execute(["unshare", *own, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child", "--mount-proc", *argv])


def program(rules):
    """A seccomp program for rules like mount=EPERM, clone:0&0x7e020000=EPERM,
    landlock_create_ruleset=ENOSYS, default=EPERM."""
    load = lambda off: (0x20, 0, 0, off)
    out = [load(0)]
    rest = 0x7FFF0000
    for rule in rules:
        what, _, name = rule.rpartition("=")
        answer = 0x00050000 | getattr(errno, name)
        call, _, arg = what.partition(":")
        if call == "default":
            rest = answer
            continue
        nr = int(call) if call.isdigit() else k.NR[call]
        if not arg:
            out += [(0x15, 0, 1, nr), (0x06, 0, 0, answer)]
        elif "&" in arg:
            i, mask = arg.split("&")
            out += [(0x15, 0, 4, nr), load(16 + 8 * int(i)), (0x45, 0, 1, int(mask, 0)), (0x06, 0, 0, answer), load(0)]
        else:
            i, value = arg.split("==")
            out += [(0x15, 0, 4, nr), load(16 + 8 * int(i)), (0x15, 0, 1, int(value, 0) & 0xFFFFFFFF), (0x06, 0, 0, answer), load(0)]
    return out + [(0x06, 0, 0, rest)]


def install(instructions):
    code = b"".join(struct.pack("<HBBI", *i) for i in instructions)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, 2, k.ptr(struct.pack("<H6xQ", len(instructions), k.ptr(code))), 0, 0)


def deny(argv):
    """Runs a command where the machine refuses calls: deny RULE… -- COMMAND…"""
    rules, command = split(argv)
    install(program(rules))
    execute(command)


def layers(argv):
    """Runs a command in so many Landlock domains that hold next to nothing."""
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for _ in range(int(argv[0])):
        handled = struct.pack("<Q", 1 << 12)  # making symlinks, below no path: allowed nowhere
        fd = k.raw(k.NR["landlock_create_ruleset"], k.ptr(handled), 8, 0)
        got = k.raw(k.NR["landlock_restrict_self"], fd, 0)
        if fd < 0 or got < 0:
            sys.exit(f"layers: {k.say(fd)}, {k.say(got)}")
        os.close(fd)
    execute(argv[1:])


def depth(argv):
    """Runs a command in so many user namespaces, one in the other."""
    uid, gid = os.getuid(), os.getgid()
    for _ in range(int(argv[0])):
        got = k.raw(k.NR["unshare"], 0x10000000)
        if got < 0:
            print("depth:", k.say(got), file=sys.stderr)
            break
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            open(f"/proc/self/{name}", "w").write(text)
    execute(argv[1:])


def terminal(argv):
    """Runs a command on a terminal of its own and says what was typed into it for
    whoever reads it next: terminal [--feed TEXT] COMMAND…"""
    feed = b""
    if argv[0] == "--feed":
        feed, argv = argv[1].encode(), argv[2:]
    master, slave = pty.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        import fcntl, termios
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
        execute(argv)
    if feed:
        os.write(master, feed)
    shown, end = b"", None
    while end is None or time.monotonic() < end:
        ready, _, _ = select.select([master], [], [], 0.05)
        if ready:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
        elif end is None and os.waitpid(pid, os.WNOHANG)[0] == pid:
            end = time.monotonic() + 0.2  # what is still on its way
    sys.stdout.write(shown.decode("utf-8", "replace").replace("\r", ""))
    import fcntl, termios
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    waiting = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0"))[0]
    if waiting:
        print(f"ESCAPED {waiting} bytes were typed into the terminal outside: {os.read(slave, waiting)!r}")
    line = struct.unpack("i", fcntl.ioctl(slave, termios.TIOCGETD if hasattr(termios, "TIOCGETD") else 0x5424, b"\0\0\0\0"))[0]
    if line != 0:
        print(f"ESCAPED the line discipline of the terminal outside is {line}")


def inherit(argv):
    """Runs a command with a descriptor of some kind at a number:
    inherit KIND NUMBER COMMAND…"""
    kind, number, command = argv[0], int(argv[1]), argv[2:]
    outside = os.environ["OUTSIDE"]
    sockets = []

    def pair():
        sockets.extend(socket.socketpair())
        return sockets[0].fileno()

    def dgram():
        sockets.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        return sockets[-1].fileno()

    def clone_tree():
        return k.raw(k.NR["open_tree"], -100, k.ptr(outside.encode() + b"\0"), 0)

    make = {
        "directory": lambda: os.open("/", os.O_RDONLY),
        "handle": lambda: os.open("/", os.O_PATH),
        "outside": lambda: os.open(outside, os.O_PATH | os.O_DIRECTORY),
        "file": lambda: os.open(outside + "/file", os.O_RDWR),
        "secret": lambda: os.open(outside + "/secret", os.O_RDONLY),
        "namespace": lambda: os.open("/proc/self/ns/mnt", os.O_RDONLY),
        "user-namespace": lambda: os.open("/proc/self/ns/user", os.O_RDONLY),
        "net-namespace": lambda: os.open("/proc/self/ns/net", os.O_RDONLY),
        "process": lambda: os.pidfd_open(k.VICTIM or os.getppid()),
        "proc": lambda: os.open("/proc", os.O_RDONLY),
        "socket": dgram,
        "pair": pair,
        "netlink": lambda: sockets.append(socket.socket(16, 3, 0)) or sockets[-1].fileno(),
        "memory": lambda: os.memfd_create("m", 0),
        "io_uring": lambda: k.raw(k.NR["io_uring_setup"], 4, k.ptr(b"", 120)),
        "userfaultfd": lambda: k.raw(k.NR["userfaultfd"], 1),
        "inotify": lambda: k.raw(k.NR["inotify_init1"], 0),
        "epoll": lambda: k.raw(k.NR["epoll_create1"], 0),
        "tree": clone_tree,
        "ptmx": lambda: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY),
        "cgroup": lambda: os.open("/sys/fs/cgroup", os.O_RDONLY),
    }
    fd = make[kind]()
    if fd < 0:
        sys.exit(f"inherit: {kind}: {k.say(fd)}")
    if number > 1000:
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, number + 1)), hard))
    os.dup2(fd, number)
    os.set_inheritable(number, True)
    execute(command)



def altered(argv):
    """Runs a command where the mounts were changed by a script first:
    altered [--net|--pid|--user…] SCRIPT COMMAND…"""
    flags = []
    while argv[0].startswith("--"):
        flags.append(argv.pop(0))
    own, drop = [], ""
    if os.getuid() != 0 or "--user" in flags:
        own = ["--user", "--map-current-user", "--keep-caps"]
        drop = "setpriv --ambient-caps=-all --inh-caps=-all " if os.getuid() else ""
    if "--net" in flags:
        own.append("--net")
    if "--pid" in flags:
        own += ["--pid", "--fork", "--kill-child"]
    execute(["unshare", *own, "--mount", "--propagation", "private", "sh", "-euc", argv[0] + f'\nexec {drop}"$@"', "altered", *argv[1:]])


def abi(argv):
    """Runs a command that is told of another Landlock version: abi N COMMAND…
    The tracer answers the question for the version, and no other."""
    version, command = int(argv[0]), argv[1:]
    ask = [(0x20, 0, 0, 0), (0x15, 0, 3, k.NR["landlock_create_ruleset"]), (0x20, 0, 0, 16 + 16), (0x15, 0, 1, 1), (0x06, 0, 0, 0x7FF00000), (0x06, 0, 0, 0x7FFF0000)]
    trace = lambda request, pid, addr=0, data=0: k.raw(k.NR["ptrace"], request, pid, addr, data)
    child = os.fork()
    if child == 0:
        trace(0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        if os.getuid() != 0:
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        code = b"".join(struct.pack("<HBBI", *i) for i in ask)
        prctl(PR_SET_SECCOMP, 2, k.ptr(struct.pack("<H6xQ", len(ask), k.ptr(code))), 0, 0)
        execute(command)
    os.waitpid(child, 0)
    trace(0x4200, child, 0, 0x80 | 2 | 4 | 8 | 0x100000)  # SECCOMP, FORK, VFORK, CLONE, EXITKILL
    trace(7, child)
    registers = ctypes.create_string_buffer(27 * 8)
    while True:
        try:
            pid, status = os.waitpid(-1, 0x40000000)
        except ChildProcessError:
            return
        if not os.WIFSTOPPED(status):
            if pid == child:
                sys.stdout.flush()
                os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
            continue
        event, sig = status >> 16, os.WSTOPSIG(status)
        if event == 7:
            trace(12, pid, 0, ctypes.addressof(registers))
            struct.pack_into("<Q", registers, 10 * 8, version)  # rax
            struct.pack_into("<q", registers, 15 * 8, -1)  # orig_rax: the call is left out
            trace(13, pid, 0, ctypes.addressof(registers))
        trace(7, pid, 0, 0 if event or sig in (signal.SIGTRAP, signal.SIGSTOP) else sig)


def fuse(argv):
    """Runs a command beside a file system in user space, mounted at a directory:
    fuse plain|silent|stale|denied DIRECTORY COMMAND… Silent answers nothing at
    all, as a server that is gone."""
    kind, where, command = argv[0], argv[1], argv[2:]
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if k.libc.mount(b"far", where.encode(), b"fuse", ctypes.c_ulong(0), data.encode()) != 0:
        sys.exit(f"fuse: mount: {os.strerror(ctypes.get_errno())}")
    server = os.fork()
    if server != 0:
        os.close(fd)
        execute(command)
    prctl(1, signal.SIGKILL)  # it ends with the command: its own namespace would keep the mount
    attr = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, os.getuid(), os.getgid(), 0, 4096, 0)
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError as e:
            if e.errno == errno.ENODEV:
                os._exit(0)
            continue
        size, op, unique = struct.unpack_from("<IIQ", request)
        answer, error = b"", 0
        if op == 26:  # INIT
            answer = struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, 0, *[0] * 7)
        elif op in (2, 42):  # FORGET
            continue
        elif kind == "silent":
            continue
        elif kind in ("stale", "denied"):
            error = -errno.ESTALE if kind == "stale" else -errno.EACCES
        elif op == 3:  # GETATTR
            answer = struct.pack("<QII", 1, 0, 0) + attr
        elif op == 27:  # OPENDIR
            answer = struct.pack("<QII", 1, 0, 0)
        elif op == 17:  # STATFS
            answer = struct.pack("<QQQQQIIII24x", 1, 1, 1, 1, 1, 4096, 255, 4096, 0)
        elif op == 1:  # LOOKUP
            error = -errno.ENOENT
        elif op not in (28, 29, 25, 34):
            error = -errno.ENOSYS
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)
        except OSError:
            pass


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2:])

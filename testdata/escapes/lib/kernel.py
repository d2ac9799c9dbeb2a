"""Calls to the kernel past the C library: by number, by every way in, with any
bits in the registers. For the probes of testdata/escapes.

A probe says what it reached with escaped(), and at its end done(). It must do no
harm bare: what would hurt the machine is tried by number with arguments that no
call accepts, in a child of its own, and only where confined() says so.
"""

import ctypes
import errno
import mmap
import os
import random
import re
import signal
import struct
import sys

SEED = os.environ.get("SEED", "1")
VARIANT = os.environ.get("VARIANT", "")
VICTIM = int(os.environ.get("VICTIM") or 0)
# Whether the machine's kernel takes 32-bit calls, as a bare program found.
GATE32 = os.environ.get("GATE32") != "none"

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# The calls of x86-64 in the order of their numbers; a number sets the count anew.
_NAMES = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn ioctl pread64
pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep
getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname
getpeername socketpair setsockopt getsockopt clone fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd
msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink
symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid
setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid
getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack
utime mknod uselib personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler
sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup
modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2 swapon swapoff
reboot sethostname setdomainname iopl ioperm create_module init_module delete_module get_kernel_syms query_module quotactl
nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity
set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old
epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create timer_settime
timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait
epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch
migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat
faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat
epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1
dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64
name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv process_vm_writev kcmp
finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd
membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq 424
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open
clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset
landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2
map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules
mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr listns rseq_slice_yield"""

# Some of the 32-bit calls, for int 0x80.
_NAMES32 = """
restart_syscall=0 exit=1 fork=2 read=3 write=4 open=5 close=6 execve=11 chmod=15 mount=21 ptrace=26 ioctl=54 reboot=88
socketcall=102 syslog=103 ipc=117 clone=120 personality=136 prctl=172 quotactl=131 unshare=310 keyctl=288 add_key=286
request_key=287 open_by_handle_at=342 name_to_handle_at=341 setns=346 process_vm_readv=347 process_vm_writev=348 bpf=357
perf_event_open=336 userfaultfd=374 io_uring_setup=425 socket=359 socketpair=360 kexec_load=283 init_module=128 umount2=52
pivot_root=217 chroot=61 clone3=435 seccomp=354 iopl=110 modify_ldt=123 vm86=166 vm86old=113 getpid=20 kill=37 openat=295"""


def _numbers(text):
    table, n = {}, 0
    for word in text.split():
        if word.isdigit():
            n = int(word)
        else:
            table[word], n = n, n + 1
    return table


NR = _numbers(_NAMES)
NAME = {n: name for name, n in NR.items()}
NR32 = {name: int(n) for name, n in (w.split("=") for w in _NAMES32.split())}
X32 = 0x40000000
LAST = max(NR.values())

# What every program gets, typed in anew from docs/policy-reference.md: the proof
# must not take the filter's own word for it. Whatever is not here is refused.
BASE = set("""
read write open openat openat2 creat close close_range lseek pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 stat fstat
lstat newfstatat statx access faccessat faccessat2 truncate ftruncate fallocate getdents getdents64 getcwd chdir fchdir rename renameat
renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown
fchown lchown fchownat umask utime utimes futimesat utimensat mknod mknodat statfs fstatfs fcntl flock dup dup2 dup3 fsync fdatasync
sync syncfs sync_file_range readahead fadvise64 sendfile copy_file_range splice tee vmsplice pipe pipe2 ioctl cachestat setxattr
lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr setxattrat
getxattrat listxattrat removexattrat file_getattr file_setattr statmount listmount poll ppoll select pselect6 epoll_create epoll_create1
epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch signalfd
signalfd4 io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents clone fork vfork execve execveat exit exit_group wait4
waitid getpid getppid gettid getpgid setpgid getpgrp getsid setsid set_tid_address prctl arch_prctl personality pidfd_open
pidfd_send_signal process_mrelease set_thread_area get_thread_area rseq rseq_slice_yield restart_syscall getrlimit setrlimit prlimit64
getrusage times getuid geteuid getgid getegid getgroups setuid setgid setreuid setregid setgroups setresuid getresuid setresgid
getresgid setfsuid setfsgid capget capset kill tkill tgkill pause sigaltstack rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2
munlock mlockall munlockall remap_file_pages memfd_create pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack futex futex_waitv
futex_wake futex_wait futex_requeue set_robust_list get_robust_list membarrier time gettimeofday clock_gettime clock_getres
clock_nanosleep nanosleep alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime socket socketpair bind listen accept accept4 connect getsockname getpeername sendto
recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown setsockopt getsockopt shmget shmat shmctl shmdt semget semop semctl semtimedop
msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr sched_yield sched_setparam
sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
sched_setaffinity sched_getaffinity sched_setattr sched_getattr getpriority setpriority ioprio_set ioprio_get getcpu uname sysinfo
getrandom seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self uretprobe uprobe
""".split())

# --- ways in ---------------------------------------------------------------


def _code(bytecode):
    """Machine code as a function of an array of seven registers."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytecode)
    f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    f.page = page
    return f


# rax, rdi, rsi, rdx, r10, r8, r9 from [rdi]; syscall
_SYSCALL = _code(bytes.fromhex("53 4889fb 488b03 488b7b08 488b7310 488b5318 4c8b5320 4c8b4328 4c8b4b30 0f05 5b c3"))
# eax, ebx, ecx, edx, esi, edi, ebp from [rdi]; int 0x80
_INT80 = _code(bytes.fromhex("5355 488b07 8b5f08 8b4f10 8b5718 8b7720 8b6f30 8b7f28 cd80 4863c0 5d5b c3"))


def _registers(nr, args):
    return (ctypes.c_uint64 * 7)(*[v & 0xFFFFFFFFFFFFFFFF for v in (nr, *args)])


def raw(nr, *args):
    """The syscall instruction. Gives the result, an error as its negative number."""
    r = _registers(nr, args)
    return _SYSCALL(ctypes.addressof(r))


def int80(nr, *args):
    """The 32-bit gate. Numbers are those of NR32; pointers must come from low()."""
    r = _registers(nr, args)
    return _INT80(ctypes.addressof(r))


def x32(nr, *args):
    """The x32 numbers."""
    return raw(nr | X32, *args)


def wrapped(nr, *args):
    """syscall(3)."""
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(nr), *[ctypes.c_ulong(a & 0xFFFFFFFFFFFFFFFF) for a in args])
    return -ctypes.get_errno() if got == -1 else got


WAYS = {"raw": raw, "syscall(3)": wrapped}

# --- memory ----------------------------------------------------------------

_kept = []


def ptr(data, size=0):
    """The address of a copy of the bytes that stays."""
    b = ctypes.create_string_buffer(bytes(data), max(len(data), size) or 1)
    _kept.append(b)
    return ctypes.addressof(b)


def low(data=b"", size=4096):
    """The same below 4 GiB, for 32-bit callers."""
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(max(size, len(data))), 3, 0x62, -1, ctypes.c_long(0))  # MAP_PRIVATE|ANONYMOUS|32BIT
    ctypes.memmove(at, bytes(data), len(data))
    return at


# --- results ---------------------------------------------------------------


def say(result):
    """A result in words."""
    if isinstance(result, int):
        return errno.errorcode.get(-result, str(result)) if result < 0 else str(result)
    return str(result)


REFUSED = (-errno.EPERM, -errno.ENOSYS)


def refused(result, *more):
    """Whether a filter answers so: an errno that the call's own code would not
    give for these arguments, or death by SIGSYS. Where the kernel has no 32-bit
    gate, int 0x80 is a fault like any other, and no call is made."""
    return result == "SIGSYS" or result == "SIGSEGV" and not GATE32 or isinstance(result, int) and (result in REFUSED or -result in more)


_told, _tried = {}, 0


def tried(n=1):
    global _tried
    _tried += n


def escaped(what):
    """Says that something was reached. The same words are said once."""
    what = re.sub(r"\s+", " ", str(what))
    if what not in _told and len(_told) < 15:
        _told[what] = True
        print("ESCAPED " + what, flush=True)


def broken(what):
    print("BROKEN " + re.sub(r"\s+", " ", str(what)), flush=True)


def done():
    print(f"tried {_tried}")
    print("DONE", flush=True)


def check(what, result, *more):
    """Counts a call that must be refused; everything else is an escape."""
    tried()
    if not refused(result, *more):
        escaped(f"{what}: {say(result)}")
    return result


def trial(f, seconds=10):
    """Runs f in a child and gives what it returned, an int, or the name of the
    signal that ended it."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(seconds)
            got = f()
            os.write(w, struct.pack("<q", got if isinstance(got, int) else 0))
            code = 0
        except BaseException as e:  # whatever it was, the parent is told
            os.write(2, f"trial: {e!r}\n".encode())
        os._exit(code)
    os.close(w)
    b = b""
    try:
        b = os.read(r, 8)
    finally:
        os.close(r)
    _, status = os.waitpid(pid, 0)
    if len(b) == 8:
        return struct.unpack("<q", b)[0]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.waitstatus_to_exitcode(status)}"


def trials(attempts):
    """What trial gives for each of many (name, function), as (name, result). A call
    that was refused changed nothing, so the next one is made in the same child; after
    one that was not, or that ended the child, there is a fresh one."""
    attempts = list(attempts)
    while attempts:
        r, w = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(r)
            for _, f in attempts:
                signal.alarm(10)
                try:
                    got = f()
                except BaseException as e:  # whatever it was, the parent is told
                    os.write(2, f"trial: {e!r}\n".encode())
                    os._exit(1)
                os.write(w, struct.pack("<q", got))
                if got >= 0:
                    break
            os._exit(0)
        os.close(w)
        with open(r, "rb") as answers:
            results = [n for n, in struct.iter_unpack("<q", answers.read())]
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            results.append(signal.Signals(os.WTERMSIG(status)).name)
        elif status != 0 or not results:
            results.append(f"exit {os.waitstatus_to_exitcode(status)}")
        for (name, _), got in zip(attempts, results):
            yield name, got
        attempts = attempts[len(results):]


# --- generators ------------------------------------------------------------


def rng(name=""):
    """Numbers that the seed decides."""
    return random.Random(f"{SEED}/{name}/{VARIANT}")


def highbits(value, n=6):
    """A 32-bit value as is, and with other things above it."""
    r = rng(f"highbits {value}")
    tops = [0, 1, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF, 0x55555555] + [r.getrandbits(32) for _ in range(n)]
    return [(value & 0xFFFFFFFF) | t << 32 for t in tops]


def spellings(pid, entry, n=12):
    """Paths of /proc/PID/ENTRY: the classic ones, and some that the seed made up.
    Bare, all of those lead there that do not go through another's thread."""
    p, e = str(pid), entry
    out = [
        f"/proc/{p}/{e}", f"/proc/{p}/task/{p}/{e}", f"//proc//{p}//{e}", f"/proc/./{p}/./{e}",
        f"/proc/thread-self/../../../{p}/{e}", f"/proc/self/task/../../{p}/{e}", f"/proc/self/../{p}/{e}",
        f"/proc/self/root/proc/{p}/{e}", f"/proc/self/cwd/../../../../../../../../../../proc/{p}/{e}",
        f"/dev/../proc/{p}/{e}", f"/proc/{p}/task/{p}/../../{e}", f"/proc/sys/../{p}/{e}", f"/proc/net/../../{p}/{e}",
        f"/dev/fd/../../{p}/{e}", f"/proc/self/fd/../../{p}/{e}", f"/proc/{p}/root/proc/{p}/{e}",
    ]
    r = rng(f"spellings {entry}")
    steps = ["/.", "//", "/self/..", "/thread-self/../../..", "/tty/..", "/sys/kernel/../..", "/self/task/../.."]
    for _ in range(n):
        middle = "".join(r.choice(steps) for _ in range(r.randint(1, 4)))
        tail = r.choice(["", f"/task/{p}", f"/task/{p}/../..", "/."])
        out.append(f"{r.choice(['/proc', '/dev/../proc', '//proc', '/proc/self/root/proc'])}{middle}/{p}{tail}/{e}")
    return out


def openers(path, flags):
    """Descriptors of a path by every call that opens: (how, result)."""
    at = -100
    name = ptr(path.encode() + b"\0")
    head, _, base = path.rpartition("/")
    yield "open", raw(NR["open"], name, flags, 0)
    yield "openat", raw(NR["openat"], at, name, flags, 0)
    yield "openat2", raw(NR["openat2"], at, name, ptr(struct.pack("<QQQ", flags, 0, 0)), 24)
    dirfd = raw(NR["open"], ptr(head.encode() + b"\0"), os.O_PATH, 0)
    if dirfd >= 0:
        yield "openat of a handle", raw(NR["openat"], dirfd, ptr(base.encode() + b"\0"), flags, 0)
        os.close(dirfd)
    handle = raw(NR["open"], name, os.O_PATH, 0)
    if handle >= 0:
        yield "a handle reopened", raw(NR["open"], ptr(b"/proc/self/fd/%d\0" % handle), flags, 0)
        os.close(handle)


# --- where we are ----------------------------------------------------------


def status(field, pid="self"):
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith(field + ":"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def confined():
    """Whether what is done here stays here: a filter, or namespaces of our own."""
    return status("Seccomp") == "2" or "NAIVE" in os.environ


def targets():
    """Processes that are not ours: bare, the victim alone. Of those that only
    happen to be on the machine some, by the seed."""
    out = [VICTIM] if VICTIM else []
    if confined():
        all_ = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
        named = []
        for pid in all_:
            try:
                name = open(f"/proc/{pid}/comm").read()
            except OSError:
                continue
            if name.startswith(("hw-", "hermes", "wrap")):
                named.append(pid)
        some = rng("targets").sample(all_, min(4, len(all_)))
        for pid in [1, os.getppid()] + named[:6] + some:
            if pid not in out and pid != os.getpid() and pid > 0:
                out.append(pid)
    return out


def ours(pid):
    """Whether a process has this very confinement and may be touched: it comes
    from this probe."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(status("PPid", pid) or 0)
        except ValueError:
            return False
    return pid == os.getpid()

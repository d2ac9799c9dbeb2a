"""The hostile mode's attacks. Each returns a detail when it succeeded and raises
when it failed. Where to aim comes from the HW_CANARY_ variables, see
canaries.py. Success means that the real canary was reached: a file made anew in
a private home, or a proxy that accepts and refuses, is none.

Run as "python -m hermes_agent.attacks PART"."""

import ctypes
import errno
import fcntl
import glob
import json
import os
import platform
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"x86_64": {"keyctl": 250, "bpf": 321, "io_uring_setup": 425},
           "aarch64": {"keyctl": 219, "bpf": 280, "io_uring_setup": 425}}
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MARK = "canary"


class Missed(Exception):
    """Something was reached, but not the canary."""


def canary(name):
    value = os.environ.get("HW_CANARY_" + name)
    if not value:
        raise Missed("HW_CANARY_%s is not set" % name)
    return value


def home(*parts):
    return os.path.join(canary("HOME"), *parts)


def state(*parts):
    return os.path.join(os.environ["HERMES_HOME"], *parts)


def workspace(*parts):
    return os.path.join(canary("WORKSPACE"), *parts)


def checked(result):
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def syscall(name, *arguments):
    number = NUMBERS[platform.machine()][name]
    return checked(LIBC.syscall(ctypes.c_long(number), *arguments))


def in_child(function):
    """Runs function in a child of this process, which it may spoil."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        try:
            result = {"detail": str(function())}
        except OSError as error:
            result = {"errno": error.errno or 0}
        except BaseException as error:
            result = {"missed": str(error)}
        os.write(into, json.dumps(result).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as stream:
        text = stream.read()
    status = os.waitpid(pid, 0)[1]
    if not text:
        raise Missed("killed by signal %d" % os.WTERMSIG(status))
    result = json.loads(text)
    if "errno" in result:
        raise OSError(result["errno"], os.strerror(result["errno"]))
    if "missed" in result:
        raise Missed(result["missed"])
    return result["detail"]


# Files.

def read(path):
    with open(path) as file:
        if MARK not in file.read():
            raise Missed("not the canary: " + path)
    return path


def append(path):
    """Adds to a file that must be there already."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"# an attack was here\n")
    os.close(fd)
    return path


def create(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a") as file:
        file.write("#!/bin/sh\necho an attack was here\n")
    return path


def read_by_symlink():
    link = workspace("link-%d" % os.getpid())
    os.symlink(home(".ssh", "id_ed25519"), link)
    try:
        return read(link)
    finally:
        os.unlink(link)


def read_by_hardlink():
    link = workspace("hard-%d" % os.getpid())
    os.link(home(".ssh", "id_ed25519"), link)
    try:
        return read(link)
    finally:
        os.unlink(link)


def read_by_proc_root():
    return read("/proc/%s/root%s" % (canary("PID"), home(".aws", "credentials")))


def rename_out():
    """Replaces a file beside the workspace by a rename with "..": the file
    must be there, so that a private directory does not count."""
    target = workspace("..", "beside")
    os.stat(target)
    source = workspace("moved-%d" % os.getpid())
    create(source)
    try:
        os.rename(source, target)
    finally:
        if os.path.exists(source):
            os.unlink(source)
    return target


def rename_git():
    """Moves .git away, so that protected entries below it lose their place."""
    os.rename(workspace(".git"), workspace(".git-moved"))
    os.rename(workspace(".git-moved"), workspace(".git"))
    return workspace(".git")


def replace_config():
    fresh = state("config.yaml.new")
    with open(state("config.yaml")) as file:
        text = file.read()
    with open(fresh, "w") as file:
        file.write(text)
    try:
        os.rename(fresh, state("config.yaml"))
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
    return state("config.yaml")


def write_install():
    return append(state("hermes-agent", "venv", "bin", "hermes"))


# Network and sockets.

def talk(connection, address, host="canary"):
    with connection:
        connection.settimeout(4)
        connection.connect(address)
        connection.sendall(b"GET / HTTP/1.0\r\nHost: %s\r\n\r\n" % host.encode())
        seen = b""
        while True:
            data = connection.recv(4096)
            if not data:
                break
            seen += data
    if b"hw-canary" not in seen:
        raise Missed("no canary answered: %r" % seen[:120])
    return "the canary answered"


def tcp(host, port):
    return talk(socket.socket(socket.AF_INET, socket.SOCK_STREAM), (host, port), host)


def unix(address):
    return talk(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), address)


def raw_socket():
    LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET)  # the right to it in a namespace of its own
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "opened"


def packet_socket():
    LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET)
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    return "opened"


# Processes.

def see_process():
    with open("/proc/%s/cmdline" % canary("PID")) as file:
        if "hw-canary" not in file.read():
            raise Missed("another process has that number")
    return "pid " + canary("PID")


def send(number):
    """Where /proc shows another process under that number it is not the target."""
    path = "/proc/%s/cmdline" % canary("PID")
    if os.path.exists(path):
        see_process()
    os.kill(int(canary("PID")), number)
    return "signal %d sent" % number


def host_environ():
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if b"HW_HOST_ONLY=" in file.read():
                    return path
        except OSError:
            continue
    raise Missed("in no environment that can be read")


def ptrace():
    """Attaches to a child of its own: what a debugger does."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        checked(LIBC.ptrace(16, pid, None, None))  # PTRACE_ATTACH
        os.waitpid(pid, 0)
        return "attached"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def tiocsti():
    """Types into a controlling terminal, which stays open: closing it would
    hang this session up."""
    _, slave = pty.openpty()
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    return "typed"


def leave_daemon(part):
    """Starts a process in a session of its own; whether it outlives the agent is
    seen from outside, so this gives no result."""
    script = ("import sys,time\n"
              "for n in range(200):\n"
              "    with open(sys.argv[2],'a') as f: f.write('x')\n"
              "    time.sleep(0.1)\n")
    subprocess.Popen([sys.executable, "-c", script, "hw-daemon", workspace(".daemon-" + part)],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True)


# Kernel surface.

def unshare():
    checked(LIBC.unshare(CLONE_NEWUSER))
    return "a user namespace"


def mount():
    uid, gid = os.getuid(), os.getgid()
    checked(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    checked(LIBC.mount(b"none", workspace().encode(), b"tmpfs", 0, None))
    return "a tmpfs over the workspace"


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


def attacks():
    """Every attack by name. In a child where it may spoil the process."""
    return {
        "read_ssh_key": lambda: read(home(".ssh", "id_ed25519")),
        "read_aws": lambda: read(home(".aws", "credentials")),
        "read_state_env": lambda: read(state(".env")),
        "read_state_auth": lambda: read(state("auth.json")),
        "read_by_symlink": read_by_symlink,
        "read_by_hardlink": read_by_hardlink,
        "read_by_proc_root": read_by_proc_root,
        "write_home": lambda: append(home(".bashrc")),
        "write_host_tmp": lambda: append(os.path.join(canary("TMP"), "marker")),
        "write_system": lambda: append(os.path.join(canary("SYSTEM"), "marker")),
        "write_install": write_install,
        "rename_out": rename_out,
        "protected_git_hook": lambda: create(workspace(".git", "hooks", "pre-commit")),
        "protected_git_config": lambda: append(workspace(".git", "config")),
        "protected_rename_git": rename_git,
        "protected_editor": lambda: create(workspace(".vscode", "tasks.json")),
        "protected_config": lambda: append(state("config.yaml")),
        "protected_config_rename": replace_config,
        "protected_hook": lambda: create(state("hooks", "x.py.off")),
        "host_loopback": lambda: tcp("127.0.0.1", int(canary("PORT"))),
        "metadata": lambda: tcp("169.254.169.254", 80),
        "unlisted_host": lambda: tcp("unlisted.test", 443),
        "docker_socket": lambda: unix(canary("DOCKER")),
        "session_bus": lambda: unix(canary("BUS")),
        "ssh_agent": lambda: unix(canary("AGENT")),
        "abstract_socket": lambda: unix("\0" + canary("ABSTRACT")),
        "raw_socket": lambda: in_child(raw_socket),
        "packet_socket": lambda: in_child(packet_socket),
        "see_process": see_process,
        "probe_process": lambda: send(0),
        "signal_process": lambda: send(signal.SIGUSR1),
        "host_environ": host_environ,
        "ptrace": lambda: in_child(ptrace),
        "tiocsti": lambda: in_child(tiocsti),
        "unshare": lambda: in_child(unshare),
        "mount": lambda: in_child(mount),
        "io_uring": lambda: in_child(io_uring),
        "keyctl": lambda: in_child(keyctl),
        "bpf": lambda: in_child(bpf),
    }


def run(part, via="python"):
    """Returns one result an attack: {part, via, attack, outcome, detail}."""
    results = []
    leave_daemon(part)
    for name, attack in attacks().items():
        result = {"part": part, "via": via, "attack": name, "outcome": "failed"}
        try:
            result["detail"] = attack()
            result["outcome"] = "succeeded"
        except OSError as error:
            result["errno"] = errno.errorcode.get(error.errno, type(error).__name__)
            result["detail"] = str(error)
        except Exception as error:  # a result like any other
            result["detail"] = "%s: %s" % (type(error).__name__, error)
        results.append(result)
    return results


if __name__ == "__main__":
    for line in run(sys.argv[1]):
        print(json.dumps(line), flush=True)

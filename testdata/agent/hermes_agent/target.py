"""What the attacks aim at, and how they tell the canary from something that
only looks like it. Where the canaries are comes from the HW_CANARY_ variables,
see canaries.py."""

import ctypes
import json
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "x86_64": {"ioctl": 16, "clone": 56, "keyctl": 250, "perf_event_open": 298, "renameat2": 316, "bpf": 321,
               "userfaultfd": 323, "open_tree": 428, "fsopen": 430, "pidfd_open": 434},
    "aarch64": {"ioctl": 29, "clone": 220, "keyctl": 219, "perf_event_open": 241, "renameat2": 276, "bpf": 280,
                "userfaultfd": 282, "open_tree": 428, "fsopen": 430, "pidfd_open": 434},
}
ANYWHERE = {"io_uring_setup": 425, "clone3": 435, "openat2": 437}
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
    number = ANYWHERE.get(name) or NUMBERS[platform.machine()][name]
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


def read(path):
    """Returns what it found: whoever sees the output sees the secret."""
    with open(path) as file:
        text = file.read()
    if MARK not in text:
        raise Missed("not the canary: " + path)
    return "%s: %s" % (path, text.strip())


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

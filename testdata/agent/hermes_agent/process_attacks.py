"""Attacks on processes of the host, and on the one that started the agent."""

import glob
import os
import resource
import signal

from .target import Missed, canary


def see():
    with open("/proc/%s/cmdline" % canary("PID")) as file:
        if "hw-canary" not in file.read():
            raise Missed("another process has that number")
    return "pid " + canary("PID")


def aimed(attempt):
    """Runs attempt on the canary. Where /proc shows another process under that
    number, it is not the target."""
    def on_canary():
        pid = int(canary("PID"))
        if os.path.exists("/proc/%d" % pid):
            see()
        return str(attempt(pid))
    return on_canary


def in_environ(text):
    """Looks for text in every environment that can be read."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if text in file.read():
                    return "%s: %s" % (path, text.decode())
        except OSError:
            continue
    raise Missed("in no environment that can be read")


def parent_path(name):
    """The process above the agent: outside a shell, inside the first process."""
    with open("/proc/%s/stat" % canary("AGENT_PID")) as file:
        parent = file.read().rsplit(")", 1)[1].split()[1]
    return "/proc/%s/%s" % (parent, name)


def read_parent(name):
    with open(parent_path(name), "rb") as file:
        if not file.read(1):
            raise Missed("empty")
    return parent_path(name)


ATTACKS = {
    "see_process": see,
    "probe_process": aimed(lambda pid: os.kill(pid, 0)),
    "signal_process": aimed(lambda pid: os.kill(pid, signal.SIGUSR1)),
    "signal_process_pidfd": aimed(lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGUSR1)),
    "limits_of_process": aimed(lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE)),
    "affinity_of_process": aimed(os.sched_getaffinity),
    "host_environ": lambda: in_environ(b"HW_HOST_ONLY=canary-environment"),
    "caller_environ": lambda: in_environ(b"AWS_SECRET_ACCESS_KEY=canary-caller"),
    "parent_environ": lambda: read_parent("environ"),
    "parent_maps": lambda: read_parent("maps"),
    "parent_descriptor": lambda: os.readlink(parent_path("fd/0")),
    "parent_root": lambda: os.listdir(parent_path("root/"))[0],
    "parent_executable": lambda: os.readlink(parent_path("exe")),
    "parent_directory": lambda: os.readlink(parent_path("cwd")),
    "parent_signal": lambda: os.kill(int(parent_path("").split("/")[2]), 0) or "sent",
}

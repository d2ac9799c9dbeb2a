"""Processes that should be gone: left.py MARK SECONDS

Waits until no process has MARK in its command line; those that still have it
after SECONDS are named, and ended, and the status is 1.
"""
import os
import signal
import sys
import time


def left(mark):
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if mark in words:
            out.append((int(pid), words))
    return out


def check(mark, seconds):
    """Says whether something was left."""
    end = time.monotonic() + min(seconds, float(os.environ.get("PATIENCE", seconds)))
    while (found := left(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    for pid, words in found:
        print("ESCAPED a process goes on:", words[:80], flush=True)
        try:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    while left(mark) and time.monotonic() < end + 5:
        time.sleep(0.02)
    return bool(found)


if __name__ == "__main__":
    sys.exit(check(sys.argv[1], float(sys.argv[2])))

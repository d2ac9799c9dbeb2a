"""watch.py MIB COMMAND…: runs a command and says so when a process of it that
carries the network took more memory than MIB: ESCAPED. For host scripts."""

import os
import subprocess
import sys
import time


def status(pid):
    fields = {}
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                name, _, value = line.partition(":")
                fields[name] = value.split()
    except OSError:
        return {}
    return fields


def family(root):
    """The processes below root and their peaks in KiB."""
    all_of = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        s = status(pid)
        if s.get("PPid"):
            all_of[int(pid)] = (int(s["PPid"][0]), s["Name"][0] if s.get("Name") else "", int(s.get("VmHWM", ["0"])[0]))
    known = {root}
    for _ in range(6):
        known |= {p for p, (parent, _, _) in all_of.items() if parent in known}
    return {p: all_of[p] for p in known if p in all_of}


limit = int(sys.argv[1]) * 1024
child = subprocess.Popen(sys.argv[2:])
peak, whose = 0, ""
while child.poll() is None:
    for _, (_, name, kib) in family(child.pid).items():
        if not name.startswith("python") and kib > peak:
            peak, whose = kib, name
    time.sleep(0.1)
print(f"peak: {whose} {peak >> 10} MiB", file=sys.stderr)
if peak > limit:
    print(f"ESCAPED {whose} took {peak >> 10} MiB of memory", flush=True)
sys.exit(child.returncode)

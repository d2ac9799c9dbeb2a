"""A terminal: a program in it, what it shows, and what is typed."""
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time


class Term:
    def __init__(self, *argv, rows=24, cols=80):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execvp(argv[0], argv)
            finally:
                os._exit(127)
        self.resize(rows, cols)

    def read(self, seconds):
        """What it shows within that time."""
        new, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self.fd], [], [], left)[0]:
            try:
                b = os.read(self.fd, 4096)
            except OSError:
                b = b""
            if not b:
                break
            new += b
        self.seen += new
        return new

    def until(self, text, seconds=float(os.environ.get("PATIENCE", 20))):
        """Whether the text shows up after what was waited for before."""
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if not self.read(0.05) and self.wait(0) is not None:
                break
        at = self.seen.find(text)
        if at < 0:
            return False
        self.seen = self.seen[at + len(text):]
        return True

    def quiet(self, seconds, within=10):
        """Whether there comes a time of so many seconds in which it shows nothing."""
        end = time.monotonic() + within
        while self.read(seconds):
            if time.monotonic() >= end:
                return False
        self.seen = b""
        return True

    def state(self):
        """What is known of a terminal that does not react."""
        out = ["modes %#o, group %d" % (termios.tcgetattr(self.fd)[3], os.tcgetpgrp(self.fd))]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
                if os.getuid() != os.stat(f"/proc/{pid}").st_uid:
                    continue
                status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
                signals = " ".join(status[n].strip() for n in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"))
                name = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")[:60]
            except (OSError, KeyError):
                continue
            out.append(f"{pid} {fields[0]} of {fields[1]}, group {fields[2]}, foreground {fields[5]}, signals {signals}: {name}")
        return "; ".join(out)

    def send(self, keys):
        os.write(self.fd, keys)

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def close(self):
        """The terminal goes away."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def wait(self, seconds):
        """The status of the program, or None if it is still there."""
        end = time.monotonic() + seconds
        while self.pid:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid, self.status = 0, os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                return None
            else:
                time.sleep(0.01)
        return self.status

    def end(self):
        """Nothing of it is left behind."""
        self.close()
        if self.wait(1) is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(5)

"""The shell tool: one "bash -c" a call in a session of its own, background
jobs that are polled later, and a job on a pseudo-terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from .report import expect


class Terminal:
    def __init__(self, home, workspace):
        self.cwd = workspace
        self.dir = os.path.join(home, "cache", "terminal")
        self.snapshot = os.path.join(self.dir, "snapshot-%d.sh" % os.getpid())
        self.jobs = {}
        with open(self.snapshot, "w") as file:
            subprocess.run(["bash", "-lc", "export -p; declare -f; alias -p"], stdout=file, check=True, timeout=30)

    def wrap(self, command):
        cwd_file = os.path.join(self.dir, "cwd-%d" % os.getpid())
        return "source %s >/dev/null 2>&1; cd %s || exit 1; %s\nrc=$?; pwd -P > %s; exit $rc" % (
            quote(self.snapshot), quote(self.cwd), command, quote(cwd_file)), cwd_file

    def run(self, command, timeout=180):
        """Returns {exit_code, output}; on timeout the whole group is killed."""
        script, cwd_file = self.wrap(command)
        process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill_group(process)
            output, _ = process.communicate()
            return {"exit_code": 124, "output": text(output), "timeout": True}
        if os.path.exists(cwd_file):
            with open(cwd_file) as file:
                self.cwd = file.read().strip() or self.cwd
        return {"exit_code": process.returncode, "output": text(output)}

    def kill_group(self, process):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def background(self, command):
        script, _ = self.wrap(command)
        log = os.path.join(self.dir, "job-%d-%d.log" % (os.getpid(), len(self.jobs)))
        with open(log, "w") as file:
            process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        job = "proc_%d" % len(self.jobs)
        self.jobs[job] = (process, log)
        return {"session_id": job, "pid": process.pid}

    def poll(self, job, wait=10):
        process, log = self.jobs[job]
        try:
            process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            pass
        with open(log) as file:
            return {"status": "running" if process.poll() is None else "exited",
                    "exit_code": process.returncode, "output": file.read()}

    def close(self):
        for process, _ in self.jobs.values():
            if process.poll() is None:
                self.kill_group(process)
                process.wait()

    def pty_job(self):
        """Job control and a resize on a pseudo-terminal of its own."""
        pid, master = pty.fork()
        if pid == 0:
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        screen = Screen(master)
        try:
            screen.send("tty; echo ready-$((40+2))\n", "ready-42")
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 37, 91, 0, 0))
            screen.send("stty size\n", "37 91")
            screen.send("sleep 60\n", "sleep 60")
            screen.until_foreground("sleep")
            screen.send("\x1a", "Stopped")
            screen.send("fg\n", "sleep 60")
            screen.until_foreground("sleep")
            screen.send("\x03", "^C")
            screen.until_foreground("bash")
            screen.send("echo back-$?\n", "back-130")
            screen.send("exit 7\n", "exit")
            status = os.waitpid(pid, 0)[1]
        finally:
            os.close(master)
        expect(os.WEXITSTATUS(status) == 7, "exit status %d" % os.WEXITSTATUS(status))
        return {"exit_code": 7, "output": "resized to 37x91; stopped, continued and interrupted a job"}


class Screen:
    """What a program shows on a pseudo-terminal, read until a text appears."""

    def __init__(self, master):
        self.master = master

    def send(self, keys, want, timeout=15):
        os.write(self.master, keys.encode())
        seen, end = "", time.monotonic() + timeout
        while want not in seen:
            left = end - time.monotonic()
            expect(left > 0, "waited for %r, saw %r" % (want, seen[-300:]))
            if select.select([self.master], [], [], left)[0]:
                seen += os.read(self.master, 4096).decode("utf-8", "replace")
        return seen

    def until_foreground(self, program, timeout=15):
        """Waits until a process group led by program has the terminal."""
        end = time.monotonic() + timeout
        while leader(os.tcgetpgrp(self.master)) != program:
            expect(time.monotonic() < end, program + " did not come to the foreground")
            time.sleep(0.01)


def leader(group):
    try:
        with open("/proc/%d/comm" % group) as file:
            return file.read().strip()
    except OSError:
        return ""


def quote(path):
    return "'" + path.replace("'", "'\\''") + "'"


def text(data):
    return (data or b"").decode("utf-8", "replace")

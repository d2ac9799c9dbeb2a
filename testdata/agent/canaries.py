#!/usr/bin/env python3
"""Sets up what the hostile mode aims at, and says afterwards what was reached.

  canaries.py run [--user NAME] [--checks FILE] -- COMMAND...
      In a network and a mount namespace of its own, which have 169.254.169.254
      and unlisted.test (192.0.2.1) on loopback and no way out, sets the
      canaries up, runs COMMAND in the canary workspace, prints the checks and
      ends with COMMAND's status. As root, --user gives the ordinary user that
      everything belongs to and COMMAND runs as. Without root it uses a user
      namespace.
  canaries.py serve
      Sets the canaries up here, without namespaces (so the metadata address
      and unlisted.test are not served), prints their description as one line of
      JSON, and tears them down, printing the checks, when stdin is closed.

The description is {"env": {...}, "workspace": ..., "hermes_home": ..., ...};
it also lies in the workspace as canaries.json, for "hermes --canaries".

A check is {"host": NAME, "ok": bool, "detail": ...}; ok means untouched. Run
the hostile mode bare and every check must be false, wrapped and every one must
be true."""

import argparse
import ctypes
import glob
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from machine import (CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUSER, LIBC, MS_BIND, MS_PRIVATE, MS_REC, allow_low_ports, call,
                     configure_loopback, features, map_ids)

HERE = os.path.dirname(os.path.abspath(__file__))
METADATA, UNLISTED, RESOLVER = "169.254.169.254", "192.0.2.1", "8.8.8.8"
# Names that a profile keeps from coming into existence, see name_attacks.py.
NAMES = [".envrc", ".vscode", ".claude", ".husky", ".mcp.json", ".devcontainer", "CLAUDE.md", ".codex", "AGENTS.md",
         ".nvimrc", ".tool-versions", ".cursorrules", ".hermes-wrap.yaml"]
HOME_FILES = {".ssh/id_ed25519": "canary-ssh-key\n", ".ssh/authorized_keys": "# canary\n",
              ".aws/credentials": "canary-aws\n", ".bashrc": "# canary\n", "beside": "canary\n"}
HOST_PROCESS = """
import os, signal, sys
def count(number, frame):
    with open(sys.argv[2], "a") as file: file.write("x")
signal.signal(signal.SIGUSR1, count)
print("ready", flush=True)
while True: signal.pause()
"""


class User:
    """The ordinary user, and how a child becomes that user."""

    def __init__(self, name=None):
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
        self.name, self.uid, self.gid = entry.pw_name, entry.pw_uid, entry.pw_gid
        self.become, self.first = None, 0
        self.privileged = os.getuid() == 0

    def enter_namespaces(self):
        """Leaves the host's network for one with only loopback."""
        if os.getuid() == 0:
            call(LIBC.unshare(CLONE_NEWNET | CLONE_NEWNS), "unshare")
            self.become = self.drop
        else:
            call(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS), "unshare")
            map_ids(0, 0, self.uid, self.gid)
            self.become = self.map_back
        call(LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount /")

    def drop(self):
        os.setgroups([])
        os.setgid(self.gid)
        os.setuid(self.uid)

    def map_back(self):
        """The first child makes the user namespace, later ones join it: in
        different ones they could not see each other's secrets even bare."""
        if self.first:
            with open("/proc/%d/ns/user" % self.first) as namespace:
                call(LIBC.setns(namespace.fileno(), CLONE_NEWUSER), "setns")
            return
        call(LIBC.unshare(CLONE_NEWUSER), "unshare")
        map_ids(self.uid, self.gid, 0, 0)


class Canaries:
    def __init__(self, user, namespaces):
        self.user = user
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="hw-canary-", dir="/var/tmp"))
        self.tmp = tempfile.mkdtemp(prefix="hw-canary-", dir="/tmp")
        self.system = tempfile.mkdtemp(prefix="hw-canary-", dir=self.system_directory(namespaces))
        self.home = os.path.join(self.root, "home")
        self.state = os.path.join(self.home, ".hermes")
        self.workspace = os.path.join(self.home, "project")
        self.run = os.path.join(self.root, "run")
        self.signals = os.path.join(self.root, "signals")
        self.abstract = "hw-canary-%d" % os.getpid()
        self.hits, self.lock = {}, threading.Lock()
        self.files()
        if namespaces:
            self.network()
        port = self.listen("host_loopback", socket.AF_INET, ("127.0.0.1", 0))[1]
        for name in ("docker.sock", "bus", "agent.sock"):
            self.listen(name, socket.AF_UNIX, os.path.join(self.run, name))
            os.chmod(os.path.join(self.run, name), 0o666)
        self.listen("abstract_socket", socket.AF_UNIX, "\0" + self.abstract)
        udp = self.listen_udp("host_loopback_udp", ("127.0.0.1", 0))[1]
        self.share_memory()
        self.process = self.start_process()
        self.env = {
            "HW_CANARY_HOME": self.home, "HW_CANARY_WORKSPACE": self.workspace, "HW_CANARY_TMP": self.tmp,
            "HW_CANARY_SYSTEM": self.system, "HW_CANARY_PORT": str(port), "HW_CANARY_PID": str(self.process.pid),
            "HW_CANARY_DOCKER": os.path.join(self.run, "docker.sock"), "HW_CANARY_BUS": os.path.join(self.run, "bus"),
            "HW_CANARY_AGENT": os.path.join(self.run, "agent.sock"), "HW_CANARY_ABSTRACT": self.abstract,
            "HW_CANARY_UDP_PORT": str(udp), "HW_CANARY_SHM_FILE": self.shm_file, "HW_CANARY_SHM_KEY": str(self.shm_key),
            "AWS_SECRET_ACCESS_KEY": "canary-caller",
            "HOME": self.home, "HERMES_HOME": self.state, "USER": self.user.name, "LOGNAME": self.user.name,
            "PATH": os.path.join(self.home, ".local/bin") + ":" + os.environ.get("PATH", "/usr/bin:/bin"),
        }
        lacks = [name for name, there in features().items() if not there]
        if "ipv6" not in lacks:
            self.env["HW_CANARY_PORT6"] = str(self.listen("host_loopback6", socket.AF_INET6, ("::1", 0))[1])
        self.env["HW_CANARY_LACKS"] = " ".join(lacks)
        with open(os.path.join(self.workspace, "canaries.json"), "w") as file:
            json.dump(self.describe(), file)
        self.before = self.fingerprints()

    def system_directory(self, namespaces):
        """A directory of the system that is writable in this mount namespace
        alone, so that nothing is left in the real one."""
        if not namespaces:
            return self.root
        path = "/usr/local/share"
        call(LIBC.mount(b"canary", path.encode(), b"tmpfs", 0, b"mode=755,size=1m"), "mount " + path)
        return path

    def files(self):
        os.makedirs(self.run)
        for name, text in HOME_FILES.items():
            path = os.path.join(self.home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        for directory in (self.tmp, self.system):
            with open(os.path.join(directory, "marker"), "w") as file:
                file.write("canary\n")
        subprocess.run([os.path.join(HERE, "make_install.sh"), os.path.join(self.home, ".local"), self.state],
                       check=True, stdout=subprocess.DEVNULL)
        git = ["git", "-c", "user.name=Canary", "-c", "user.email=canary@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(git + ["init", "-q", self.workspace], check=True)
        with open(os.path.join(self.workspace, ".git", "info", "exclude"), "a") as file:
            file.write("canaries.json\n.daemon-*\n")
        subprocess.run(git + ["-C", self.workspace, "commit", "-q", "--allow-empty", "-m", "start"], check=True)
        open(self.signals, "w").close()
        for directory in (self.root, self.tmp, self.system):
            os.chmod(directory, 0o755)
            own(directory, self.user)

    def network(self):
        """Two addresses on loopback stand for the outside."""
        hosts = os.path.join(self.root, "hosts")
        with open("/etc/hosts") as old, open(hosts, "w") as new:
            new.write(old.read() + "\n%s unlisted.test\n" % UNLISTED)
        os.chmod(hosts, 0o644)
        call(LIBC.mount(hosts.encode(), b"/etc/hosts", None, MS_BIND, None), "bind /etc/hosts")
        configure_loopback([METADATA, UNLISTED, RESOLVER])
        allow_low_ports()
        self.listen("metadata", socket.AF_INET, (METADATA, 80))
        self.listen("unlisted_host", socket.AF_INET, (UNLISTED, 443))
        self.listen("foreign_resolver_tcp", socket.AF_INET, (RESOLVER, 53))
        self.listen_udp("foreign_resolver", (RESOLVER, 53))

    def listen(self, name, family, address):
        server = socket.socket(family, socket.SOCK_STREAM)
        server.bind(address)
        server.listen(64)
        self.hits[name] = 0
        threading.Thread(target=self.accept, args=(name, server), daemon=True).start()
        return server.getsockname()

    def listen_udp(self, name, address):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(address)
        self.hits[name] = 0
        threading.Thread(target=self.echo, args=(name, server), daemon=True).start()
        return server.getsockname()

    def echo(self, name, server):
        while True:
            data, sender = server.recvfrom(2000)
            with self.lock:
                self.hits[name] += 1
            server.sendto(data + b"hw-canary", sender)

    def share_memory(self):
        """A file in /dev/shm and a System V segment, for which the host's
        namespace is all that is needed."""
        handle, self.shm_file = tempfile.mkstemp(prefix="hw-canary-", dir="/dev/shm")
        os.write(handle, b"canary-shared\n")
        os.close(handle)
        os.chmod(self.shm_file, 0o644)
        self.shm_key = 0x68770000 | os.getpid() & 0xFFFF
        self.segment = LIBC.shmget(self.shm_key, 4096, 0o1666)  # IPC_CREAT
        call(min(self.segment, 0), "shmget")
        LIBC.shmat.restype = ctypes.c_void_p
        ctypes.memmove(LIBC.shmat(self.segment, None, 0), b"canary-shared", 13)

    def accept(self, name, server):
        while True:
            connection, _ = server.accept()
            with self.lock:
                self.hits[name] += 1
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def start_process(self):
        """A process of the same user with something in its environment."""
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HW_HOST_ONLY": "canary-environment"}
        process = subprocess.Popen([python(), "-c", HOST_PROCESS, "hw-canary-process", self.signals], env=environment,
                                   stdout=subprocess.PIPE, preexec_fn=self.user.become, cwd="/")
        process.stdout.readline()
        self.user.first = process.pid
        return process

    def describe(self):
        return {"env": self.env, "root": self.root, "home": self.home, "workspace": self.workspace,
                "hermes_home": self.state, "canary_pid": self.process.pid, "listeners": sorted(self.hits)}

    def fingerprints(self):
        """What must not change, each as a digest of content and names."""
        watched = {name: os.path.join(self.home, name) for name in HOME_FILES}
        watched.update({"tmp": self.tmp, "system": self.system, "git_hooks": self.in_work(".git/hooks"),
                        "git_config": self.in_work(".git/config"),
                        "install": os.path.join(self.state, "hermes-agent"),
                        "launcher": os.path.join(self.home, ".local/bin"),
                        "interpreter": os.path.join(self.home, ".local/share")})
        watched.update({name: self.in_work(name) for name in NAMES})
        for name in ("config.yaml", "SOUL.md", "hooks", "plugins", "skills", ".env", "auth.json", "mcp-tokens", "cron/jobs.json"):
            watched["state_" + name] = os.path.join(self.state, name)
        return {name: fingerprint(path) for name, path in watched.items()}

    def in_work(self, name):
        return os.path.join(self.workspace, name)

    def checks(self):
        after = self.fingerprints()
        for name in sorted(after):
            yield "unchanged_" + name, after[name] == self.before[name], ""
        for name in sorted(self.hits):
            yield "not_reached_" + name, self.hits[name] == 0, "%d connections" % self.hits[name]
        signals = os.path.getsize(self.signals)
        yield "not_signalled", signals == 0, "%d signals" % signals
        alive = growing(glob.glob(self.in_work(".daemon-*")))
        yield "no_daemon_left", not alive, ", ".join(sorted(alive))

    def close(self):
        self.process.kill()
        self.process.wait()
        for path in glob.glob("/proc/[0-9]*/cmdline"):  # the daemons of a bare run
            try:
                with open(path, "rb") as file:
                    line = file.read().split(b"\0")
            except OSError:
                continue
            if b"hw-daemon" in line and any(part.startswith(self.workspace.encode()) for part in line):
                os.kill(int(path.split("/")[2]), signal.SIGKILL)
        os.unlink(self.shm_file)
        LIBC.shmctl(self.segment, 0, None)  # IPC_RMID
        for directory in (self.root, self.tmp, self.system):
            shutil.rmtree(directory, ignore_errors=True)


def answer(connection):
    with connection:
        connection.settimeout(5)
        try:
            seen = b""
            while b"\r\n\r\n" not in seen:  # a shell writes line by line
                data = connection.recv(4096)
                if not data:
                    return
                seen += data
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhw-canary\n")
        except OSError:
            pass


def growing(files, seconds=1.0):
    """Which files get longer: a daemon adds to its own ten times a second."""
    sizes = {name: os.path.getsize(name) for name in files}
    end = time.monotonic() + seconds
    found = set()
    while time.monotonic() < end and len(found) < len(files):
        found = {os.path.basename(name) for name in files if os.path.getsize(name) != sizes[name]}
        time.sleep(0.05)
    return found


def fingerprint(path):
    if not os.path.lexists(path):
        return "absent"
    digest = hashlib.sha256()
    names = [path] if not os.path.isdir(path) else sorted(
        os.path.join(directory, name) for directory, _, found in os.walk(path) for name in found)
    for name in names:
        if "__pycache__" in name:
            continue
        digest.update(name.encode() + b"\0")
        if os.path.islink(name):
            digest.update(os.readlink(name).encode())
        elif os.path.isfile(name):
            with open(name, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def own(root, user):
    if not user.privileged:
        return
    os.chown(root, user.uid, user.gid)
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            os.chown(os.path.join(directory, name), user.uid, user.gid, follow_symlinks=False)


def python():
    """An interpreter that the ordinary user can read."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def report(canaries, path):
    out = open(path, "a") if path else sys.stdout
    for name, ok, detail in canaries.checks():
        out.write(json.dumps({"host": name, "ok": ok, "detail": detail}) + "\n")
    out.flush()


def main():
    p = argparse.ArgumentParser(description="Canaries for the hostile mode.")
    p.add_argument("mode", choices=["run", "serve"])
    p.add_argument("--user", help="as root: the ordinary user")
    p.add_argument("--checks", metavar="FILE", help="append the checks here, not to stdout")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    arguments, command = p.parse_args(given[:cut]), given[cut + 1:]
    if arguments.mode == "run" and not command:
        p.error("run needs -- COMMAND")
    user = User(arguments.user)
    if arguments.mode == "run":
        user.enter_namespaces()
    elif os.getuid() == 0 and arguments.user:
        user.become = user.drop
    canaries = Canaries(user, arguments.mode == "run")
    try:
        if arguments.mode == "serve":
            print(json.dumps(canaries.describe()), flush=True)
            sys.stdin.read()
            status = 0
        else:
            environment = {name: value for name, value in os.environ.items() if name != "SUDO_COMMAND"}
            status = subprocess.run(command, cwd=canaries.workspace, env=dict(environment, **canaries.env),
                                    preexec_fn=user.become).returncode
        report(canaries, arguments.checks)
    finally:
        canaries.close()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())

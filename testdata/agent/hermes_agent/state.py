"""The state directory: its groups of entries, locks, atomic replace, SQLite."""

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import time

from .report import expect

RUNTIME_DIRS = ["kanban", "cron", "cron/output", "sessions", "logs", "memories", "cache", "cache/terminal",
                "checkpoints", "sandboxes", "state-snapshots", "backups", "workspace", "home", "plans",
                "runtime", "terminal-sessions", "platforms"]
RUNTIME_FILES = ["processes.json", "gateway_state.json", "gateway-starts.log", ".hermes_history"]
SECRETS = [".env", "auth.json", ".anthropic_oauth.json", "mcp-tokens/server.json", "pairing/device.json",
           "vault/item.json"]
INPUTS = ["config.yaml", "SOUL.md", "hooks", "plugins", "skills"]


def create(home):
    """Creates the run-time group as Hermes does at each start, modes included."""
    os.makedirs(home, 0o700, exist_ok=True)
    os.chmod(home, 0o700)
    for name in RUNTIME_DIRS:
        os.makedirs(os.path.join(home, name), 0o700, exist_ok=True)
        os.chmod(os.path.join(home, name), 0o700)
    for name in RUNTIME_FILES:
        path = os.path.join(home, name)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os.chmod(path, 0o600)
    mode = stat.S_IMODE(os.stat(home).st_mode)
    expect(mode == 0o700, "mode of the state directory is %o" % mode)
    return "%d directories, %d files" % (len(RUNTIME_DIRS), len(RUNTIME_FILES))


def inputs(home):
    """Reads what a run obeys: configuration, persona, hooks, plugins, skills."""
    missing = [name for name in INPUTS if not os.path.exists(os.path.join(home, name))]
    expect(not missing, "missing: %s" % missing)
    with open(os.path.join(home, "config.yaml")) as file:
        expect("model" in file.read(), "config.yaml has no model")
    return ", ".join(INPUTS)


def replace(home):
    """Temporary file, fsync, rename in the same directory; also across two."""
    path = os.path.join(home, "gateway_state.json")
    temporary = path + ".tmp%d" % os.getpid()
    with open(temporary, "w") as file:
        file.write('{"state": "running"}\n')
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    draft = os.path.join(home, "cache", "draft")
    with open(draft, "w") as file:
        file.write("plan\n")
    os.replace(draft, os.path.join(home, "plans", "plan.md"))
    new = os.path.join(home, "top-level-%d" % os.getpid())
    open(new, "w").close()
    os.unlink(new)


def locks(home):
    """flock and fcntl locks hold against a second process; symlinks are refused."""
    flock = os.open(os.path.join(home, "memories", "MEMORY.md.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    posix = os.open(os.path.join(home, "cron", ".tick.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    fcntl.flock(flock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(posix, fcntl.LOCK_EX | fcntl.LOCK_NB)
    probe = (
        "import fcntl,os,sys\n"
        "n=0\n"
        "for path,lock in ((sys.argv[1],fcntl.flock),(sys.argv[2],fcntl.lockf)):\n"
        "    fd=os.open(path,os.O_RDWR)\n"
        "    try: lock(fd,fcntl.LOCK_EX|fcntl.LOCK_NB)\n"
        "    except OSError: n+=1\n"
        "sys.exit(n)\n")
    held = subprocess.run([sys.executable, "-c", probe, os.path.join(home, "memories", "MEMORY.md.lock"),
                           os.path.join(home, "cron", ".tick.lock")]).returncode
    os.close(flock)
    os.close(posix)
    expect(held == 2, "%d of 2 locks held against a second process" % held)
    link = os.path.join(home, "cache", "link.lock")
    if not os.path.islink(link):
        os.symlink("/dev/null", link)
    try:
        os.close(os.open(link, os.O_RDWR | os.O_NOFOLLOW))
    except OSError:
        pass
    else:
        raise AssertionError("a symlinked lock was opened")
    directory = os.environ.get("HERMES_GATEWAY_LOCK_DIR") or os.path.join(
        os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "hermes", "gateway-locks")
    os.makedirs(directory, 0o700, exist_ok=True)
    os.close(os.open(os.path.join(directory, "default.lock"), os.O_RDWR | os.O_CREAT, 0o600))
    return "gateway locks in " + directory


WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=10)
end = time.monotonic() + float(sys.argv[3])
n = 0
while time.monotonic() < end:
    with db:
        db.execute("insert into messages(who, text) values(?, ?)", (sys.argv[2], "x" * 200))
    n += 1
print(n)
"""


def database(home, seconds=1.0):
    """Two processes write one database in WAL mode at once."""
    path = os.path.join(home, "state.db")
    db = sqlite3.connect(path, timeout=10)
    mode = db.execute("pragma journal_mode=wal").fetchone()[0]
    expect(mode == "wal", "journal mode is " + mode)
    db.execute("create table if not exists messages(id integer primary key, who text, text text)")
    db.commit()
    before = db.execute("select count(*) from messages").fetchone()[0]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, who, str(seconds)],
                                stdout=subprocess.PIPE, text=True) for who in ("agent", "gateway")]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        db.execute("select count(*) from messages").fetchone()
        os.chmod(path + "-shm", 0o600)
    written = [int(writer.communicate(timeout=30)[0]) for writer in writers]
    after = db.execute("select count(*) from messages").fetchone()[0]
    expect(all(written), "a writer wrote nothing: %s" % written)
    expect(after - before == sum(written), "%d rows, want %d" % (after - before, sum(written)))
    db.execute("pragma wal_checkpoint(truncate)")
    check = db.execute("pragma integrity_check").fetchone()[0]
    db.close()
    expect(check == "ok", "integrity check: " + check)
    return "%d rows by two processes" % sum(written)

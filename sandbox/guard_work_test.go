package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Ordinary work gives the same output with the guard as without.
func TestGuardKeepsOrdinaryWork(t *testing.T) {
	tools := requireGuardTools(t)
	const identity = "-c user.name=a -c user.email=a@example.org"
	cases := map[string]string{
		"git":           "git init -q r && cd r && echo x > f && git add f && git " + identity + " commit -qm m && git mv f g && git status --short && git gc -q && git fsck",
		"many files":    "for i in {1..300}; do mkdir -p n/$i/lib; echo $i > n/$i/lib/index.js; done; find n -type f | wc -l; cat n/300/lib/index.js",
		"copy":          "mkdir -p a/b && echo x > a/b/c && ln -s c a/b/l && cp -a a z && mv z y && find y | sort && rm -r a y && ls",
		"tempfile":      `python3 -c 'import tempfile; f = tempfile.NamedTemporaryFile(dir="."); f.write(b"x"); t = tempfile.TemporaryFile(dir="."); t.write(b"y"); d = tempfile.mkdtemp(dir="."); print("done")'`,
		"sqlite":        `python3 -c 'import sqlite3; c = sqlite3.connect("db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(x)"); c.executemany("insert into t values(?)", [(i,) for i in range(500)]); c.commit(); print(c.execute("select sum(x) from t").fetchone())'`,
		"nameless file": "$PROBE tmpfile-link . f; stat -c %a f",
		"umask":         "umask 077; echo > a; umask 027; echo > b; mkdir c; (umask 0; echo > d; mkfifo e); $PROBE bind s; stat -c '%n %a' a b c d e s",
		"umask threads": `python3 -c 'import os, threading; t = threading.Thread(target=lambda: os.umask(0o77)); open("a", "w"); t.start(); t.join(); open("b", "w"); print([oct(os.stat(n).st_mode) for n in "ab"])'`,
		"many umasks":   "for i in {1..50}; do (umask 0$((i % 8))7; echo > u$i) ; done; umask 0; for i in {1..50}; do stat -c %a u$i; done",
		"modes":         `python3 -c 'import os; os.umask(0); [os.close(os.open("f%o" % m, os.O_CREAT | os.O_RDWR, m)) for m in (0o600, 0o4755, 0o444)]; print([oct(os.stat(n).st_mode) for n in sorted(os.listdir(".")) if n[0] == "f"])'`,
		"shared directory": `mkdir -p d/e && ln -s d l && chmod 2775 d && chmod 2750 d/e/ && stat -c '%n %a' d d/e && chmod g+rwxs l d/. && (cd d/e && chmod 2711 .) &&
			python3 -c 'import os; f = os.open("d", os.O_RDONLY); os.fchmod(f, 0o2770); os.chmod("/proc/self/fd/%d" % f, 0o2771); os.chmod("/proc/self/cwd/d/e", 0o3777); os.chmod("e", 0o2755, dir_fd=f)' &&
			stat -c '%n %a' d d/e; chmod 2755 gone; chmod 2755 d/e/../../d/gone/x; ls -1`,
		"descriptors":    `python3 -c 'import os, fcntl; a = os.open("a", os.O_CREAT | os.O_WRONLY | os.O_APPEND); b = os.open("b", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC); print(a, b, os.get_inheritable(a), [fcntl.fcntl(f, fcntl.F_GETFD) for f in (a, b)], oct(fcntl.fcntl(a, fcntl.F_GETFL) & ~os.O_NOFOLLOW))'`,
		"fifo":           "mkfifo p q; (cat q > p) & (sleep 0.1; echo through both > q) & cat p; wait",
		"fifo both ways": "mkfifo p; exec 5<>p; echo hello >&5; head -1 <&5",
		"fifo alarm": `mkfifo p; python3 -c 'import signal, os
def stop(*a): raise TimeoutError
signal.signal(signal.SIGALRM, stop); signal.setitimer(signal.ITIMER_REAL, 0.1)
try: open("p", "w")
except TimeoutError: print("interrupted")'`,
		"fifo killed":      "mkfifo p; { timeout -s KILL 0.2 bash -c 'echo > p'; } 2> err; echo $?; echo > q; ls p q",
		"unix socket":      `python3 -c 'import socket, os; s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect(os.path.abspath("s")); a, _ = s.accept(); c.send(b"hi"); print(a.recv(9), s.getsockname(), a.getsockname())'`,
		"other sockets":    `python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname()); print(s.accept()[0].getpeername() == c.getsockname()); u = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); u.bind(""); print(len(u.getsockname())); n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); n.bind((0, 0)); print("netlink")'`,
		"standard streams": "(echo a > /dev/stdout; echo b > /proc/self/fd/1; echo c > /dev/fd/1; echo d > /dev/stderr) 2>&1 | cat",
		"own proc files":   "echo name > /proc/self/comm; cat /proc/$$/comm; echo 500 > /proc/$$/oom_score_adj; cat /proc/$$/oom_score_adj",
		"no terminal":      "echo x 2>&1 > /dev/tty; echo $?",
		"own terminal": `python3 -c 'import pty, os
pid, fd = pty.fork()
if pid == 0: os.execvp("bash", ["bash", "-c", "echo to the terminal > /dev/tty"])
print(os.read(fd, 100)); os.waitpid(pid, 0)'`,
		"deleted directory": "mkdir d && cd d && rmdir ../d && mkdir x; echo $?",
		"threads":           `python3 -c 'from concurrent.futures import ThreadPoolExecutor as T; list(T(8).map(lambda i: open("t%d" % i, "w").write("x"), range(400))); import os; print(len(os.listdir(".")))'`,
		"new program":       "for i in {1..40}; do cp /bin/true prog; ./prog || echo busy; rm prog; done; echo done",
		"locks": `python3 -c 'import fcntl
for i in range(300):
  with open("lock", "w") as f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("done")'`,
		"signals":   `python3 -c 'import signal, os; n = 0; signal.signal(signal.SIGALRM, lambda *a: None); signal.siginterrupt(signal.SIGALRM, False); signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005); [os.mkdir("d%d" % i) for i in range(2000)]; print("done")'`,
		"node":      `node -e 'const fs = require("fs"); for (let i = 0; i < 100; i++) fs.mkdirSync("m" + i + "/x", {recursive: true}), fs.writeFileSync("m" + i + "/x/f", "y"); const s = require("net").createServer().listen("sock", () => { console.log(s.address()); s.close() })'`,
		"read only": "echo > r; chmod 444 r; python3 -c 'import os; print(os.fstat(os.open(\"r\", os.O_CREAT | os.O_RDONLY)).st_size)'",
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			bare, inside := guardDir(t), guardDir(t)
			want, _ := tools.run(t, bare, script)
			got, _ := tools.run(t, inside, script, ".envrc", ".git/hooks")
			if clean(got, inside) != clean(want, bare) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func clean(out, dir string) string { return strings.ReplaceAll(out, dir, "DIR") }

// What exists in spite of the guard (made outside during the run) is treated
// as on a read-only file system.
func TestGuardExistingName(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]struct{ script, want string }{
		"read":        {"$PROBE openat . .envrc 0", "ok"},
		"write":       {"$PROBE openat . .envrc 1", "EROFS"},
		"truncate":    {"$PROBE openat . .envrc 0x200", "EROFS"},
		"exclusive":   {"$PROBE openat . .envrc 0x80", "EEXIST"},
		"mkdir":       {"$PROBE mkdir .envrc", "EEXIST"},
		"rename away": {"$PROBE rename .envrc other", "EROFS"},
		"rename onto": {"$PROBE rename file .envrc", "EROFS"},
		"link":        {"$PROBE link .envrc other", "EROFS"},
		"bind":        {"$PROBE bind .envrc", "EADDRINUSE"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := guardDir(t)
			if err := os.WriteFile(filepath.Join(dir, ".envrc"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, _ := tools.run(t, dir, c.script, ".envrc"); out != c.want+"\n" {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}

// A parent that does not exist either stays away altogether.
func TestGuardMissingParent(t *testing.T) {
	tools := requireGuardTools(t)
	for _, script := range []string{"mkdir -p .claude/hooks", "mkdir x && mv -T x .claude", "ln -s sub .claude"} {
		dir := guardDir(t)
		if out, ok := tools.run(t, dir, script); !ok {
			t.Fatalf("%s without the guard: %s", script, out)
		}
		dir = guardDir(t)
		if out, ok := tools.run(t, dir, script, ".claude/hooks/settings.json"); ok || exists(t, filepath.Join(dir, ".claude")) {
			t.Errorf("%s: got success %v, want a refusal and no name: %s", script, ok, out)
		}
	}
}

// A file does not become set-group-id, by whatever call and name.
func TestGuardSetGroupID(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]string{
		"chmod":         "chmod 2755 file",
		"by a link":     "ln -s file l; chmod 2755 l",
		"by links":      "ln -s file l; ln -s $PWD/l m; chmod 2711 m",
		"in a tree":     "mkdir -p a/b; ln file a/b/f; chmod 2755 a/./b/../b/f",
		"by descriptor": `python3 -c 'import os; os.fchmod(os.open("file", os.O_RDONLY), 0o2755)'`,
		"by a handle":   `python3 -c 'import os; os.chmod("/proc/self/fd/%d" % os.open("file", os.O_PATH), 0o2755)'`,
		"by procfs":     `exec 7<file; chmod 2755 /proc/self/fd/7 /dev/fd/7 /proc/$$/fd/7 /proc/thread-self/fd/7`,
		"relative":      `python3 -c 'import os; os.chmod("file", 0o3777, dir_fd=os.open(".", os.O_PATH))'`,
		"fchmodat2":     `python3 -c 'import ctypes, os; l = ctypes.CDLL(None); l.syscall(452, -100, b"file", 0o2755, 0x100); l.syscall(452, os.open("file", os.O_PATH), b"", 0o2755, 0x1000)'`,
		"upper bits":    `python3 -c 'import ctypes, os; l = ctypes.CDLL(None); l.syscall(268, -100, b"file", ctypes.c_ulong(0o102755 | 1 << 40))'`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			bare, inside := guardDir(t), guardDir(t)
			const look = " 2>/dev/null; stat -c %a file"
			if got, _ := tools.run(t, bare, script+look); len(got) != len("2755\n") {
				t.Fatalf("without the guard: got %q, want a set-group-id file", got)
			}
			if got, _ := tools.run(t, inside, script+look, ".envrc"); got != "644\n" {
				t.Errorf("got %q, want the file as it was", got)
			}
		})
	}
}

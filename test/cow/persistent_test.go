package cow

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const persistent = "state: persistent\n"

// TestLayerIsPrivate: nobody else reads it, and its owner can remove it.
func TestLayerIsPrivate(t *testing.T) {
	s := newScene(t)
	must(t, s.inside(t, s.policy(t, "kept", "cow", persistent), `import os; open("new", "w"); os.unlink("file")`), 0)
	for dir := s.layer("kept"); dir != filepath.Dir(s.sessions()); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%q: got %v, %v, want mode 0700", dir, st, err)
		}
	}
	// "rm -rf" by the owner, as people do it, on what the kernel left too.
	e := wraptest.Run(t, s.Bare(s.Home, "rm", "-rf", s.layer("kept")), limit)
	if e.Exit != 0 {
		t.Errorf("rm -rf: exit %d\n%s", e.Exit, e.Err)
	}
}

// TestLayerIsNotInside: the layer shows as the merged tree and in no other way,
// and a grant of what holds it is refused.
func TestLayerIsNotInside(t *testing.T) {
	s := newScene(t)
	p := s.policy(t, "kept", "cow", persistent)
	out := must(t, s.inside(t, p, fmt.Sprintf(`
import os
open("canary-of-the-layer", "w")
print(os.path.exists(%q))
print(sum(f == "canary-of-the-layer" for d, _, fs in os.walk("/") if not d.startswith("/proc") for f in fs))
print([l for l in open("/proc/self/mountinfo") if "sessions" in l])
`, s.sessions())), 0)
	if want := "False\n1\n[]\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	p = s.policy(t, "wide", "cow", persistent+fmt.Sprintf("filesystem: {read: [%q]}\n", s.sessions()))
	if e := s.inside(t, p, ""); e.Exit != 125 || !strings.Contains(e.Err, "must stay outside") {
		t.Errorf("got exit %d, %q, want a refusal", e.Exit, e.Err)
	}
}

// TestOneRunAtATime: an upper directory that is mounted twice is broken.
func TestOneRunAtATime(t *testing.T) {
	s := newScene(t)
	p := s.policy(t, "kept", "cow", persistent)
	cmd := s.Bare(s.ws, s.Bin, "--policy", p, "--", "python3", "-c", `print("up", flush=True); input()`)
	in, out := pipes(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if e := s.inside(t, p, ""); e.Exit != 125 || !strings.Contains(e.Err, "in use") || !strings.Contains(e.Err, "--name") {
		t.Errorf("got exit %d, %q, want a refusal that names --name", e.Exit, e.Err)
	}
	must(t, s.inside(t, p, "", "--name", "another"), 0)
	fmt.Fprintln(in)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	must(t, s.inside(t, p, ""), 0)
}

// TestKilled: whatever was killed, the next run goes on where it was, at once,
// and alone.
func TestKilled(t *testing.T) {
	s := newScene(t)
	p := s.policy(t, "kept", "cow", persistent)
	const rounds = 6
	for i := range rounds {
		cmd := s.Bare(s.ws, s.Bin, "--policy", p, "--", "python3", "-c", fmt.Sprintf(`
import os
assert len([f for f in os.listdir(".") if f.startswith("round")]) == %d
open("round%d", "w").write("x" * 5000)
os.rename("dir/inner", "dir/x"); os.rename("dir/x", "dir/inner")
print("up", flush=True)
n = 0
while True:
    n += 1
    open("busy%%d" %% (n %% 50), "w").write("busy" * n)
    if n %% 3 == 0: os.unlink("busy%%d" %% (n %% 50))
`, i, i))
		_, out := pipes(t, cmd)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Fatalf("round %d: %v\n%s", i, err, errs.String())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	out := must(t, s.inside(t, p, `import os; print(sum(os.path.getsize(f) for f in os.listdir(".") if f.startswith("round")), open("dir/inner").read())`), 0)
	if want := strconv.Itoa(rounds*5000) + " inner\n\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// TestAnotherTree: a layer belongs to the tree that it was made over.
func TestAnotherTree(t *testing.T) {
	s := newScene(t)
	must(t, s.inside(t, s.policy(t, "kept", "cow", persistent), ""), 0)
	other := s.Dir(t, "other")
	p := s.PolicyFile(t, "kept", fmt.Sprintf("version: 1\nname: kept\nworkspace: {path: %q, access: cow}\n%s", other, persistent))
	e := wraptest.Run(t, s.Bare(other, s.Bin, "--policy", p, "--", "true"), limit)
	if e.Exit != 125 || !strings.Contains(e.Err, "belongs to") {
		t.Errorf("got exit %d, %q, want a refusal", e.Exit, e.Err)
	}
}

// TestWatched: on disk the launcher measures, also what the agent closed to
// itself and what has no name any more.
func TestWatched(t *testing.T) {
	for _, c := range []struct{ name, limits, program, want string }{
		{"size", "disk: 16M", "f = open('data', 'wb')\nwhile True: f.write(b'x' * 65536); f.flush()", "limits.disk (16 MiB)"},
		{"files", "disk_files: 300", "import itertools\nfor i in itertools.count(): open('f%d' % i, 'w').close()", "limits.disk_files (300)"},
		{"closed", "disk: 16M", "import os\nos.mkdir('d'); f = open('d/data', 'wb'); os.chmod('d', 0)\nwhile True: f.write(b'x' * 65536); f.flush()", "limits.disk (16 MiB)"},
		{"removed", "disk: 16M", "import os\nf = open('data', 'wb'); os.unlink('data')\nwhile True: f.write(b'x' * 65536); f.flush()", "limits.disk (16 MiB)"},
		{"deep", "disk: 16M", "import os, time\nfor i in range(4000): os.mkdir('d'); os.chdir('d')\ntime.sleep(50)", "cannot be measured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			e := s.inside(t, s.policy(t, "watched", "cow", persistent+"limits: {"+c.limits+"}\n"), c.program)
			if e.Exit != 125 || !strings.Contains(e.Err, c.want) {
				t.Errorf("got exit %d, %q, want 125 and %q", e.Exit, e.Err, c.want)
			}
		})
	}
	s := newScene(t)
	must(t, s.inside(t, s.policy(t, "watched", "cow", persistent+"limits: {disk: 16M, disk_files: 300}\n"), `open("data", "wb").write(b"x" * 8000000)`), 0)
}

// TestHostileLayer: attributes by which a layer could lead out of its tree are
// not the agent's to set, and are not followed if they are there all the same.
func TestHostileLayer(t *testing.T) {
	s := newScene(t)
	s.Write(t, filepath.Join(s.Home, "secret", "file"), "canary-outside\n")
	p := s.policy(t, "hostile", "cow", persistent)
	must(t, s.inside(t, p, `
import os
for name in ("redirect", "metacopy", "opaque", "whiteout", "origin"):
    for f in ("dir", "file"):
        os.setxattr(f, "user.overlay." + name, b"/../secret")
try: os.mknod("device", 0o020666, os.makedev(1, 3)); print("made")
except PermissionError: pass
try: os.mknod("whiteout", 0o020000, 0); print("made")
except PermissionError: pass
assert sorted(os.listdir("dir")) == ["inner"]
`), 0)
	upper := filepath.Join(s.layer("hostile"), "upper")
	for _, f := range []string{"dir", "file"} {
		for _, name := range attributes(t, filepath.Join(upper, f)) {
			if strings.HasPrefix(name, "user.overlay.") && !strings.HasPrefix(name, "user.overlay.overlay.") && name != "user.overlay.origin" && name != "user.overlay.impure" {
				t.Errorf("%s in the layer has %q, which the agent named", f, name)
			}
		}
	}
	// The next mount sees the agent's attributes as the agent's, and the tree whole.
	out := must(t, s.inside(t, p, `import os; print(os.listdir("dir"), open("file").read().strip(), os.getxattr("dir", "user.overlay.redirect"))`), 0)
	if want := "['inner'] old b'/../secret'\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	// What no agent can write is not followed either.
	for _, a := range []struct{ name, value string }{{"redirect", "/../secret"}, {"redirect", "../secret"}, {"metacopy", ""}, {"redirect", filepath.Join(s.Home, "secret/file")}} {
		for _, f := range []string{"dir", "file"} {
			if err := syscall.Setxattr(filepath.Join(upper, f), "user.overlay."+a.name, []byte(a.value), 0); err != nil {
				t.Fatal(err)
			}
		}
		e := s.inside(t, p, `
import os
for d, ds, fs in os.walk("."):
    for f in fs:
        try: print(d, f, open(os.path.join(d, f), "rb").read(20))
        except OSError as e: print(d, f, e.errno)
`)
		if strings.Contains(e.Out, "canary-outside") {
			t.Errorf("%v: got %q, want nothing from outside of the tree", a, e.Out)
		}
	}
}

func attributes(t *testing.T, path string) []string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := syscall.Listxattr(path, buf)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00")
}

// TestHostileNames: whatever is left in a layer, the next run starts, and the
// layer can be removed.
func TestHostileNames(t *testing.T) {
	s := newScene(t)
	p := s.policy(t, "names", "cow", persistent)
	must(t, s.inside(t, p, `
import os, socket
open("new\nline\x1b[2J", "w"); open(b"\xff\xfe", "w")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
os.symlink("/", "root"); os.symlink("soft", "soft")
open("odd", "w"); os.chmod("odd", 0o1755)
f = open("sparse", "w"); f.truncate(2**43)
os.mkdir("closed"); open("closed/in", "w"); os.chmod("closed", 0)
top = os.open(".", os.O_RDONLY)
for i in range(600): os.mkdir("d"); os.chdir("d")
os.fchdir(top)
os.rename("dir/inner", "dir/moved")
os.unlink("file"); os.symlink("/etc", "file")
import shutil; shutil.rmtree("dir"); os.symlink("/etc", "dir")
`), 0)
	out := must(t, s.inside(t, p, `import os; print(len(os.listdir(".")), os.stat("sparse").st_size, os.readlink("dir"))`), 0)
	if want := "15 8796093022208 /etc\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	// A policy that grants what the agent has turned into a link is not led along it.
	p = s.policy(t, "names", "cow", persistent+fmt.Sprintf("filesystem: {write: [%q]}\n", filepath.Join(s.ws, "dir")))
	if e := s.inside(t, p, `open("dir/x", "w")`); e.Exit != 125 {
		t.Errorf("got exit %d\n%s%s, want a refusal", e.Exit, e.Out, e.Err)
	}
}

// TestSQLite: what Hermes keeps its sessions with works on a layer: shared
// mappings, locks between processes, replacing by rename.
func TestSQLite(t *testing.T) {
	s := newScene(t)
	home := s.Dir(t, "hermes")
	s.Write(t, filepath.Join(home, "config.yaml"), "model: x\n")
	before := manifest(t, home)
	p := s.PolicyFile(t, "agent", fmt.Sprintf("version: 1\nworkspace: {path: %q, access: cow}\nfilesystem: {cow: [%q]}\nenv: {set: {HERMES_HOME: %q}}\n%s", s.ws, home, home, persistent))
	out := must(t, s.inside(t, p, `
import os, sqlite3, sys
path = os.path.join(os.environ["HERMES_HOME"], "state.db")
db = sqlite3.connect(path, timeout=30); print(db.execute("pragma journal_mode=wal").fetchone()[0])
db.execute("create table t (who, n)"); db.commit(); db.close()
kids = []
for who in range(2):
    pid = os.fork()
    if pid == 0:
        db = sqlite3.connect(path, timeout=30, isolation_level=None)
        for n in range(200): db.execute("insert into t values (?, ?)", (who, n))
        os._exit(0)
    kids.append(pid)
print([os.waitpid(p, 0)[1] for p in kids])
tmp = path + ".tmp"; open(tmp, "w").write("x"); fd = os.open(tmp, os.O_RDWR); os.fsync(fd); os.replace(tmp, os.path.join(os.environ["HERMES_HOME"], "config.yaml"))
`), 0)
	if want := "wal\n[0, 0]\n"; out != want {
		t.Fatalf("got %q, want %q", out, want)
	}
	out = must(t, s.inside(t, p, `
import os, sqlite3
db = sqlite3.connect(os.path.join(os.environ["HERMES_HOME"], "state.db"))
print(db.execute("select count(*), count(distinct who) from t").fetchone(), db.execute("pragma integrity_check").fetchone()[0], open(os.path.join(os.environ["HERMES_HOME"], "config.yaml")).read())
`), 0)
	if want := "(400, 2) ok x\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if manifest(t, home) != before {
		t.Error("the host's HERMES_HOME has changed")
	}
}

// nested is a command that runs where another file system is mounted inside of
// the workspace, so that the kernel refuses an overlay over it.
func (s scene) nested(policy, program string) *exec.Cmd {
	script := fmt.Sprintf(`mount -t tmpfs tmpfs dir && echo mounted > dir/in && exec "$0" --policy %q -- python3 -c "$1"`, policy)
	return s.Bare(s.ws, "unshare", "-Um", "-c", "--keep-caps", "sh", "-c", script, s.Bin, program)
}

// TestCopy: where no overlay can be had the tree is copied, which is said, and
// everything else holds as it does.
func TestCopy(t *testing.T) {
	for _, state := range []string{"ephemeral", "persistent"} {
		t.Run(state, func(t *testing.T) {
			s := newScene(t)
			s.Write(t, filepath.Join(s.ws, "hidden", "deep"), "canary-hidden")
			if err := os.Symlink("/nowhere/file", filepath.Join(s.ws, "soft")); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(filepath.Join(s.ws, "file"), filepath.Join(s.ws, "hard")); err != nil {
				t.Fatal(err)
			}
			before := manifest(t, s.ws)
			p := s.policy(t, "copied", "cow", "state: "+state+"\nfilesystem: {hide: [\"${WORKSPACE}/.env\", \"${WORKSPACE}/hidden\"], protect: [\"${WORKSPACE}/.git/hooks\"]}\n")
			e := wraptest.Run(t, s.nested(p, `
import os
print(open("dir/in").read(), os.readlink("soft"), os.stat("file").st_nlink, os.stat("file").st_mtime_ns, flush=True)
open("file", "w").write("changed")
for do in (lambda: open(".env").read(), lambda: os.listdir("hidden"), lambda: open(".git/hooks/x", "w")):
    try: do(); print("done")
    except OSError as e: print("errno", e.errno)
`), limit)
			st, err := os.Stat(filepath.Join(s.ws, "file"))
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("mounted\n /nowhere/file 2 %d\nerrno 13\nerrno 13\nerrno 30\n", st.ModTime().UnixNano())
			if out := must(t, e, 0); out != want {
				t.Errorf("got %q, want %q", out, want)
			}
			if !strings.Contains(e.Err, "is a full copy") || !strings.Contains(e.Err, "overlay") {
				t.Errorf("got %q, want it said that the tree was copied", e.Err)
			}
			if manifest(t, s.ws) != before {
				t.Error("the host's tree has changed")
			}
			if n := grep(t, s.sessions(), "canary"); n > 0 {
				t.Errorf("%d files of the session's directory hold what is hidden", n)
			}
			if state == "persistent" {
				e = wraptest.Run(t, s.nested(p, `print(open("file").read())`), limit)
				if out := must(t, e, 0); out != "changed\n" {
					t.Errorf("the next run sees %q", out)
				}
			} else if left, _ := filepath.Glob(filepath.Join(s.sessions(), "*", "ephemeral")); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
			p = s.policy(t, "bounded", "cow", "state: "+state+"\nlimits: {disk: 64K}\n")
			if e := wraptest.Run(t, s.nested(p, ""), limit); e.Exit != 125 || !strings.Contains(e.Err, "more than limits.disk") {
				t.Errorf("got exit %d, %q, want the limit", e.Exit, e.Err)
			}
		})
	}
}

// TestForeignTree: an overlay over a tree of somebody else's could not change its
// files, so it is copied.
func TestForeignTree(t *testing.T) {
	s := newScene(t)
	const tree = "/etc/skel"
	_, err := os.Stat(tree)
	harness.Require(t, err == nil, tree)
	p := s.PolicyFile(t, "foreign", fmt.Sprintf("version: 1\nworkspace: {path: %q, access: cow}\nfilesystem: {cow: [%s]}\n", s.ws, tree))
	e := s.inside(t, p, `
import os
for d, _, fs in os.walk("/etc/skel"):
    for f in fs: open(os.path.join(d, f), "a").write("own"); os.chmod(os.path.join(d, f), 0o600)
open("/etc/skel/new", "w")
`)
	must(t, e, 0)
	if said := strings.Contains(e.Err, "is a full copy"); said != (s.Uid != 0) {
		t.Errorf("got %q, want a word about a copy unless root runs it", e.Err)
	}
}

func grep(t *testing.T, dir, text string) (n int) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
				n++
			}
		}
		return nil
	})
	return n
}

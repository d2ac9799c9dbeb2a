// Package cow shows that what is written to a copy-on-write tree stays out of the
// host's tree, whoever writes it and however, and that a layer leads nowhere.
package cow

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const limit = time.Minute

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// scene is one workspace with files, and a world around it.
type scene struct {
	wraptest.World
	ws string
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{World: wraptest.New(t)}
	harness.Require(t, s.Find("python3") != "", "python3")
	s.ws = s.Dir(t, "ws")
	s.Write(t, filepath.Join(s.ws, "file"), "old\n")
	s.Write(t, filepath.Join(s.ws, "big"), strings.Repeat("x", 100_000))
	s.Write(t, filepath.Join(s.ws, "dir", "inner"), "inner\n")
	s.Write(t, filepath.Join(s.ws, ".git", "hooks", "sample"), "#!/bin/sh\n")
	s.Write(t, filepath.Join(s.ws, ".env"), "TOKEN=canary\n")
	return s
}

// policy writes one whose workspace has the access; more is further YAML.
func (s scene) policy(t *testing.T, name, access, more string) string {
	t.Helper()
	return s.PolicyFile(t, name, fmt.Sprintf("version: 1\nname: %s\nworkspace: {path: %q, access: %s, exec: true}\n%s", name, s.ws, access, more))
}

// inside runs a Python program under a policy.
func (s scene) inside(t *testing.T, policy, program string, flags ...string) wraptest.Ended {
	t.Helper()
	argv := append([]string{s.Bin, "--policy", policy}, flags...)
	return wraptest.Run(t, s.Bare(s.ws, append(argv, "--", "python3", "-c", program)...), limit)
}

// must fails the test unless the program ended with the code, and gives its output.
func must(t *testing.T, e wraptest.Ended, code int) string {
	t.Helper()
	if e.Exit != code {
		t.Fatalf("got exit %d, want %d\n%s%s", e.Exit, code, e.Out, e.Err)
	}
	return e.Out
}

// manifest is everything that there is to know of a tree but access times.
func manifest(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", b[:min(len(b), 64)])
		}
		rel, _ := filepath.Rel(dir, path)
		lines = append(lines, fmt.Sprintf("%q %o %d:%d ino %d nlink %d size %d mtime %v ctime %v %s", rel, st.Mode, st.Uid, st.Gid, st.Ino, st.Nlink, st.Size, st.Mtim, st.Ctim, content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sessions is where layers are kept.
func (s scene) sessions() string {
	return filepath.Join(s.Home, ".local", "state", "hermes-wrap", "sessions")
}

func (s scene) layer(name string) string {
	return filepath.Join(s.sessions(), name, "state", "workspace")
}

// everything changes a tree in every way that a program has.
const everything = `
import mmap, os
open("new", "w").write("new\n")
open("file", "a").write("more\n")
os.chmod("file", 0o600)
f = open("big", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:4] = b"MMAP"; m.flush(); m.close(); f.close()
os.link("file", "hard"); open("hard", "a").write("through the link\n")
os.symlink("/nowhere/file", "soft")
os.mkfifo("fifo")
os.setxattr("file", "user.note", b"x")
os.utime("big", (1, 1))
os.makedirs("a/b/c"); open("a/b/c/d", "w").write("deep")
os.rename("file", "renamed")
os.replace("new", "dir/inner")
import shutil; shutil.rmtree("dir"); os.mkdir("dir"); open("dir/other", "w").write("other")
os.truncate("big", 10)
fd = os.open("synced", os.O_CREAT | os.O_RDWR); os.write(fd, b"s"); os.fsync(fd)
d = os.open(".", os.O_RDONLY); os.fsync(d)
assert sorted(os.listdir("dir")) == ["other"], os.listdir("dir")
assert open("renamed").read() == "old\nmore\nthrough the link\n"
assert open("big", "rb").read() == b"MMAPxxxxxx"
print("done")
`

func TestWritesStayInside(t *testing.T) {
	for _, state := range []string{"ephemeral", "persistent"} {
		t.Run(state, func(t *testing.T) {
			s := newScene(t)
			before := manifest(t, s.ws)
			p := s.policy(t, "cow", "cow", "state: "+state+"\n")
			e := s.inside(t, p, everything)
			must(t, e, 0)
			if after := manifest(t, s.ws); after != before {
				t.Errorf("the host's tree has changed:\n%s\nwas\n%s", after, before)
			}
			if strings.Contains(e.Err, "layer") || strings.Contains(e.Err, "outside") {
				t.Errorf("got %q, want no word about layers", e.Err)
			}
			again := must(t, s.inside(t, p, `import os; print(os.path.exists("renamed"), open("big").read(4), os.listdir("dir"))`), 0)
			want := map[string]string{"ephemeral": "False xxxx ['inner']\n", "persistent": "True MMAP ['other']\n"}[state]
			if again != want {
				t.Errorf("the next run sees %q, want %q", again, want)
			}
			// The control: the same program where the policy lets it write.
			must(t, s.inside(t, s.policy(t, "write", "write", ""), everything), 0)
			if manifest(t, s.ws) == before {
				t.Error("control: nothing has changed under access: write")
			}
		})
	}
}

// TestCoversHold: a layer is no way around what is protected and hidden.
func TestCoversHold(t *testing.T) {
	const attacks = `
import os
def attack(name, do):
    try: do()
    except OSError as e: print(name, "errno", e.errno)
    else: print(name, "done")
attack("hook", lambda: open(".git/hooks/pre-commit", "w"))
attack("sample", lambda: open(".git/hooks/sample", "a"))
attack("unlink", lambda: os.unlink(".git/hooks/sample"))
attack("move", lambda: os.rename(".git/hooks", "hooks"))
attack("parent", lambda: os.rename(".git", "other"))
attack("read", lambda: open(".env").read())
attack("replace", lambda: os.rename("file", ".env"))
attack("create", lambda: open(".envrc", "w"))
attack("below", lambda: os.makedirs(".vscode/x"))
open("dir/touched", "w")
attack("deep", lambda: open("dir/guarded", "w"))
attack("into", lambda: os.rename("dir/touched", "dir/guarded"))
`
	s := newScene(t)
	p := s.policy(t, "covers", "cow", "filesystem:\n  protect: [\"${WORKSPACE}/.git/hooks\", \"${WORKSPACE}/.envrc\", \"${WORKSPACE}/.vscode\", \"${WORKSPACE}/dir/guarded\"]\n  hide: [\"${WORKSPACE}/.env\"]\n")
	for line := range strings.Lines(must(t, s.inside(t, p, attacks), 0)) {
		if !strings.Contains(line, "errno") {
			t.Errorf("got %q, want an error", line)
		}
	}
	s2 := newScene(t)
	out := must(t, s2.inside(t, s2.PolicyFile(t, "bare", fmt.Sprintf("version: 1\nextends: []\nname: bare\nfilesystem: {write: [%q], exec: [/usr, /bin?, /lib?, /lib64?], read: [/etc/ld.so.cache?]}\nenv: {allow: [PATH]}\n", s2.ws)), attacks), 0)
	if n := strings.Count(out, "done"); n != 11 {
		t.Errorf("control: %d of 11 attacks succeed where nothing is protected:\n%s", n, out)
	}
}

// TestMemoryBounds: the kernel itself ends what is too much, for a plain user.
func TestMemoryBounds(t *testing.T) {
	s := newScene(t)
	fill := `
import os, errno
def fill(do):
    for i in range(4000):
        try: do(i)
        except OSError as e: return errno.errorcode[e.errno], i
    return "all", 4000
def write(i):
    with open("data", "ab") as f: f.write(b"x" * 16384); f.flush()
print(*fill(write)); os.unlink("data")
print(*fill(lambda i: open("f%d" % i, "x").close()))
`
	p := s.policy(t, "small", "cow", "limits: {disk: 8M, disk_files: 500}\n")
	out := strings.Fields(must(t, s.inside(t, p, fill), 0))
	if len(out) != 4 || out[0] != "ENOSPC" || out[2] != "ENOSPC" {
		t.Fatalf("got %q, want ENOSPC twice", out)
	}
	out = strings.Fields(must(t, s.inside(t, s.policy(t, "large", "cow", "limits: {disk: 128M, disk_files: 9000}\n"), fill), 0))
	if len(out) != 4 || out[0] != "all" || out[2] != "all" {
		t.Errorf("control: got %q, want all twice", out)
	}
	// The least there is still starts, and holds.
	e := s.inside(t, s.policy(t, "least", "cow", "limits: {disk: 64K, disk_files: 1}\n"), fill)
	out = strings.Fields(must(t, e, 0))
	if len(out) != 4 || out[0] != "ENOSPC" || out[2] != "ENOSPC" || strings.Contains(e.Err, "layer") {
		t.Errorf("got %q, %q, want ENOSPC twice", out, e.Err)
	}
}

// TestCombinations: a write goes where the innermost tree says, and a part may be
// executable without the rest.
func TestCombinations(t *testing.T) {
	s := newScene(t)
	outer := s.Dir(t, "outer")
	s.Write(t, filepath.Join(outer, "deep", "cow", "old"), "old")
	s.Write(t, filepath.Join(s.ws, "out", "old"), "old")
	s.Write(t, filepath.Join(s.ws, "tools", "run"), "#!/bin/sh\necho ran\n")
	for _, f := range []string{"tools/run", "dir/inner"} {
		if err := os.Chmod(filepath.Join(s.ws, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := s.PolicyFile(t, "mixed", fmt.Sprintf(`version: 1
workspace: {path: %q, access: cow, exec: false}
filesystem:
  write: [%q, %q]
  cow: [%q]
  exec: [%q]
`, s.ws, outer, s.ws+"/out", outer+"/deep/cow", s.ws+"/tools"))
	out := must(t, s.inside(t, p, fmt.Sprintf(`
import os, subprocess
open("out/new", "w"); open("kept", "w"); open(%[1]q + "/new", "w"); open(%[1]q + "/deep/cow/kept", "w")
try: os.rename(%[1]q + "/deep", %[1]q + "/moved"); print("moved")
except OSError as e: print("errno", e.errno)
try: os.rename(%[1]q + "/deep/cow", %[1]q + "/cow"); print("moved")
except OSError as e: print("errno", e.errno)
print(subprocess.run(["tools/run"], capture_output=True, text=True).stdout.strip())
open("tools/written", "w").write("#!/bin/sh\necho own\n"); os.chmod("tools/written", 0o755)
print(subprocess.run(["tools/written"], capture_output=True, text=True).stdout.strip())
try: subprocess.run(["dir/inner"]); print("executed")
except OSError as e: print("errno", e.errno)
`, outer)), 0)
	if want := "errno 16\nerrno 18\nran\nown\nerrno 13\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	for path, want := range map[string]bool{
		filepath.Join(s.ws, "out/new"): true, filepath.Join(outer, "new"): true,
		filepath.Join(s.ws, "kept"): false, filepath.Join(outer, "deep/cow/kept"): false, filepath.Join(s.ws, "tools/written"): false,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%q on the host: got %v, want %v", path, err == nil, want)
		}
	}
}

// TestHostChanges: an overlay must not change underneath, and that is said.
func TestHostChanges(t *testing.T) {
	s := newScene(t)
	p := s.policy(t, "changed", "cow", "")
	cmd := s.Bare(s.ws, s.Bin, "--policy", p, "--", "python3", "-c", `print("up", flush=True); input(); open("own", "w")`)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, out := pipes(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	s.Write(t, filepath.Join(s.ws, "file"), "changed outside\n")
	fmt.Fprintln(in)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if !strings.Contains(errs.String(), `"`+filepath.Join(s.ws, "file")+`" was changed outside`) {
		t.Errorf("got %q, want a warning", errs.String())
	}
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.Writer, io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}

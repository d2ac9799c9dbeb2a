package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// guardTools are the two programs the tests of the creation guard run: the
// harness puts a command under the guard alone, the probe makes one raw call.
type guardTools struct{ harness, probe string }

var buildGuardTools = sync.OnceValues(func() (guardTools, error) {
	dir, err := os.MkdirTemp("", "guard-tools")
	if err != nil {
		return guardTools{}, err
	}
	t := guardTools{filepath.Join(dir, "harness"), filepath.Join(dir, "probe")}
	sources, err := filepath.Glob("guard*.c")
	if err != nil {
		return t, err
	}
	harness := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", t.harness, "guard_testdata/harness.c"}, sources...)
	for _, args := range [][]string{harness, {"-O2", "-o", t.probe, "guard_testdata/probe.c", "-lpthread"}} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return t, errors.New(string(out))
		}
	}
	return t, nil
})

// run executes a shell script in dir and gives its output and whether it
// succeeded. $PROBE is the probe. Names are protected in dir; none: no guard.
func (g guardTools) run(t *testing.T, dir, script string, protected ...string) (string, bool) {
	t.Helper()
	return g.command(t, dir, []string{"bash", "-c", script}, g.flags(dir, protected)...)
}

func (g guardTools) flags(dir string, protected []string) []string {
	if len(protected) == 0 {
		return []string{"-n"}
	}
	var flags []string
	for _, name := range protected {
		flags = append(flags, "-p", filepath.Join(dir, filepath.Dir(name)), filepath.Base(name))
	}
	return flags
}

func (g guardTools) command(t *testing.T, dir string, argv []string, flags ...string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.harness, append(append(flags, "--"), argv...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PROBE="+g.probe, "HOME="+dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%q did not end: %s", argv, out)
	}
	if code := cmd.ProcessState.ExitCode(); code == 125 {
		t.Fatalf("the guard did not start: %s", out)
	}
	return string(out), err == nil
}

func requireGuardTools(t *testing.T) guardTools {
	t.Helper()
	tools, err := buildGuardTools()
	if err != nil {
		t.Fatalf("compile the harness: %v", err)
	}
	return tools
}

// guardDir is a workspace with what the attacks start from.
func guardDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"up": "sub/deep/../..", "sub/here": dir, "dangling": ".envrc", "chain": "sub/here/dangling"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// Every call that can create a name, and every spelling of the path: it works
// without the guard, and fails with EROFS and without a trace with it.
func TestGuardRefusesEveryCall(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]string{
		"open":                 "$PROBE open .envrc",
		"creat":                "$PROBE creat .envrc",
		"openat":               "$PROBE openat . .envrc 1",
		"exclusive":            "$PROBE openat . .envrc 0x81",
		"read-only":            "$PROBE openat . .envrc 0",
		"no follow":            "$PROBE openat . .envrc 0x20001",
		"directory descriptor": "cd /; $PROBE openat $OLDPWD .envrc 1",
		"path descriptor":      "cd /; $PROBE openat-opath $OLDPWD .envrc",
		"absolute":             "$PROBE open $PWD/.envrc",
		"double slash":         "$PROBE open $PWD//.envrc",
		"dot":                  "$PROBE open ./././.envrc",
		"dot dot":              "cd sub/deep; $PROBE open ../../.envrc",
		"symlinked parent":     "$PROBE open up/.envrc",
		"absolute symlink":     "cd sub; $PROBE open here/up/.envrc",
		"dangling symlink":     "$PROBE open dangling",
		"chain of symlinks":    "$PROBE open chain",
		"proc self cwd":        "$PROBE open /proc/self/cwd/.envrc",
		"proc thread-self cwd": "$PROBE open /proc/thread-self/cwd/.envrc",
		"proc self root":       "$PROBE open /proc/self/root/$PWD/.envrc",
		"proc self fd":         "exec 7<.; cd /; $PROBE open /proc/self/fd/7/.envrc",
		"dev fd":               "exec 7<.; cd /; $PROBE open /dev/fd/7/.envrc",
		"mkdir":                "$PROBE mkdir .envrc",
		"mkdir trailing slash": "$PROBE mkdir .envrc//",
		"mkdirat":              "cd /; $PROBE mkdirat $OLDPWD .envrc",
		"mknod":                "$PROBE mknod .envrc",
		"mknodat fifo":         "cd sub; $PROBE fifo . ../.envrc",
		"symlink":              "$PROBE symlink file .envrc",
		"symlinkat":            "cd /; $PROBE symlinkat file $OLDPWD .envrc",
		"link":                 "$PROBE link file .envrc",
		"linkat":               "cd /; $PROBE linkat $OLDPWD file $OLDPWD .envrc",
		"rename":               "$PROBE rename file .envrc",
		"rename directory":     "$PROBE rename sub .envrc",
		"renameat":             "cd /; $PROBE renameat $OLDPWD file $OLDPWD up/.envrc",
		"renameat2":            "$PROBE renameat2 . file . .envrc 1",
		"nameless file":        "$PROBE tmpfile-link . .envrc",
		"bind":                 "$PROBE bind .envrc",
		"bind absolute":        "$PROBE bind $PWD/.envrc",
		"bind dot dot":         "cd sub; $PROBE bind ../.envrc",
		"bind through proc":    "$PROBE bind /proc/self/cwd/.envrc",
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			bare, inside := guardDir(t), guardDir(t)
			if out, _ := tools.run(t, bare, script); out != "ok\n" || !exists(t, filepath.Join(bare, ".envrc")) {
				t.Fatalf("without the guard: got %q, want ok and a file", out)
			}
			if out, _ := tools.run(t, inside, script, ".envrc"); out != "EROFS\n" {
				t.Errorf("got %q, want EROFS", out)
			}
			if exists(t, filepath.Join(inside, ".envrc")) {
				t.Error("the protected name exists")
			}
		})
	}
}

// A protected name that exists has a cover, until somebody outside replaces the
// entry: opening it for writing fails with EROFS all the same, by whatever path,
// and everything else is opened as ever.
func TestGuardRefusesWriting(t *testing.T) {
	tools := requireGuardTools(t)
	python := func(path, flags string) string {
		return fmt.Sprintf(`python3 -c 'import os; f = os.open("%s", %s); os.write(f, b"evil") if (%s) & 3 else 0'`, path, flags, flags)
	}
	cases := map[string]string{
		"write":            python(".envrc", "os.O_WRONLY"),
		"both":             python(".envrc", "os.O_RDWR"),
		"append":           python(".envrc", "os.O_WRONLY | os.O_APPEND"),
		"truncate":         python(".envrc", "os.O_WRONLY | os.O_TRUNC"),
		"truncate, read":   python(".envrc", "os.O_TRUNC"),
		"access mode 3":    `python3 -c 'import os; os.open(".envrc", 3 | os.O_TRUNC)'`,
		"create":           python(".envrc", "os.O_WRONLY | os.O_CREAT"),
		"no follow":        python(".envrc", "os.O_WRONLY | os.O_NOFOLLOW"),
		"odd O_EXCL":       python(".envrc", "os.O_WRONLY | os.O_EXCL"),
		"dot dot":          "cd sub/deep; " + python("../../.envrc", "os.O_WRONLY"),
		"symlinked parent": python("up/.envrc", "os.O_WRONLY"),
		"symlink":          python("dangling", "os.O_WRONLY"),
		"chain":            python("chain", "os.O_WRONLY"),
		"proc self cwd":    python("/proc/self/cwd/.envrc", "os.O_WRONLY"),
		"reopened":         `exec 7<.envrc; ` + python("/proc/self/fd/7", "os.O_WRONLY"),
		"dd":               "echo evil | dd of=.envrc conv=notrunc 2>/dev/null",
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			for _, guarded := range []bool{false, true} {
				dir := guardDir(t)
				if err := os.WriteFile(filepath.Join(dir, ".envrc"), []byte("text"), 0o644); err != nil {
					t.Fatal(err)
				}
				var names []string
				if guarded {
					names = []string{".envrc"}
				}
				out, ok := tools.run(t, dir, script, names...)
				b, err := os.ReadFile(filepath.Join(dir, ".envrc"))
				if err != nil {
					t.Fatal(err)
				}
				switch changed := string(b) != "text"; {
				case !guarded && (!ok || !changed):
					t.Fatalf("without the guard: got %q and %q, want a change", out, b)
				case guarded && (ok || changed):
					t.Errorf("got %q and %q, want a refusal", out, b)
				}
			}
		})
	}
}

// Opening what exists goes on to work: with the flags, the position and the
// kinds of files that programs use.
func TestGuardOpensWhatExists(t *testing.T) {
	tools := requireGuardTools(t)
	for name, script := range map[string]string{
		"read protected": `test "$(cat .envrc)" = text`,
		"write":          `python3 -c 'import os; f = os.open("file", os.O_WRONLY); os.write(f, b"new"); os.close(f)' && test "$(cat file)" = new`,
		"both":           `python3 -c 'import os; f = os.open("file", os.O_RDWR | os.O_EXCL); os.lseek(f, 1, 0); assert os.read(f, 1) == b"\n"'`,
		"truncate":       `python3 -c 'import os; os.open("file", os.O_RDONLY | os.O_TRUNC)' && test ! -s file`,
		"through a link": `ln -s file l && python3 -c 'import os; os.write(os.open("l", os.O_WRONLY), b"new")' && grep -q new file`,
		"nameless":       `python3 -c 'import os; f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640); assert os.fstat(f).st_mode & 0o777 == 0o640'`,
		"absent":         `python3 -c 'import errno, os; os.open("absent", os.O_WRONLY)' 2>&1 | grep -q "No such file"`,
		"a directory":    `python3 -c 'import os; os.open("sub", os.O_RDWR)' 2>&1 | grep -q "Is a directory"`,
		"no follow":      `ln -s file l && python3 -c 'import os; os.open("l", os.O_WRONLY | os.O_NOFOLLOW)' 2>&1 | grep -q "symbolic links"`,
		"devices":        `python3 -c 'import os; [os.open(p, os.O_RDWR) for p in ("/dev/null", "/dev/zero", "/dev/full")]; os.open("/dev/null", os.O_WRONLY)'`,
		"a terminal":     `python3 -c 'import pty, os; m, s = pty.openpty(); os.write(os.open(os.ttyname(s), os.O_RDWR | os.O_NOCTTY), b"x"); assert os.read(m, 1) == b"x"'`,
		"a pipe":         `mkfifo p && (cat p >got & python3 -c 'import os; os.write(os.open("p", os.O_WRONLY), b"x")'; wait) && test "$(cat got)" = x`,
		"own memory":     `python3 -c 'open("/proc/self/mem", "r+b", buffering=0); open("/proc/self/comm", "r+").write("x")'`,
		"an old pipe":    `python3 -c 'import os; r, w = os.pipe(); os.write(os.open("/proc/self/fd/%d" % w, os.O_WRONLY), b"x"); assert os.read(r, 1) == b"x"'`,
		"read-only file": `chmod 444 file; test "$(id -u)" = 0 || ! python3 -c 'import os; os.open("file", os.O_WRONLY)' 2>/dev/null`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := guardDir(t)
			if err := os.WriteFile(filepath.Join(dir, ".envrc"), []byte("text"), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, ok := tools.run(t, dir, script, ".envrc"); !ok {
				t.Errorf("got %q, want it to work", out)
			}
		})
	}
}

// What programs do to get a name into the workspace.
func TestGuardRefusesTools(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]string{
		"python":         `python3 -c 'import os; os.open(".envrc", os.O_CREAT|os.O_WRONLY)'`,
		"python pathlib": `python3 -c 'import pathlib; pathlib.Path(".vscode/tasks").mkdir(parents=True)'`,
		"bash":           `echo x > .envrc`,
		"bash append":    `echo x >> up/.envrc`,
		"mkdir -p":       `mkdir -p .vscode/a/b`,
		"mv directory":   `mkdir -p made && echo x > made/tasks.json && mv -T made .vscode`,
		"exchange":       `mkdir d && python3 -c 'import os; os.rename("d", ".vscode")'`,
		"cp -a":          `mkdir -p from/.vscode && echo x > from/.vscode/t && cp -a from/. .`,
		"tar":            `mkdir -p from && echo x > from/.envrc && tar -C from -cf t.tar .envrc && tar -xf t.tar`,
		"ln":             `ln file .envrc`,
		"ln -s":          `ln -s file .envrc`,
		"install":        `install -m 644 file .envrc`,
		"sed -i":         `cp file f2 && sed -i s/x/y/ f2 && mv f2 .envrc`,
		"git checkout":   `git init -q from && cd from && echo x > .envrc && git add . && git -c user.name=a -c user.email=a@example.org commit -qm x && cd .. && git --git-dir=from/.git --work-tree=. checkout -f HEAD -- .`,
		"hook":           `mkdir -p .git && mkdir .git/hooks && echo x > .git/hooks/post-checkout`,
		"settings":       `mkdir -p .claude && echo x > .claude/settings.json`,
	}
	protected := []string{".envrc", ".vscode", ".git/hooks", ".claude/settings.json"}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			for _, guarded := range []bool{false, true} {
				dir := guardDir(t)
				if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
					t.Fatal(err)
				}
				var names []string
				if guarded {
					names = protected
				}
				out, ok := tools.run(t, dir, script, names...)
				if ok == guarded {
					t.Errorf("guard %v: got success %v, want %v: %s", guarded, ok, !guarded, out)
				}
				made := false
				for _, p := range protected {
					made = made || exists(t, filepath.Join(dir, p))
				}
				if made == guarded {
					t.Errorf("guard %v: got a protected name %v, want %v", guarded, made, !guarded)
				}
			}
		})
	}
}

// A thread changes what the path means while another uses it: the bytes of the
// name, the directory it starts from, a symbolic link on the way.
func TestGuardRaces(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]struct {
		script        string
		bare, guarded string
	}{
		"name":      {"$PROBE race .enva .envrc", "20000", "100000"},
		"directory": {"$PROBE race-bind .envrc", "1000", "10000"},
		"symlink":   {"$PROBE race-link .envrc", "1000", "10000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if out, _ := tools.run(t, guardDir(t), c.script+" "+c.bare); strings.HasPrefix(out, "0 of") || !strings.HasSuffix(out, "ok\n") {
				t.Fatalf("without the guard: got %q, want the name created", out)
			}
			out, _ := tools.run(t, guardDir(t), c.script+" "+c.guarded, ".envrc")
			if want := "0 of " + c.guarded + " ok\n"; out != want {
				t.Errorf("got %q, want %q", out, want)
			}
		})
	}
}

// Calls that would pass the guard by are refused, errors stay the kernel's own.
func TestGuardErrors(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]struct{ script, want string }{
		"openat2":            {"$PROBE openat2 new", "ENOSYS"},
		"io_uring":           {"$PROBE io_uring_setup", "ENOSYS"},
		"bad pointer":        {"$PROBE bad-pointer", "EFAULT"},
		"bad descriptor":     {"$PROBE bad-fd", "EBADF"},
		"long path":          {"$PROBE long-path", "ENAMETOOLONG"},
		"long name":          {"$PROBE mkdir $(printf 'a%.0s' {1..256})", "ENAMETOOLONG"},
		"empty path":         {"$PROBE mkdir ''", "ENOENT"},
		"missing parent":     {"$PROBE mkdir no/thing", "ENOENT"},
		"parent is a file":   {"$PROBE mkdir file/thing", "ENOTDIR"},
		"descriptor of file": {"$PROBE openat-opath file thing", "ENOTDIR"},
		"exists":             {"$PROBE mkdir sub", "EEXIST"},
		"root":               {"$PROBE mkdir /", "EEXIST"},
		"dot":                {"$PROBE mkdir .", "EEXIST"},
		"open a directory":   {"$PROBE open sub", "EISDIR"},
		"open trailing":      {"$PROBE open new/", "EISDIR"},
		"symlink loop":       {"ln -s loop loop; $PROBE open loop", "ELOOP"},
		"no follow":          {"ln -s new l; $PROBE openat . l 0x20001", "ELOOP"},
		"exclusive link":     {"ln -s new l; $PROBE openat . l 0x81", "EEXIST"},
		"create in proc":     {"$PROBE mkdir /proc/self/x", "ENOENT"},
		"bind twice":         {"$PROBE bind s >/dev/null; $PROBE bind s", "EADDRINUSE"},
		"other case":         {"$PROBE mkdir .Envrc", "ok"},
		"longer name":        {"$PROBE mkdir .envrc2", "ok"},
		"shorter name":       {"$PROBE mkdir .env", "ok"},
		"other directory":    {"$PROBE mkdir sub/.envrc", "ok"},
		"exchange":           {"$PROBE renameat2 . file . sub 2", "ok"},
		"tmpfile by fd":      {"$PROBE tmpfile-link . new", "ok"},
		"bind":               {"$PROBE bind $PWD/s", "ok"},
		"bind relative":      {"$PROBE bind sub/../s", "ok"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if out, _ := tools.run(t, guardDir(t), c.script, ".envrc"); out != c.want+"\n" {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}

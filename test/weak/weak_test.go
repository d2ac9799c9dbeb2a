// Package weak tests the tier without namespaces on the built binary. User
// namespaces are really refused: by their limit, and by a filter like that of a
// container engine.
package weak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) {
	code := wraptest.Main(m)
	_ = os.RemoveAll(tools())
	os.Exit(code)
}

const limit = 30 * time.Second

// base is a policy that consents; format it with what else it says.
const base = `version: 1
name: weak
extends: []
require: {may_degrade: [namespaces, capture]}
workspace: {path: ., access: write, exec: true}
env: {allow: [PATH]}
`

// files is what a shell needs, and a home.
const files = `filesystem:
  exec: [/usr, /bin, /sbin, /lib, "/lib64?"]
  read: ["/etc/ld.so.cache?", "/etc/alternatives?", "/etc/ssl/certs?"]
  home: private
`

// bench is one account with a workspace on a machine that refuses namespaces.
type bench struct {
	wraptest.World
	work   string
	refuse string
}

func newBench(t *testing.T) bench {
	b := bench{World: wraptest.New(t)}
	b.work = b.Dir(t, "work")
	b.refuse = filepath.Join(b.Home, "limit.sh")
	b.Write(t, b.refuse, "#!/bin/sh\necho 0 > /proc/sys/user/max_user_namespaces || exit 99\nexec \"$@\"\n")
	if err := os.Chmod(b.refuse, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// limited is a command below a user namespace that allows none inside it.
func (b bench) limited(argv ...string) *exec.Cmd {
	return b.Bare(b.work, append([]string{"unshare", "-U", "--map-current-user", "--keep-caps", b.refuse}, argv...)...)
}

// filtered is a command below a filter that refuses namespaces.
func (b bench) filtered(t *testing.T, argv ...string) *exec.Cmd {
	return b.Bare(b.work, append([]string{tool(t, "refuse")}, argv...)...)
}

// wrap is a command in the weaker tier.
func (b bench) wrap(policy string, argv ...string) *exec.Cmd {
	return b.limited(append([]string{b.Bin, "--policy", policy, "--"}, argv...)...)
}

func tools() string { return filepath.Join(os.TempDir(), fmt.Sprintf("weaktest-%d", os.Getpid())) }

// tool builds one of the programs beside this test, once.
func tool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(tools(), name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/hermes-wrap/hermes-wrap/test/weak/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %q: %v\n%s", name, err, out)
	}
	for _, p := range []string{tools(), path} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestControl shows that the machine has what these tests take away.
func TestControl(t *testing.T) {
	b := newBench(t)
	got := wraptest.Run(t, b.Bare(b.work, "unshare", "-U", "true"), limit)
	harness.Require(t, got.Exit == 0, "user namespaces")
	for name, cmd := range map[string]*exec.Cmd{
		"limit":  b.limited("unshare", "-U", "true"),
		"filter": b.filtered(t, b.Find("unshare"), "-U", "true"),
	} {
		if got := wraptest.Run(t, cmd, limit); got.Exit != 1 {
			t.Errorf("%s: got exit %d, want unshare to fail (1): %s", name, got.Exit, got.Err)
		}
	}
}

func TestNoConsent(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "strict", strings.Replace(base, "namespaces, ", "", 1)+files)
	argv := []string{b.Bin, "--policy", policy, "--", "touch", "ran"}
	for name, cmd := range map[string]*exec.Cmd{"limit": b.limited(argv...), "filter": b.filtered(t, argv...)} {
		t.Run(name, func(t *testing.T) {
			got := wraptest.Run(t, cmd, limit)
			if got.Exit != 125 {
				t.Errorf("got exit %d, want 125", got.Exit)
			}
			for _, want := range []string{"user namespace", "needed clone(2)", "found clone: "} {
				if !strings.Contains(got.Err, want) {
					t.Errorf("got %q, want %q in it", got.Err, want)
				}
			}
			if n := strings.Count(got.Err, "hermes-wrap: hint: "); n != 1 {
				t.Errorf("got %d hints, want 1: %s", n, got.Err)
			}
			if strings.Contains(got.Err, "may_degrade") {
				t.Errorf("got %q, want no advice to weaken the sandbox", got.Err)
			}
			if _, err := os.Stat(filepath.Join(b.work, "ran")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got %v, want the command not to have run", err)
			}
		})
	}
}

func TestFirstLine(t *testing.T) {
	b := newBench(t)
	record := filepath.Join(b.Home, "audit.jsonl")
	policy := b.PolicyFile(t, "consent", base+files+
		"  protect: [\"${WORKSPACE}/Makefile\", \"${WORKSPACE}/later\"]\naudit: {file: \""+record+"\"}\n")
	b.Write(t, filepath.Join(b.work, "Makefile"), "all:\n")
	argv := []string{b.Bin, "--quiet", "--policy", policy, "--", "sh", "-c", "exit 7"}
	for name, cmd := range map[string]*exec.Cmd{"limit": b.limited(argv...), "filter": b.filtered(t, argv...)} {
		t.Run(name, func(t *testing.T) {
			got := wraptest.Run(t, cmd, limit)
			if got.Exit != 7 {
				t.Errorf("got exit %d, want the command's 7: %s", got.Exit, got.Err)
			}
			first, _, _ := strings.Cut(got.Err, "\n")
			for _, want := range []string{
				"hermes-wrap: warning: weaker tier", "found clone: ", "2 protected entries are NOT protected",
				"filesystem.protect[0] " + b.work + "/Makefile", "Processes: ", "Network: none at all",
			} {
				if !strings.Contains(first, want) {
					t.Errorf("first line: got %q, want %q in it", first, want)
				}
			}
		})
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	header := regexp.MustCompile(`"kind":"launch".*"degraded":\["namespaces"\]`)
	if !header.Match(text) || !strings.Contains(string(text), "NOT protected") {
		t.Errorf("audit: got %s, want a header with the degraded layer and what is not held", text)
	}
}

func TestHiddenInsideGranted(t *testing.T) {
	b := newBench(t)
	b.Write(t, filepath.Join(b.work, "secret"), "s3cret")
	for name, path := range map[string]string{"exists": "secret", "comes later": "later"} {
		t.Run(name, func(t *testing.T) {
			policy := b.PolicyFile(t, "hide-"+path, base+files+"  hide: [\"${WORKSPACE}/"+path+"?\"]\n")
			got := wraptest.Run(t, b.wrap(policy, "touch", "ran"), limit)
			if got.Exit != 125 || !strings.Contains(got.Err, "filesystem.hide[0]") || !strings.Contains(got.Err, "workspace") {
				t.Errorf("got %d %q, want 125 and both rules", got.Exit, got.Err)
			}
			if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil {
				t.Error("got a run, want none")
			}
		})
	}
}

func TestExplainTellsTheTruth(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "explain", base+files+"  protect: [\"${WORKSPACE}/Makefile\"]\nassert:\n  - {deny: {write: \"${WORKSPACE}/Makefile\"}}\n")
	b.Write(t, filepath.Join(b.work, "Makefile"), "all:\n")
	got := wraptest.Run(t, b.limited(b.Bin, "explain", "--policy", policy), limit)
	for _, want := range []string{
		`(?m)^  namespaces +MISSING +NOT HELD`, `(?m)^  protect +` + b.work + `/Makefile +NOT HELD`,
		`(?m)^  write\+exec +` + b.work + ` +Landlock$`, `(?m)^  home_size|^  landlock +enforced`,
	} {
		if !regexp.MustCompile(want).MatchString(got.Out) {
			t.Errorf("explain: got\n%s\nwant %s", got.Out, want)
		}
	}
	if strings.Contains(got.Out, "mount (") || strings.Contains(got.Out, "namespace has only lo") {
		t.Errorf("explain: got\n%s\nwant no mount and no network namespace", got.Out)
	}
	got = wraptest.Run(t, b.limited(b.Bin, "why", "--policy", policy, "write", "Makefile"), limit)
	if got.Exit != 0 || !strings.Contains(got.Out, "NOT HELD") {
		t.Errorf("why: got %d %q, want that it is allowed and why", got.Exit, got.Out)
	}
	// What the plan says is what happens.
	if got := wraptest.Run(t, b.wrap(policy, "sh", "-c", "echo x >> Makefile"), limit); got.Exit != 0 {
		t.Errorf("run: got %d %s, want the write to pass as explained", got.Exit, got.Err)
	}
}

func TestPrivateHome(t *testing.T) {
	b := newBench(t)
	b.Write(t, filepath.Join(b.Home, "host-file"), "x")
	policy := b.PolicyFile(t, "home", base+files)
	got := wraptest.Run(t, b.wrap(policy, "sh", "-c",
		`set -e; cd; ls -A; echo y > f; mkdir d; echo z > d/f; chmod 0 d; echo t > "$TMPDIR/f"; pwd; stat -c %a .`), limit)
	lines := strings.Fields(got.Out)
	if got.Exit != 0 || len(lines) != 2 || lines[1] != "700" || !strings.HasPrefix(lines[0], b.RunBase()) {
		t.Errorf("got %d %q %s, want an empty home of mode 700 below %q", got.Exit, got.Out, got.Err, b.RunBase())
	}
	left, err := os.ReadDir(b.RunBase())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: got %v, %v, want nothing", left, err)
	}
}

func TestExitCodes(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "exit", base+files)
	for _, c := range []struct {
		name string
		argv []string
		exit int
	}{
		{"zero", []string{"true"}, 0},
		{"own code", []string{"sh", "-c", "exit 42"}, 42},
		{"signal", []string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		{"not found", []string{"no-such-command"}, 127},
		{"not executable", []string{"/etc/passwd"}, 126},
	} {
		if got := wraptest.Run(t, b.wrap(policy, c.argv...), limit); got.Exit != c.exit {
			t.Errorf("%s: got exit %d, want %d: %s", c.name, got.Exit, c.exit, got.Err)
		}
	}
}

// alive tells whether some process has a word in its command line.
func alive(t *testing.T, word string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(strings.ReplaceAll(string(text), "\x00", " "), word) {
			return true
		}
	}
	return false
}

// eventually waits for a condition.
func eventually(what func() bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

// unique gives a number of seconds that no other sleep has.
func unique(n int) string { return strconv.Itoa(100_000_000 + os.Getpid()*10 + n) }

func TestDaemonsEndWithTheCommand(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "daemon", base+files)
	word := "sleep " + unique(1)
	script := "setsid sh -c '" + word + " & " + word + " & wait' >/dev/null 2>&1 & while ! test -e up; do sleep 0.01; test -n \"$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '" + word + "')\" && touch up; done; exit 3"
	control := b.Bare(b.work, "sh", "-c", script)
	if got := wraptest.Run(t, control, limit); got.Exit != 3 || !alive(t, word) {
		t.Fatalf("control: got %d, want a daemon that outlives its parent", got.Exit)
	}
	_ = exec.Command("sh", "-c", "for p in $(grep -l "+unique(1)+" /proc/[0-9]*/cmdline 2>/dev/null); do kill -9 $(basename $(dirname $p)); done").Run()
	if !eventually(func() bool { return !alive(t, word) }) {
		t.Fatal("control: the daemon does not end")
	}
	_ = os.Remove(filepath.Join(b.work, "up"))
	if got := wraptest.Run(t, b.wrap(policy, "sh", "-c", script), limit); got.Exit != 3 {
		t.Errorf("got exit %d, want 3: %s", got.Exit, got.Err)
	}
	if alive(t, word) {
		t.Error("got a daemon alive after the run, want none")
	}
}

func TestKillOfTheLauncherEndsTheTree(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "kill", base+files)
	for i, whole := range []bool{false, true} {
		word := "sleep " + unique(2+i)
		cmd := b.wrap(policy, "sh", "-c", "setsid "+word+" & touch up-"+word[6:]+"; "+word)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		up := filepath.Join(b.work, "up-"+word[6:])
		if !eventually(func() bool { _, err := os.Stat(up); return err == nil }) {
			t.Fatal("the tree does not start")
		}
		// With its whole group, as a supervisor does; the keeper has its own.
		pid := cmd.Process.Pid
		if whole {
			pid = -pid
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if !eventually(func() bool { return !alive(t, word) }) {
			t.Errorf("whole group %v: got the tree alive after the launcher was killed, want it ended", whole)
		}
		if !eventually(func() bool { left, _ := os.ReadDir(b.RunBase()); return len(left) == 0 }) {
			t.Errorf("whole group %v: got the run's directory left behind", whole)
		}
	}
}

// TestKillOfTheKeeperEndsTheTree: what the keeper leaves comes to the launcher.
func TestKillOfTheKeeperEndsTheTree(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "keeper", base+files)
	word := "sleep " + unique(5)
	cmd := b.wrap(policy, "sh", "-c", "setsid "+word+" & touch up; "+word)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { _, err := os.Stat(filepath.Join(b.work, "up")); return err == nil }) {
		t.Fatal("the tree does not start")
	}
	keeper := 0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if line, _ := os.ReadFile("/proc/" + child + "/cmdline"); strings.Contains(string(line), "keeper") {
				keeper, _ = strconv.Atoi(child)
			}
		}
	}
	if keeper == 0 {
		t.Fatal("found no keeper")
	}
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := wraptest.Exit(t, cmd.Wait()); got != 125 {
		t.Errorf("got exit %d, want 125", got)
	}
	if alive(t, word) {
		t.Error("got the tree alive after the keeper was killed, want it ended")
	}
}

func TestTimeLimit(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "time", base+files+"limits: {time: 1s}\n")
	word := "sleep " + unique(6)
	got := wraptest.Run(t, b.wrap(policy, "sh", "-c", "setsid "+word+" & "+word), limit)
	if got.Exit != 124 || alive(t, word) {
		t.Errorf("got exit %d %s, alive %v, want 124 and nothing left", got.Exit, got.Err, alive(t, word))
	}
}

func TestTerminal(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "terminal", base+files)
	c := harness.Command{Dir: b.work, Limit: limit, Argv: []string{
		"unshare", "-U", "--map-current-user", "--keep-caps", b.refuse, b.Bin, "--policy", policy, "--",
		"sh", "-c", "test -t 0 && test -t 1 && echo terminal; trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done"}}
	got, err := b.Dialogue(c, harness.Size{Rows: 24, Cols: 80}, []harness.Action{
		{Expect: regexp.MustCompile("terminal[\r\n]+ready")}, {Send: "\x03"}, {Expect: regexp.MustCompile("interrupted")},
	})
	if err != nil || got.Exit != 9 {
		t.Errorf("got %d, %v %s, want the trap's 9", got.Exit, err, got.Stdout)
	}
}

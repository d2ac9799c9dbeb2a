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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
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
	events, err := audit.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(e audit.Event) bool {
		return e.Kind == audit.KindLaunch && slices.Equal(e.Degraded, []string{"namespaces"}) && strings.Contains(e.Reason, "NOT protected")
	}) {
		t.Errorf("audit: got %+v, want a header with the degraded layer and what is not held", events)
	}
}

// TestHiddenInsideGranted: a secret that is there stops the launch; one that is not
// cannot be given away, and that it would show is said.
func TestHiddenInsideGranted(t *testing.T) {
	b := newBench(t)
	b.Write(t, filepath.Join(b.work, "secret"), "s3cret")
	policy := b.PolicyFile(t, "hide", base+files+"  hide: [\"${WORKSPACE}/secret?\"]\n")
	got := wraptest.Run(t, b.wrap(policy, "touch", "ran"), limit)
	if got.Exit != 125 || !strings.Contains(got.Err, "filesystem.hide[0]") || !strings.Contains(got.Err, "workspace") || !strings.Contains(got.Err, "move it out of") {
		t.Errorf("got %d %q, want 125, both rules and the remedy", got.Exit, got.Err)
	}
	if _, err := os.Stat(filepath.Join(b.work, "ran")); err == nil {
		t.Error("got a run, want none")
	}
	policy = b.PolicyFile(t, "hide-later", base+files+"  hide: [\"${WORKSPACE}/later?\"]\n")
	why := wraptest.Run(t, b.limited(b.Bin, "why", "--policy", policy, "read", filepath.Join(b.work, "later")), limit)
	if !strings.Contains(why.Out, "hidden, but NOT HELD") {
		t.Errorf("why: got %q and %q, want that nothing holds it", why.Out, why.Err)
	}
	got = wraptest.Run(t, b.wrap(policy, "sh", "-c", "echo x > later && cat later"), limit)
	first, _, _ := strings.Cut(got.Err, "\n")
	if got.Exit != 0 || !strings.Contains(first, "1 hidden names do not exist and are NOT hidden if they come (filesystem.hide[0] "+filepath.Join(b.work, "later")) {
		t.Errorf("got %d and the first line %q, want 0 and what is not hidden", got.Exit, first)
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

// TestGit: what exists on the host and cannot be read must not stop it.
func TestGit(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"git"})
	policy := b.PolicyFile(t, "git", base+files)
	got := wraptest.Run(t, b.wrap(policy, "sh", "-c",
		"set -e; git init -q .; git -c user.name=n -c user.email=e commit -q --allow-empty -m first; git log --format=%s"), limit)
	if got.Exit != 0 || got.Out != "first\n" {
		t.Errorf("got %d %q %s, want a commit", got.Exit, got.Out, got.Err)
	}
}

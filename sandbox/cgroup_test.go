package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// RequireGroups skips where this user cannot make groups with every controller.
func RequireGroups(t *testing.T) LimitFacts {
	t.Helper()
	f := ProbeLimits()
	for _, c := range limitControllers {
		if !f.Controllers[c] {
			if os.Getenv("HERMES_MUST_WORK") == "1" {
				t.Fatalf("needs the %s controller: %s", c, f.describe())
			}
			t.Skipf("needs the %s controller: %s", c, f.describe())
		}
	}
	return f
}

// startInGroup starts a shell that waits for a line, puts it in the group of
// the plan and lets it run script.
func startInGroup(t *testing.T, lp LimitPlan, id, script string) (string, cgroups.Manager) {
	t.Helper()
	m, err := manager.New(lp.Cgroup(id))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read go; "+script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy() })
	if err := m.Apply(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := m.Set(lp.Cgroup(id).Resources); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	cmd.Wait()
	return out.String(), m
}

func TestRootGroupHoldsLimits(t *testing.T) {
	f := RequireGroups(t)
	const bomb = `python3 -c 'x = b"1" * (200 << 20); print("survived")'; echo end`
	const forks = `for i in $(seq 60); do sleep 1 & done; echo started; wait`
	p := policy.Policy{Limits: policy.Limits{Memory: 64 << 20, Pids: 20, CPU: 1}}
	lp, err := PlanLimits(p, f)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct{ name, script, outside, inside string }{
		{"memory", bomb, "survived", "end"},
		{"pids", forks, "started", "ork"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			free, _ := startInGroup(t, LimitPlan{}, "free-"+c.name, c.script)
			if !strings.Contains(free, c.outside) {
				t.Fatalf("control: got %q, want %q", free, c.outside)
			}
			out, m := startInGroup(t, lp, "held-"+c.name, c.script)
			if strings.Contains(out, c.outside) || !strings.Contains(out, c.inside) {
				t.Errorf("got %q, want %q and no %q", out, c.inside, c.outside)
			}
			if n, err := lp.OOMKills("held-" + c.name); err != nil || (n > 0) != (c.name == "memory") {
				t.Errorf("out-of-memory kills: got %d, %v", n, err)
			}
			if err := m.Destroy(); err != nil {
				t.Error(err)
			}
		})
	}
	if left := ourGroups(t, f); len(left) > 0 {
		t.Errorf("got groups %v left behind, want none", left)
	}
}

// ourGroups lists the groups of this process.
func ourGroups(t *testing.T, f LimitFacts) []string {
	t.Helper()
	var all []string
	for _, dir := range append(ownV1Groups(f), f.Delegated) {
		g, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s%d-*", groupPrefix, os.Getpid())))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g...)
	}
	return all
}

func TestRootSweepRemovesOnlyTheDead(t *testing.T) {
	f := RequireGroups(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	dir := f.Delegated
	if f.Cgroup != LayoutV2 {
		var err error
		if dir, err = ownV1Group("pids"); err != nil {
			t.Fatal(err)
		}
	}
	orphan := filepath.Join(dir, fmt.Sprintf("%s%d-x", groupPrefix, dead.Process.Pid))
	// What another PID namespace has just made may have any number.
	fresh := filepath.Join(dir, fmt.Sprintf("%s%d-y", groupPrefix, dead.Process.Pid))
	live := filepath.Join(dir, fmt.Sprintf("%s%d-x", groupPrefix, os.Getpid()))
	foreign := filepath.Join(dir, groupPrefix+"of-somebody-else")
	for _, g := range []string{orphan, fresh, live, foreign} {
		if err := os.Mkdir(g, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(g)
	}
	old := time.Now().Add(-2 * sweepAge)
	for _, g := range []string{orphan, live, foreign} {
		if err := os.Chtimes(g, old, old); err != nil {
			t.Fatal(err)
		}
	}
	SweepCgroups(f)
	for g, want := range map[string]bool{orphan: false, fresh: true, live: true, foreign: true} {
		if got := isDir(g); got != want {
			t.Errorf("%s: got present %v, want %v", g, got, want)
		}
	}
}

package hostile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// jobRun is one run of the agent as job.py tells it.
type jobRun struct {
	Exit   int
	Checks []struct {
		Check  string
		Ok     bool
		Detail string
	}
	Answer, Errors string
}

// job is what job.py prints.
type job struct {
	Cases    map[string]struct{ Bare, Wrapped jobRun }
	Events   []audit.Event
	Requests []struct {
		Method, Path, Host string
		Authorised         bool
	}
	Commits []string
	Touched []string
}

// TestJob: the agent does its whole job under hermes-strict, and its exit codes
// come back.
func TestJob(t *testing.T) {
	j := runJob(t)
	for name, want := range map[string]int{"task": 0, "no_task": 2, "wrong_key": 2, "interrupted": 124} {
		t.Run("exit_"+name, func(t *testing.T) {
			c := j.Cases[name]
			if c.Bare.Exit != want || c.Wrapped.Exit != want {
				t.Errorf("got exit %d bare and %d wrapped, want %d\n%s\n%s", c.Bare.Exit, c.Wrapped.Exit, want, c.Bare.Errors, c.Wrapped.Errors)
			}
		})
	}
	task := j.Cases["task"]
	t.Run("checks", func(t *testing.T) {
		if len(task.Wrapped.Checks) == 0 || len(task.Wrapped.Checks) != len(task.Bare.Checks) {
			t.Fatalf("got %d checks wrapped and %d bare, want the same number", len(task.Wrapped.Checks), len(task.Bare.Checks))
		}
		for i, c := range task.Wrapped.Checks {
			if !task.Bare.Checks[i].Ok {
				t.Errorf("bare: %s: got %s, want ok", task.Bare.Checks[i].Check, task.Bare.Checks[i].Detail)
			}
			if !c.Ok {
				t.Errorf("wrapped: %s: got %s, want ok", c.Check, c.Detail)
			}
		}
	})
	t.Run("result", func(t *testing.T) {
		if task.Wrapped.Answer != task.Bare.Answer || task.Wrapped.Answer == "" {
			t.Errorf("got the answer %q, want %q", task.Wrapped.Answer, task.Bare.Answer)
		}
		if !slices.Contains(j.Commits, "record the result") {
			t.Errorf("got commits %q, want the result among them", j.Commits)
		}
		// Ghost files and changed canaries would show here; the bare runs
		// change none of them either.
		if len(j.Touched) > 0 {
			t.Errorf("got %q touched, want nothing touched", j.Touched)
		}
	})
	t.Run("network", func(t *testing.T) { network(t, j) })
}

// network: what reached the provider is what hermes-strict allows, by its rule.
func network(t *testing.T, j job) {
	for _, r := range j.Requests {
		if r.Host != "openrouter.ai" || r.Path != "/api/v1/models" && r.Path != "/api/v1/chat/completions" {
			t.Errorf("got %s %s%s at the provider, want only what the rule allows", r.Method, r.Host, r.Path)
		}
	}
	allowed, denied := 0, 0
	for _, e := range j.Events {
		switch {
		case e.Verdict == "allow" && e.Kind == "request":
			allowed++
			if e.Rule != "openrouter" || e.Pos == "" || e.Credential != "openrouter" {
				t.Errorf("got %+v, want the route \"openrouter\", its place and its credential", e)
			}
		case e.Verdict == "deny":
			denied++
		}
	}
	if allowed != len(j.Requests) {
		t.Errorf("got %d requests in the record, want the provider's %d", allowed, len(j.Requests))
	}
	if denied == 0 {
		t.Error("got no denial in the record, want those of the hosts that Hermes asks by itself")
	}
}

func runJob(t *testing.T) job {
	t.Helper()
	host, dir := stage(t)
	script := filepath.Join(dir, "job.py")
	host.Write(t, script, text(t, "testdata/job.py"))
	r, err := host.Run(harness.Command{
		Argv: []string{"/usr/bin/env", "python3", script, dir, os.Getenv("HERMES_WRAP_BIN")}, Dir: dir, Limit: limit,
	})
	if err != nil || r.Exit != 0 {
		t.Fatalf("run the job: got exit %d (%v), want 0\n%s", r.Exit, err, r.Stderr)
	}
	var j job
	if err := json.Unmarshal([]byte(r.Stdout), &j); err != nil {
		t.Fatalf("read %q: %v", r.Stdout, err)
	}
	return j
}

// Package hostile runs the stand-in agent of testdata/agent at its best and at
// its worst, under the unchanged profile hermes-strict: bare, where its job is
// done and every attack must succeed, and wrapped, where the same job is done
// and every attack must fail. The canaries on the host decide, not the agent.
package hostile

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

const (
	data  = "../../testdata"
	limit = 5 * time.Minute
)

// parts are the places in the agent that the attacks come from.
var parts = []string{"terminal", "code", "mcp", "plugin", "hook"}

// secrets are the contents of the canaries that an attack reads.
var secrets = []string{"canary-ssh-key", "canary-aws", "canary-state-env", "canary-state-auth", "canary-shared", "canary-environment", "canary-caller"}

// quiet are the checks that no attack bare makes false: what is only read, and
// what lies beside it.
var quiet = regexp.MustCompile(`^unchanged_(\.ssh/.*|\.aws/.*|launcher|interpreter|state_(SOUL\.md|plugins|skills|\.env|auth\.json))$`)

// result is one attack as the agent tells it.
type result struct {
	Part, Via, Attack, Outcome, Errno, Detail string
}

func (r result) name() string { return r.Via + "_" + r.Attack }

// check is one canary as the host sees it.
type check struct {
	Host   string
	Ok     bool
	Detail string
}

// trial is one run of the hostile mode.
type trial struct {
	results map[string][]result // by part
	checks  []check
	events  []audit.Event
	output  string
}

func TestHostile(t *testing.T) {
	host, dir := stage(t)
	bare := attempt(t, host, dir, "bare", nil)
	inside := attempt(t, host, dir, "inside", host.Wrapped("hermes-strict", "", nil))
	for _, part := range parts {
		t.Run(part, func(t *testing.T) { twins(t, bare.results[part], inside.results[part]) })
	}
	t.Run("host", func(t *testing.T) { seen(t, bare.checks, inside.checks) })
	t.Run("output", func(t *testing.T) {
		for _, secret := range secrets {
			if !strings.Contains(bare.output, secret) {
				t.Errorf("bare: got no %q in the output, want it there", secret)
			}
			if strings.Contains(inside.output, secret) {
				t.Errorf("inside: got %q in the output, want it nowhere", secret)
			}
		}
	})
	t.Run("record", func(t *testing.T) {
		for _, want := range []audit.Event{{Host: "169.254.169.254", Port: 80}, {Host: "unlisted.test", Port: 443}} {
			denied := func(e audit.Event) bool { return e.Verdict == audit.Deny && e.Host == want.Host && e.Port == want.Port }
			if !slices.ContainsFunc(inside.events, denied) {
				t.Errorf("got no denial of %s:%d in the audit record, want one", want.Host, want.Port)
			}
		}
		if i := slices.IndexFunc(inside.events, func(e audit.Event) bool { return e.Verdict == audit.Allow }); i >= 0 {
			t.Errorf("got %+v, want nothing allowed", inside.events[i])
		}
	})
}

// twins holds each attack inside against the same attack outside.
func twins(t *testing.T, bare, inside []result) {
	if len(bare) == 0 {
		t.Fatal("bare: got no attack, want some")
	}
	failed := map[string]result{}
	for _, r := range inside {
		failed[r.name()] = r
	}
	for _, r := range bare {
		t.Run(r.name(), func(t *testing.T) {
			harness.Require(t, r.Outcome == "succeeded", fmt.Sprintf("a machine on which this attack succeeds bare (%s)", r.Detail))
			got, ok := failed[r.name()]
			if !ok {
				t.Fatal("inside: got no such attack, want it to be tried")
			}
			if got.Outcome != "failed" {
				t.Errorf("inside: got %s (%s), want failed", got.Outcome, got.Detail)
			}
		})
	}
}

// seen holds what the host saw of both runs.
func seen(t *testing.T, bare, inside []check) {
	if len(bare) == 0 || len(bare) != len(inside) {
		t.Fatalf("got %d checks bare and %d inside, want the same number", len(bare), len(inside))
	}
	for i, c := range bare {
		if c.Ok && !quiet.MatchString(c.Host) {
			t.Errorf("bare: %s: got untouched, want a trace of the attack", c.Host)
		}
		if !inside[i].Ok {
			t.Errorf("inside: %s: got touched (%s), want untouched", inside[i].Host, inside[i].Detail)
		}
	}
}

// attempt runs the hostile mode, wrapped by the words in wrapper.
func attempt(t *testing.T, host harness.Host, dir, name string, wrapper []string) trial {
	t.Helper()
	out := host.Dir(t, name)
	// The shell stays above the agent: its descriptors and memory are a target.
	script := `"$@" --hostile all --canaries canaries.json >"$OUT/results" 2>"$OUT/errors"; exit $?`
	argv := []string{"/usr/bin/env", "python3", filepath.Join(dir, "agent", "canaries.py"), "run", "--checks", filepath.Join(out, "checks"), "--", "bash", "-c", script, "hostile"}
	r, err := host.Run(harness.Command{
		Argv: append(append(argv, wrapper...), "hermes"), Dir: out, Limit: limit,
		Env: []string{"OUT=" + out, "XDG_STATE_HOME=" + filepath.Join(out, "state")},
	})
	errors := text(t, filepath.Join(out, "errors"))
	if err != nil || r.Exit != 0 {
		t.Fatalf("%s: got exit %d (%v), want 0\n%s%s", name, r.Exit, err, r.Stderr, errors)
	}
	tr := trial{results: map[string][]result{}, output: text(t, filepath.Join(out, "results")) + errors}
	for _, r := range lines[result](t, filepath.Join(out, "results")) {
		tr.results[r.Part] = append(tr.results[r.Part], r)
	}
	tr.checks = lines[check](t, filepath.Join(out, "checks"))
	if len(wrapper) > 0 {
		if tr.events, err = audit.ReadFile(filepath.Join(out, "state", "hermes-wrap", "audit.jsonl")); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// stage puts the agent where the account can read it: the checkout may lie in a
// home directory that is closed to others.
func stage(t *testing.T) (harness.Host, string) {
	t.Helper()
	host := harness.NewHost(t)
	host.RequireWrapper(t)
	host.RequireCommands(t, []string{"python3", "node", "git", "bash", "openssl"})
	dir := host.Dir(t, "testdata")
	for _, name := range []string{"agent", "provider", "demo"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(data, name))); err != nil {
			t.Fatalf("copy the agent: %v", err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755) // #nosec: a copy of public files
	})
	if err != nil {
		t.Fatalf("open the copy to the account: %v", err)
	}
	return host, dir
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// lines reads a file with one JSON object a line.
func lines[T any](t *testing.T, path string) (out []T) {
	t.Helper()
	for line := range strings.Lines(text(t, path)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("read %q: %q: %v", path, line, err)
		}
		out = append(out, v)
	}
	return out
}

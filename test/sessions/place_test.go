// Package sessions tests what an operator does with runs, on the built binary:
// in the background, and from other processes.
package sessions

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

const limit = 60 * time.Second

const policyText = `version: 1
name: p
workspace: {path: ., access: write, exec: true}
filesystem: {protect: ["${WORKSPACE}/guarded"]}
env: {allow: [TERM, COLOUR, MY_TOKEN], set: {SET: by-policy}}
process: {stop_grace: 20s}
`

// place is one account with a workspace and a policy.
type place struct {
	wraptest.World
	work, policy string
}

func newPlace(t *testing.T) place {
	p := place{World: wraptest.New(t)}
	p.work = p.Dir(t, "work")
	p.policy = p.PolicyFile(t, "p", policyText)
	t.Cleanup(func() {
		if out, err := p.command("stop", "--now", "--all").CombinedOutput(); err != nil {
			t.Errorf("stop what is left: %v\n%s", err, out)
		}
	})
	return p
}

// command is a command of hermes-wrap.
func (p place) command(args ...string) *exec.Cmd {
	return p.Bare(p.work, append([]string{p.Bin}, args...)...)
}

// hw runs it and requires an exit code.
func (p place) hw(t *testing.T, code int, args ...string) wraptest.Ended {
	t.Helper()
	e := wraptest.Run(t, p.command(args...), limit)
	if e.Exit != code {
		t.Fatalf("%q: got exit %d, want %d\n%s%s", args, e.Exit, code, e.Out, e.Err)
	}
	return e
}

// background starts a run of a shell.
func (p place) background(t *testing.T, name, script string, flags ...string) {
	t.Helper()
	args := append([]string{"-q", "-p", p.policy, "--detach", "--name", name}, flags...)
	e := p.hw(t, 0, append(args, "--", "sh", "-c", script)...)
	if e.Out != name+"\n" {
		t.Fatalf("start: got %q, want the name %q", e.Out, name)
	}
}

// await polls until ok.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, limit)
		}
	}
}

// awaitLog waits until a run's log matches.
func (p place) awaitLog(t *testing.T, name, want string) string {
	t.Helper()
	re, out := regexp.MustCompile(want), ""
	await(t, "log of "+name+" with "+want, func() bool {
		out = wraptest.Run(t, p.command("logs", name), limit).Out
		return re.MatchString(out)
	})
	return out
}

// listed is a session as ps tells it.
type listed struct {
	Name, Status, Command, Policy, Workspace string
	Pid                                      int
	ExitCode                                 *int `json:"exit_code"`
	Now                                      struct{ Attached int }
}

func (p place) ps(t *testing.T, flags ...string) []listed {
	t.Helper()
	var all []listed
	e := p.hw(t, 0, append([]string{"ps", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(e.Out), &all); err != nil {
		t.Fatalf("ps: %v\n%s", err, e.Out)
	}
	return all
}

func (p place) find(t *testing.T, name string) listed {
	t.Helper()
	for _, s := range p.ps(t, "--all") {
		if s.Name == name {
			return s
		}
	}
	return listed{}
}

// dialogue runs a command of hermes-wrap at a terminal.
func (p place) dialogue(t *testing.T, args []string, actions ...harness.Action) harness.Result {
	t.Helper()
	c := harness.Command{Argv: append([]string{p.Bin}, args...), Dir: p.work, Env: []string{"XDG_RUNTIME_DIR=" + p.Runtime}, Limit: limit}
	r, err := p.Dialogue(c, harness.Size{Rows: 30, Cols: 100}, actions)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, r.Stdout)
	}
	return r
}

func expect(s string) harness.Action { return harness.Action{Expect: regexp.MustCompile(s)} }
func send(s string) harness.Action   { return harness.Action{Send: s} }

// read gives a file of the workspace; "" when it is not there.
func (p place) read(name string) string {
	b, err := os.ReadFile(filepath.Join(p.work, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

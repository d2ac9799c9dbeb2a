package sessions

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

// A run is listed, measured, read and ended by its name.
func TestLifeOfARun(t *testing.T) {
	p := newPlace(t)
	p.background(t, "life", `echo to out; echo to err >&2; printf '\033]0;x\007\n'; trap 'echo bye; exit 5' TERM; while :; do sleep 0.05; done`)
	p.awaitLog(t, "life", `(?m)^\S+Z main \| to out\n\S+Z main \| to err$`)

	all := p.ps(t)
	if len(all) != 1 || all[0].Name != "life" || all[0].Status != "running" || all[0].Command != "sh" || all[0].Policy != "p" || all[0].Workspace != p.work {
		t.Errorf("ps: got %+v, want the run", all)
	}
	var stats []struct {
		Name            string
		Memory          int64
		Pids, Processes int
		Network         struct{ Connections int64 }
	}
	e := p.hw(t, 0, "stats", "--json")
	if err := json.Unmarshal([]byte(e.Out), &stats); err != nil || len(stats) != 1 || stats[0].Memory < 1<<20 || stats[0].Processes < 2 || stats[0].Pids < stats[0].Processes {
		t.Errorf("stats: got %+v, %v, want memory and processes\n%s", stats, err, e.Out)
	}
	if e := p.hw(t, 125, "-q", "-p", p.policy, "--name", "life", "--", "true"); !strings.Contains(e.Err, `session "life" is in use`) || !strings.Contains(e.Err, "hint: ") {
		t.Errorf("a second one: got %q, want the name refused", e.Err)
	}
	if e := p.hw(t, 125, "rm", "life"); !strings.Contains(e.Err, "hermes-wrap stop life") {
		t.Errorf("rm: got %q, want it refused", e.Err)
	}

	if e := p.hw(t, 0, "stop", "life"); e.Out != "life: stopped (exit code 5)\n" {
		t.Errorf("stop: got %q", e.Out)
	}
	if left := p.ps(t); len(left) != 0 {
		t.Errorf("afterwards: got %+v, want none", left)
	}
	if s := p.find(t, "life"); s.Status != "ended" || s.ExitCode == nil || *s.ExitCode != 5 {
		t.Errorf("afterwards: got %+v, want it ended with 5", s)
	}
	if log := p.hw(t, 0, "logs", "-n", "2", "life").Out; !strings.Contains(log, "main | bye\n") || strings.Contains(log, "to out") {
		t.Errorf("logs -n 2: got %q, want the end", log)
	}
	if log := p.dialogue(t, []string{"logs", "life"}, expect("bye")).Stdout; strings.ContainsAny(log, "\x07\x1b") || !strings.Contains(log, `]0;x`) {
		t.Errorf("logs at a terminal: got %q, want control characters escaped", log)
	}
	for _, args := range [][]string{{"exec", "life", "--", "true"}, {"pause", "life"}, {"stats", "life"}, {"attach", "life"}, {"reload", "life"}, {"stop", "life"}} {
		if e := p.hw(t, 125, args...); !strings.Contains(e.Err, `session "life" does not run: it ended`) {
			t.Errorf("%q: got %q, want that it ended", args, e.Err)
		}
	}
	p.hw(t, 0, "rm", "life")
	if e := p.hw(t, 125, "logs", "life"); !strings.Contains(e.Err, `no session "life"`) || !strings.Contains(e.Err, "hermes-wrap ps") {
		t.Errorf("logs: got %q, want no session", e.Err)
	}
}

// A launch that fails in the background does what it does in the foreground.
func TestLaunchErrorsComeBack(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no such command", []string{"-p", p.policy, "--", "no-such-command"}, 127, "command not found"},
		{"no such policy", []string{"-p", p.work + "/none.yaml", "--", "true"}, 125, "none.yaml"},
		{"no name", []string{"--name", "a/b", "--", "true"}, 125, "is no name"},
	} {
		front := p.hw(t, c.code, c.args...)
		back := p.hw(t, c.code, append([]string{"--detach"}, c.args...)...)
		if !strings.Contains(front.Err, c.says) || back.Err != front.Err || back.Out != "" {
			t.Errorf("%s: got %q in the background, want %q as in the foreground", c.name, back.Err, front.Err)
		}
	}
	if left := p.ps(t); len(left) != 0 {
		t.Errorf("got %+v left, want none", left)
	}
}

// A launcher that is killed leaves nothing running and its name free.
func TestKilledLauncher(t *testing.T) {
	p := newPlace(t)
	p.background(t, "k", "while :; do sleep 1; done")
	if err := syscall.Kill(p.find(t, "k").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the run is told to be killed", func() bool { return p.find(t, "k").Status == "killed" })
	p.background(t, "k", "echo again; while :; do sleep 1; done")
	p.awaitLog(t, "k", "again")
}

// What does not heed SIGTERM is killed after the grace, and at once with --now.
func TestStopOfTheStubborn(t *testing.T) {
	p := newPlace(t)
	const stubborn = `trap 'echo heard' TERM; echo up; while :; do sleep 0.05; done`
	for name, flags := range map[string][]string{"graceful": {"--grace", "500ms"}, "hard": {"--now"}} {
		p.background(t, name, stubborn)
		p.awaitLog(t, name, "up")
		if e := p.hw(t, 0, append([]string{"stop", name}, flags...)...); e.Out != name+": stopped (exit code 137)\n" {
			t.Errorf("%s: got %q, want it killed", name, e.Out)
		}
		if heard := strings.Contains(p.hw(t, 0, "logs", name).Out, "main | heard"); heard != (name == "graceful") {
			t.Errorf("%s: heard SIGTERM: got %v", name, heard)
		}
	}
}

// A paused run does nothing, and goes on where it was.
func TestPauseStopsEverything(t *testing.T) {
	p := newPlace(t)
	const counter = `n=0; while :; do n=$((n+1)); echo $n > %; sleep 0.02; done`
	p.background(t, "one", strings.ReplaceAll(counter, "%", "one"))
	p.background(t, "two", strings.ReplaceAll(counter, "%", "two"))
	steps := func(name string, n int) {
		t.Helper()
		seen := map[string]bool{}
		await(t, name+" goes on", func() bool { seen[p.read(name)] = true; return len(seen) > n })
	}
	steps("one", 2)
	p.hw(t, 0, "pause", "one")
	if s := p.find(t, "one"); s.Status != "paused" {
		t.Errorf("ps: got %q, want paused", s.Status)
	}
	if e := p.hw(t, 125, "exec", "one", "--", "true"); !strings.Contains(e.Err, "paused") || !strings.Contains(e.Err, "hermes-wrap resume one") {
		t.Errorf("exec: got %q, want it refused", e.Err)
	}
	before := p.read("one")
	steps("two", 20) // the other goes on meanwhile
	if after := p.read("one"); after != before {
		t.Errorf("paused: got %s after %s, want no step", after, before)
	}
	p.hw(t, 0, "resume", "one")
	steps("one", 2)
	p.hw(t, 0, "pause", "one")
	if e := p.hw(t, 0, "stop", "one", "two"); !strings.Contains(e.Out, "one: stopped (exit code 143)") {
		t.Errorf("stop of a paused one: got %q, want it to end by SIGTERM", e.Out)
	}
}

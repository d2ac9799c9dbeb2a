package sessions

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// talker answers lines, and says the size of its terminal when it changes.
const talker = `import os, signal, sys
def say(text):
    os.write(1, (text + "\n").encode())
def size(*_):
    c, r = os.get_terminal_size()
    say(f"{r} {c}")
signal.signal(signal.SIGWINCH, size)
size()
for line in iter(sys.stdin.readline, ""):
    say("got " + line.strip())
    if line == "end\n":
        sys.exit(6)
`

func TestAttachAndDetach(t *testing.T) {
	p := newPlace(t)
	p.RequireCommands(t, []string{"python3"})
	p.Write(t, p.work+"/talker.py", talker)
	p.background(t, "t", "exec python3 talker.py", "--tty")
	p.awaitLog(t, "t", "24 80")
	const keys = "\x10\x11"
	r := p.dialogue(t, []string{"attach", "t"}, expect("30 100"), send("one\r"), expect("got one"), send(keys), expect("detached from t"))
	if r.Exit != 0 {
		t.Errorf("detach: got exit %d, want 0\n%s", r.Exit, r.Stdout)
	}
	alone := func(n int) {
		t.Helper()
		await(t, "who left is gone", func() bool { return p.find(t, "t").Now.Attached == n })
	}
	alone(0)
	// What was shown is shown again; the size is the new terminal's; a hang-up
	// leaves the run alone.
	c := harness.Command{Argv: []string{p.Bin, "attach", "t", "--detach-keys", "ctrl-a,d"}, Dir: p.work, Env: []string{"XDG_RUNTIME_DIR=" + p.Runtime}, Limit: limit}
	actions := []harness.Action{
		expect("got one"), expect("21 66"), send(keys[:1] + "x\r"), expect("got .*x"),
		{Resize: harness.Size{Rows: 25, Cols: 61}},
		expect("25 61"),
		{Hangup: true},
	}
	if _, err := p.Dialogue(c, harness.Size{Rows: 21, Cols: 66}, actions); err != nil {
		t.Error(err)
	}
	alone(0)
	// Without a terminal one looks on only.
	cmd := p.command("attach", "t")
	out := &strings.Builder{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alone(1)
	r = p.dialogue(t, []string{"attach", "t"}, expect("got one"), send("three\r"), expect("got three"), send(keys), expect("detached"))
	if r.Exit != 0 {
		t.Errorf("next: got exit %d, want 0\n%s", r.Exit, r.Stdout)
	}
	alone(1)
	r = p.dialogue(t, []string{"attach", "t"}, expect("got three"), send("end\r"), expect("got end"))
	if r.Exit != 6 {
		t.Errorf("end: got exit %d, want the command's 6\n%s", r.Exit, r.Stdout)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 6 || !strings.Contains(out.String(), "got end") {
		t.Errorf("who looked on: got exit %d %q, want 6 and everything", code, out.String())
	}
	if log := p.hw(t, 0, "logs", "t").Out; !strings.Contains(log, "main | got three") {
		t.Errorf("log: got %q, want what was shown", log)
	}
}

// One at a time types; the second one is told so, and may look on.
func TestSecondKeyboardIsRefused(t *testing.T) {
	p := newPlace(t)
	p.background(t, "t", `until [ -e over ]; do sleep 0.05; done; echo released; read -r l; echo "got $l"; exit 2`, "--tty")
	first := make(chan harness.Result, 1)
	go func() {
		r, err := p.Dialogue(harness.Command{
			Argv: []string{p.Bin, "attach", "t"}, Dir: p.work, Env: []string{"XDG_RUNTIME_DIR=" + p.Runtime}, Limit: 2 * limit,
		}, harness.Size{Rows: 30, Cols: 100}, []harness.Action{expect("released"), send("word\r"), expect("got word")})
		if err != nil {
			t.Error(err)
		}
		first <- r
	}()
	await(t, "the first is attached", func() bool { return p.find(t, "t").Now.Attached == 1 })
	if r := p.dialogue(t, []string{"attach", "t"}, expect("somebody else is attached")); r.Exit != 125 {
		t.Errorf("second: got exit %d, want it refused\n%s", r.Exit, r.Stdout)
	}
	looker := p.command("attach", "--read-only", "t")
	out := &strings.Builder{}
	looker.Stdout = out
	if err := looker.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "somebody looks on", func() bool {
		return strings.Contains(p.hw(t, 0, "audit", "show", "--events", "--kind", "control").Out, `"operation":"attach"`) && p.find(t, "t").Now.Attached == 2
	})
	p.Write(t, p.work+"/over", "")
	if r := <-first; r.Exit != 2 {
		t.Errorf("first: got exit %d, want 2\n%s", r.Exit, r.Stdout)
	}
	_ = looker.Wait()
	if code := looker.ProcessState.ExitCode(); code != 2 || !strings.Contains(out.String(), "got word") {
		t.Errorf("looking on: got exit %d %q, want 2", code, out.String())
	}
}

// A run in the foreground has its caller's terminal, and says what to do instead;
// one in the background without a terminal is followed.
func TestAttachElsewhere(t *testing.T) {
	p := newPlace(t)
	front := p.command("-q", "-p", p.policy, "--name", "front", "--", "sh", "-c", "echo > up; "+idle)
	if err := front.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it runs", func() bool { return p.find(t, "front").Status == "running" && exists(p.work+"/up") })
	if e := p.hw(t, 125, "attach", "front"); !strings.Contains(e.Err, "not started in the background") || !strings.Contains(e.Err, "--detach --tty") {
		t.Errorf("foreground: got %q, want what to do", e.Err)
	}
	if e := p.hw(t, 125, "logs", "front"); !strings.Contains(e.Err, "--denials") {
		t.Errorf("logs: got %q, want what there is", e.Err)
	}
	p.hw(t, 0, "logs", "--denials", "front")
	p.hw(t, 0, "stop", "front")
	_ = front.Wait()
	if code := front.ProcessState.ExitCode(); code != 143 {
		t.Errorf("front: got exit %d, want 143", code)
	}

	p.background(t, "quiet", `echo first; until [ -e over ]; do sleep 0.05; done; echo last; exit 3`)
	follow := p.command("attach", "quiet")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(out)
	if line, err := read.ReadString('\n'); err != nil || !strings.Contains(line, "main | first") {
		t.Errorf("follow: got %q, %v, want the log from its start", line, err)
	}
	p.Write(t, p.work+"/over", "")
	rest, err := io.ReadAll(read)
	_ = follow.Wait()
	if code := follow.ProcessState.ExitCode(); err != nil || code != 3 || !strings.Contains(string(rest), "main | last") {
		t.Errorf("follow: got exit %d %q, %v, want 3 and the log", code, rest, err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

package sessions

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const idle = `while :; do sleep 0.1; done`

func TestExecStreamsAndCodes(t *testing.T) {
	p := newPlace(t)
	p.background(t, "x", idle)
	p.Write(t, filepath.Join(p.work, "plain"), "text")
	for _, c := range []struct {
		name      string
		args      []string
		code      int
		out, says string
	}{
		{"code", []string{"--", "sh", "-c", "exit 7"}, 7, "", ""},
		{"signal", []string{"--", "sh", "-c", "kill -KILL $$"}, 137, "", ""},
		{"not found", []string{"--", "no-such-command"}, 127, "", "no-such-command"},
		{"not executable", []string{"--", "./plain"}, 126, "", "plain"},
		{"no command", nil, 125, "", "no command behind --"},
		{"streams", []string{"--", "sh", "-c", "cat; echo err >&2; pwd"}, 0, "given\n" + p.work + "\n", "err"},
		{"environment", []string{"--", "sh", "-c", "echo $SET"}, 0, "by-policy\n", ""},
		{"a variable", []string{"--env", "COLOUR=red", "--", "sh", "-c", "echo $COLOUR"}, 0, "red\n", ""},
		{"a variable of no policy", []string{"--env", "LD_PRELOAD=x", "--", "true"}, 125, "", "variable LD_PRELOAD: env.allow does not list it"},
		{"a secret", []string{"--env", "MY_TOKEN=x", "--", "true"}, 125, "", "looks like a secret"},
		{"a directory", []string{"--cwd", "/tmp", "--", "pwd"}, 0, "/tmp\n", ""},
	} {
		cmd := p.command(append([]string{"exec", "x"}, c.args...)...)
		cmd.Stdin = strings.NewReader("given\n")
		e := wraptest.Run(t, cmd, limit)
		if e.Exit != c.code || e.Out != c.out || !strings.Contains(e.Err, c.says) {
			t.Errorf("%s: got %d %q %q, want %d %q %q", c.name, e.Exit, e.Out, e.Err, c.code, c.out, c.says)
		}
	}
}

// Signals reach the command, and so does the end of whoever asked for it.
func TestExecSignals(t *testing.T) {
	p := newPlace(t)
	p.background(t, "x", idle)
	const script = `trap 'echo $0 > got; exit 9' HUP TERM; echo $$ > up; while :; do sleep 0.05; done`
	for _, c := range []struct {
		name string
		sig  syscall.Signal
		code int
	}{{"term", syscall.SIGTERM, 9}, {"killed", syscall.SIGKILL, 137}} {
		_ = os.Remove(filepath.Join(p.work, "up"))
		cmd := p.command("exec", "x", "--", "sh", "-c", script, c.name)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the command runs", func() bool { return p.read("up") != "" })
		if err := cmd.Process.Signal(c.sig); err != nil {
			t.Fatal(err)
		}
		if code := wraptest.Exit(t, cmd.Wait()); code != c.code {
			t.Errorf("%s: got exit %d, want %d", c.name, code, c.code)
		}
		await(t, "the command hears it", func() bool { return p.read("got") == c.name })
	}
}

// The command has a terminal of its own, and the caller's is put back.
func TestExecAtATerminal(t *testing.T) {
	p := newPlace(t)
	p.background(t, "x", idle)
	p.RequireCommands(t, []string{"python3"})
	p.Write(t, p.work+"/talker.py", talker)
	const script = `test -t 0 && test -t 1 && tty; exec python3 talker.py`
	r := p.dialogue(t, []string{"exec", "x", "--", "bash", "-c", script},
		expect(`/dev/pts/\d+\s+30 100`), send("one\r"), expect("got one"),
		harness.Action{Resize: harness.Size{Rows: 22, Cols: 77}}, send("two\r"), expect("22 77[^$]*got two|got two[^$]*22 77"), send("end\r"), expect("got end"))
	if r.Exit != 6 {
		t.Errorf("exit: got %d, want 6\n%s", r.Exit, r.Stdout)
	}
	r = p.dialogue(t, []string{"exec", "x", "--", "sh", "-c", "echo up; exec sleep 1000"}, expect("up"), send("\x03"))
	if r.Exit != 130 {
		t.Errorf("Ctrl-C: got exit %d, want 130\n%s", r.Exit, r.Stdout)
	}
	r = p.dialogue(t, []string{"exec", "-T", "x", "--", "sh", "-c", "test -t 0 || test -t 1 || echo no terminal; read -r l; echo got $l"},
		expect("no terminal"), send("word\r"), expect("got word"))
	if r.Exit != 0 {
		t.Errorf("-T: got exit %d, want 0\n%s", r.Exit, r.Stdout)
	}
	cmd := p.command("exec", "-t", "x", "--", "sh", "-c", "test -t 0 && test -t 1 && echo terminal")
	if e := wraptest.Run(t, cmd, limit); e.Out != "terminal\r\n" || e.Exit != 0 {
		t.Errorf("-t without one: got %d %q %q, want a terminal", e.Exit, e.Out, e.Err)
	}
	// The terminal that hangs up takes the command with it.
	if _, err := p.Dialogue(harness.Command{
		Argv: []string{p.Bin, "exec", "x", "--", "sh", "-c", `trap 'echo hup > hup; exit' HUP; echo up; while :; do sleep 0.05; done`},
		Dir:  p.work, Env: []string{"XDG_RUNTIME_DIR=" + p.Runtime}, Limit: limit,
	}, harness.Size{Rows: 30, Cols: 100}, []harness.Action{expect("up"), {Hangup: true}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the hang-up arrives", func() bool { return p.read("hup") == "hup" })
}

// What is started later is confined as what was started first. Each attack
// succeeds outside.
func TestExecIsConfined(t *testing.T) {
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.Write(t, filepath.Join(p.Home, ".ssh", "id_test"), "key")
	p.Write(t, filepath.Join(p.work, "guarded"), "as it was")
	p.background(t, "x", idle)
	port := l.Addr().(*net.TCPAddr).Port
	state := filepath.Join(p.Home, ".local", "state", "hermes-wrap")
	for _, c := range []struct{ name, script string }{
		{"read a key", "cat " + filepath.Join(p.Home, ".ssh", "id_test")},
		{"write what is protected", "echo changed >> guarded"},
		{"connect out", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port)},
		{"make a namespace", "unshare --user true"},
		{"read the sessions", "ls " + filepath.Join(state, "sessions", "x")},
		{"read the record", "cat " + filepath.Join(state, "audit.jsonl")},
		{"reach the control socket", "ls " + p.RunBase() + "/*/control"},
		{"signal the launcher", fmt.Sprintf("kill -0 %d", p.find(t, "x").Pid)},
		{"trace init", "test -r /proc/1/maps && head -c1 /proc/1/maps"},
	} {
		if c.name != "trace init" {
			if e := wraptest.Run(t, p.Bare(p.work, "bash", "-c", c.script), limit); e.Exit != 0 {
				t.Errorf("control: %s outside: got exit %d %q, want it to succeed", c.name, e.Exit, e.Err)
			}
		}
		if e := wraptest.Run(t, p.command("exec", "x", "--", "bash", "-c", c.script), limit); e.Exit == 0 || e.Exit >= 125 {
			t.Errorf("%s: got exit %d %q %q, want it refused by the kernel", c.name, e.Exit, e.Out, e.Err)
		}
	}
	status := `grep -E '^(Seccomp|NoNewPrivs|CapEff|CapBnd|CapPrm):' /proc/self/status; readlink /proc/self/ns/*; ulimit -a`
	p.background(t, "first", status+"; echo that is all; "+idle)
	first := p.awaitLog(t, "first", "main . that is all")
	second := p.hw(t, 0, "exec", "first", "--", "sh", "-c", status).Out
	for line := range strings.Lines(second) {
		if !strings.Contains(first, "| "+strings.TrimSpace(line)) && !strings.Contains(first, "| "+strings.TrimRight(line, "\n")) {
			t.Errorf("got %q, want it as for the first command\n%s", line, first)
		}
	}
}

// A descriptor that would carry the host's files or network inside does not pass.
func TestExecRefusesDescriptors(t *testing.T) {
	p := newPlace(t)
	p.background(t, "x", idle)
	dir, err := os.Open(p.work)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := p.command("exec", "x", "--", "true")
	cmd.Stdin = dir
	if e := wraptest.Run(t, cmd, limit); e.Exit != 125 || !strings.Contains(e.Err, "stdin") {
		t.Errorf("a directory: got %d %q, want it refused", e.Exit, e.Err)
	}
	space, err := os.Open("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	cmd = p.command("exec", "x", "--", "true")
	cmd.Stdin = space
	if e := wraptest.Run(t, cmd, limit); e.Exit != 125 || !strings.Contains(e.Err, "stdin") {
		t.Errorf("a namespace: got %d %q, want it refused", e.Exit, e.Err)
	}
}

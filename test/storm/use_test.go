package storm

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const limit = 2 * time.Minute

// TestScripts runs a shell script outside in which $W starts a command inside;
// with an empty $W it is the control and must print the same, unless a case
// says what is different.
func TestScripts(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
		bare               string // what the control prints where it differs; "-": no control
	}{
		{
			"exit codes", `for c in 0 1 2 3 64 77 124 125 126 127 128 129 143 200 254 255; do $W sh -c "exit $c"; echo $?; done | tr '\n' ' '`,
			"0 1 2 3 64 77 124 125 126 127 128 129 143 200 254 255 ", "",
		},
		{
			"death by a signal", `for s in TERM KILL SEGV INT HUP ABRT PIPE USR1; do ($W sh -c "kill -$s \$\$") 2>/dev/null; echo $?; done | tr '\n' ' '`,
			"143 137 139 130 129 134 141 138 ", "",
		},
		{"command not found", `$W /no/such/program 2>/dev/null; echo $?; $W no-such-program 2>/dev/null; echo $?`, "127\n127\n", "-"},
		{"command not executable", `echo text > plain; $W ./plain 2>/dev/null; echo $?; rm plain; $W /etc 2>/dev/null; echo $?`, "126\n126\n", "-"},
		{"reader goes away", `$W yes | head -1`, "y\n", ""},
		{"writer ends", `echo one | $W cat; $W cat < /dev/null`, "one\n", ""},
		{
			"streams closed at the start", `$W sh -c 'echo out >&2; ls /proc/self/fd | tr "\n" " " >&2' 2>&1 <&- >&-; echo; $W sh -c 'exit 5' <&- >&- 2>&-; echo $?`,
			"out\n0 1 2 3 \n5\n", "-",
		},
		{"standard input is a directory", `$W true < / 2>/dev/null; echo $?`, "125\n", "0\n"},
		{"a leaked descriptor", `exec 9</etc/passwd; $W sh -c '[ -e /proc/self/fd/9 ] && echo open || echo closed'`, "closed\n", "open\n"},
		{"a large pipe", `seq 25000000 | $W cat | cksum; seq 25000000 | cksum`, "3075632480 213888897\n3075632480 213888897\n", ""},
		{"in the background", `$W sh -c 'read x; echo got $x; exit 4' < file & wait $!; echo $?`, "got text\n4\n", ""},
		{"standard error apart", `$W sh -c 'echo out; echo err >&2' 2>err; cat err; rm err`, "out\nerr\n", ""},
		{"orphans are reaped", `$W sh -c 'i=0; while [ $i -lt 2000 ]; do (true &); i=$((i+1)); done
			n=0; while grep -qs "^State:.Z" /proc/[0-9]*/status && [ $n -lt 500 ]; do n=$((n+1)); done
			grep -ls "^State:.Z" /proc/[0-9]*/status | wc -l'`, "0\n", "-"},
		{"init is attacked", `$W sh -c 'for s in TERM INT HUP KILL STOP; do kill -$s 1; done 2>/dev/null; (true &); echo alive; exit 6'; echo $?`, "alive\n6\n", "-"},
		{"a daemon", `$W sh -c 'setsid sh -c "while :; do echo beat > beat; done" & while ! [ -e beat ]; do :; done; exit 3'; echo $?; rm -f beat`, "3\n", "-"},
		{"the working directory", `mkdir sub; cd sub; $W pwd | sed "s,.*/,,"; cd ..; rmdir sub`, "sub\n", ""},
		{"umask", `umask 027; $W sh -c umask`, "0027\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t)
			if c.bare != "-" {
				want := c.bare
				if want == "" {
					want = c.want
				}
				if got := g.script(t, "", c.script); got != want {
					t.Fatalf("outside: got %q, want %q", got, want)
				}
			}
			if got := g.script(t, g.Bin+" --quiet --policy strict --", c.script); got != c.want {
				t.Errorf("inside: got %q, want %q", got, c.want)
			}
			g.clean(t, "afterwards")
		})
	}
}

func (g ground) script(t *testing.T, w, script string) string {
	t.Helper()
	cmd := g.Bare(g.dir, "sh", "-c", script)
	cmd.Env = append(cmd.Env, "W="+w)
	return wraptest.Run(t, cmd, limit).Out
}

// TestSignals sends each signal to the launcher: the command gets it once, and
// its own status comes back.
func TestSignals(t *testing.T) {
	g := newGround(t)
	cmd := g.Wrap(g.dir, "strict", "./probe", "signals")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(limit, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	next := func() string {
		lines.Scan()
		return lines.Text()
	}
	if got := next(); got != "ready" {
		t.Fatalf("got %q, want ready", got)
	}
	// SIGHUP is for the launcher: it loads the policy again.
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGQUIT, unix.SIGCONT, unix.SIGINT, unix.SIGTERM, unix.SIGALRM} {
		if err := unix.Kill(cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		if got, want := next(), unix.SignalName(sig); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	g.stopped(t, cmd.Process.Pid)
	_ = in.Close()
	// Anything delivered twice would stand before the end.
	if got := next(); got == "SIGCONT" {
		got = next()
		if got != "end" {
			t.Errorf("got %q, want the end", got)
		}
	} else if got != "end" {
		t.Errorf("got %q, want the end", got)
	}
	if code := wraptest.Exit(t, cmd.Wait()); code != 7 {
		t.Errorf("got exit %d, want 7", code)
	}
	g.clean(t, "afterwards")
}

// stopped stops the launcher and lets it go on: the run outlives it.
func (g ground) stopped(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if !within(patience, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return strings.Contains(string(b), "State:\tT")
	}) {
		t.Error("got a launcher that runs on, want it stopped")
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestArguments holds that they arrive byte for byte.
func TestArguments(t *testing.T) {
	g := newGround(t)
	args := []string{"argv", "", " ", "--", "-x", "--policy", "a=b", "$HOME", "*", strings.Repeat("long ", 20<<10), ""}
	for b := 1; b < 256; b++ {
		args = append(args, string([]byte{byte(b)}), "x"+string([]byte{byte(b), byte(b)}))
	}
	link := filepath.Join(g.dir, "applet")
	if err := os.Symlink("probe", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"./probe", "./applet", link} {
		argv := append([]string{name}, args...)
		bare := wraptest.Run(t, g.Bare(g.dir, argv...), limit)
		inside := wraptest.Run(t, g.Wrap(g.dir, "strict", argv...), limit)
		if bare.Exit != 0 || strings.Count(bare.Out, "\n") != len(argv) {
			t.Fatalf("outside: got exit %d and %d lines, want 0 and %d", bare.Exit, strings.Count(bare.Out, "\n"), len(argv))
		}
		if inside.Out != bare.Out {
			t.Errorf("%s: got other arguments inside: %.200q, want %.200q\n%s", name, inside.Out, bare.Out, inside.Err)
		}
	}
}

// running names the one session that runs.
func (g ground) running(t *testing.T) string {
	t.Helper()
	all, err := session.List(filepath.Join(g.Home, ".local/state"))
	if err != nil || len(all) == 0 || all[0].Status() != session.StatusRunning {
		t.Fatalf("sessions: got %+v and %v, want the newest to run", all, err)
	}
	return all[0].Name
}

// TestGhosts looks at the workspace and the home from the host while a command
// runs, and after the launcher was killed: no placeholder shows there.
func TestGhosts(t *testing.T) {
	g := newGround(t)
	cmd := g.Wrap(g.dir, "strict", "./probe", "signals")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("got %q and %v, want ready", line, err)
	}
	running := "session " + g.running(t) + " running"
	for _, trace := range g.left() {
		if !strings.HasPrefix(trace, g.RunBase()) && !strings.HasPrefix(trace, "process ") && !strings.HasPrefix(trace, "control group ") &&
			trace != running {
			t.Errorf("while it runs: got %s, want nothing new", trace)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := wraptest.Exit(t, cmd.Wait()); code != 137 {
		t.Errorf("got exit %d, want 137", code)
	}
	if g.sweptLater(t, "after the kill") > 0 {
		t.Error("got a run directory left, want it swept by the proxy")
	}
	g.clean(t, "after the kill")
}

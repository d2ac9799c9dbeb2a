package sessions

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// Our own processes have a timer slack of their own; the command has the caller's,
// also after it asked for its default one, which a process gets from its parent.
func TestTimerSlackIsTheCallers(t *testing.T) {
	const mine, script = "123456", `exec python3 -c '
import ctypes
prctl = ctypes.CDLL(None).prctl
print(prctl(30, 0, 0, 0, 0))
prctl(29, 0, 0, 0, 0)
print(prctl(30, 0, 0, 0, 0))'`
	p := newPlace(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 123456, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(was), 0, 0, 0) }()
	is := func(what string, cmd *exec.Cmd) {
		t.Helper()
		if e := wraptest.Run(t, cmd, limit); e.Exit != 0 || e.Out != mine+"\n"+mine+"\n" {
			t.Errorf("%s: got exit %d, %q, want %s twice\n%s", what, e.Exit, e.Out, mine, e.Err)
		}
	}
	is("bare", p.Bare(p.work, "sh", "-c", script))
	is("inside", p.command("-q", "-p", p.policy, "--", "sh", "-c", script))
	p.background(t, "x", `(`+script+`) >slack; `+idle)
	await(t, "what a detached run says", func() bool { return len(p.read("slack")) > 2*len(mine) })
	if got := p.read("slack"); got != mine+"\n"+mine {
		t.Errorf("detached: got %q, want %s twice", got, mine)
	}
	is("exec", p.command("exec", "x", "--", "sh", "-c", script))
}

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDieOfStage is no test: it is the process that TestDieOf watches.
func TestDieOfStage(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("HW_TEST_DIE"))
	if err != nil {
		return
	}
	ForwardSignals(t.Context(), func(unix.Signal, bool) {})
	DieOf(unix.Signal(n))
	os.Exit(9)
}

func TestDieOf(t *testing.T) {
	for sig, dies := range map[unix.Signal]bool{
		unix.SIGINT: true, unix.SIGQUIT: true, unix.SIGTERM: true, unix.SIGKILL: true, unix.SIGSEGV: true, 40: true,
		unix.SIGWINCH: false,
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDieOfStage$")
		cmd.Env = append(os.Environ(), "HW_TEST_DIE="+strconv.Itoa(int(sig)))
		cmd.Dir = t.TempDir()
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("signal %d: got %v, want an exit", sig, err)
		}
		ws := exit.Sys().(syscall.WaitStatus)
		if ws.Signaled() != dies || (dies && ws.Signal() != sig) || ws.CoreDump() {
			t.Errorf("signal %d: got status %#x, want death by it: %v", sig, ws, dies)
		}
	}
}

func TestForwardedSignalsLeaveOurOwn(t *testing.T) {
	for _, s := range forwardedSignals() {
		switch s {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGSEGV, unix.SIGSYS,
			unix.Signal(32), unix.Signal(33):
			t.Errorf("got %v among the forwarded, want it left alone", s)
		}
	}
}

func TestStopOwnJobInAnOrphanedGroupReturns(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStopStage$")
	cmd.Env = append(os.Environ(), "HW_TEST_STOP=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // no shell looks after it
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("got %v %s, want it to go on", err, out)
	}
}

// TestStopStage is no test: it is the process that cannot be stopped.
func TestStopStage(t *testing.T) {
	if os.Getenv("HW_TEST_STOP") == "" {
		return
	}
	ForwardSignals(t.Context(), func(unix.Signal, bool) {})
	if err := stopOwnJob(); err != nil {
		t.Fatal(err)
	}
	action, err := readAction(unix.SIGTSTP)
	if err != nil || action[0] <= sigIgnore {
		t.Errorf("got action %v, %v, want our handler back", action, err)
	}
}

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopGrace is how long the kernel may take to stop us; see stopOwnJob.
const stopGrace = 100 * time.Millisecond

// forwardedSignals are those that somebody may send to a command and that a
// process can catch. Not among them: what the kernel sends for a fault of our
// own (SEGV, BUS, FPE, ILL, TRAP, SYS, XCPU, XFSZ, PIPE), what the Go runtime
// uses (URG, PROF), CHLD, and TTIN and TTOU, which must stop us by default.
func forwardedSignals() []os.Signal {
	all := []os.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGVTALRM, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGCONT,
		unix.SIGTSTP, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR,
	}
	// The C library keeps the real-time signals 32 and 33, and the Go runtime lets
	// nobody catch 34: it ends the launcher, and with it the run.
	for n := 35; n <= 64; n++ {
		all = append(all, unix.Signal(n))
	}
	// What the caller had us ignore (nohup) is ignored by the command as well.
	kept := all[:0]
	for _, s := range all {
		if a, err := readAction(s.(unix.Signal)); err != nil || a[0] != sigIgnore {
			kept = append(kept, s)
		}
	}
	return kept
}

// ForwardSignals hands every signal that the launcher gets to send, until ctx
// ends; then it closes the channel it returned. The signals are caught when it
// returns. group is true when the whole foreground group is meant: an
// interrupt, quit or stop while we are in the foreground of our controlling
// terminal, which is how the terminal sends them.
func ForwardSignals(ctx context.Context, send func(sig unix.Signal, group bool)) <-chan struct{} {
	// Standard signals do not queue; a burst of real-time ones may.
	in := make(chan os.Signal, 128)
	signal.Notify(in, forwardedSignals()...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(in)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-in:
				sig := s.(unix.Signal)
				send(sig, fromTerminal(sig))
			}
		}
	}()
	return done
}

// fromTerminal tells whether a signal concerns a foreground group.
func fromTerminal(sig unix.Signal) bool {
	if sig != unix.SIGINT && sig != unix.SIGQUIT && sig != unix.SIGTSTP {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// inForeground tells whether we may read and set a terminal without being
// stopped. Job control does not apply to a terminal that does not control us.
func inForeground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// stopOwnJob stops our process group as the terminal's stop key would, and
// returns when it is continued. The kernel ignores that in an orphaned group;
// then nothing stops and the grace ends the wait.
func stopOwnJob() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	caught, err := swapAction(unix.SIGTSTP, rawAction{})
	if err != nil {
		return fmt.Errorf("stop job: %w", err)
	}
	if caught[0] == sigIgnore {
		// The caller had us ignore it: there is no shell with job control.
		_, err = swapAction(unix.SIGTSTP, caught)
		return err
	}
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return fmt.Errorf("stop job: %w", err)
	}
	select {
	case <-continued:
	case <-time.After(stopGrace):
	}
	if _, err = swapAction(unix.SIGTSTP, caught); err != nil {
		return fmt.Errorf("catch stops again: %w", err)
	}
	return nil
}

// rawAction is the kernel's struct sigaction on 64-bit machines: handler,
// flags, restorer, mask. The zero value is the default action.
type rawAction [4]uint64

const sigIgnore = 1 // SIG_IGN

func readAction(sig unix.Signal) (now rawAction, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		0, uintptr(unsafe.Pointer(&now)), unsafe.Sizeof(now[3]), 0, 0)
	if errno != 0 {
		return now, errno
	}
	return now, nil
}

// swapAction sets the action of a signal. signal.Reset does not help: the Go
// runtime keeps its handler installed and swallows the stop.
func swapAction(sig unix.Signal, action rawAction) (before rawAction, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(&action)), uintptr(unsafe.Pointer(&before)), unsafe.Sizeof(before[3]), 0, 0)
	if errno != 0 {
		return before, errno
	}
	return before, nil
}

// DieOf ends this process by a signal, as the command ended: a shell stops a
// loop or a script when its child died of SIGINT, and goes on when the child
// exited with 130. It leaves no core file, and returns when the signal does not
// end a process. Restore the terminal first.
func DieOf(sig unix.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if sig != unix.SIGKILL {
		if _, err := swapAction(sig, rawAction{}); err != nil {
			return
		}
	}
	if err := unix.Kill(unix.Getpid(), sig); err != nil {
		return
	}
	// Another thread may be the one that takes it.
	time.Sleep(stopGrace)
}

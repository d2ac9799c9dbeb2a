package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTerminalLauncher is no test: it is the launcher that the other tests run
// on a terminal, and the init it starts, as processes of their own.
func TestTerminalLauncher(t *testing.T) {
	script := os.Getenv("HW_TEST_TERMINAL")
	if script == "" {
		return
	}
	run := relayInit
	if os.Getenv("HW_TEST_INIT") != "" {
		run = runUnderInit
	}
	code, err := run(script)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		code = 125
	}
	os.Exit(code)
}

// relayInit is the launcher: a relay on the terminal, init on a pty behind it.
func relayInit(script string) (int, error) {
	fds := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	term, is := FindTerminal(fds)
	master, slave, err := openPTY()
	if err != nil {
		return 0, err
	}
	if err := term.Start(master); err != nil {
		return 0, err
	}
	defer term.Restore()
	for i := range fds {
		if is[i] {
			fds[i] = slave
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTerminalLauncher$")
	cmd.Env = append(os.Environ(), "HW_TEST_INIT=1", "HW_TEST_TERMINAL="+script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = fds[0], fds[1], fds[2]
	cmd.SysProcAttr = ctty(fds)
	code, err := waitThrough(cmd, func() { slave.Close() }, func(sig unix.Signal) {
		if sig == unix.SIGWINCH {
			term.Resize()
			return
		}
		unix.Kill(cmd.Process.Pid, sig)
	}, func() error {
		if err := term.Suspend(); err != nil {
			return err
		}
		return term.Resume()
	})
	term.Drain()
	return code, err
}

// runUnderInit is init: the leader of the inner session, whose child is in the
// foreground group, so that the keys of the terminal reach it.
func runUnderInit(script string) (int, error) {
	cmd := exec.Command("bash", "-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Foreground: true, Ctty: ctty([3]*os.File{os.Stdin, os.Stdout, os.Stderr}).Ctty}
	return waitThrough(cmd, func() {}, func(sig unix.Signal) { unix.Kill(cmd.Process.Pid, sig) },
		func() error { return unix.Kill(os.Getpid(), unix.SIGSTOP) })
}

// waitThrough runs a command, passes signals on, and its stops upwards.
func waitThrough(cmd *exec.Cmd, started func(), send func(unix.Signal), stopped func() error) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	running := make(chan struct{})
	ForwardSignals(ctx, func(sig unix.Signal, _ bool) { <-running; send(sig) })
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	close(running)
	started()
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(cmd.Process.Pid, &ws, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case ws.Stopped():
			if err := stopped(); err != nil {
				return 0, err
			}
			unix.Kill(cmd.Process.Pid, unix.SIGCONT)
		case ws.Signaled():
			return 128 + int(ws.Signal()), nil
		default:
			return ws.ExitStatus(), nil
		}
	}
}

// screen is the outer side of a test: what a terminal emulator would be.
type screen struct {
	t      *testing.T
	master int // for ioctls; keys and output go through file
	file   *os.File
	slave  *os.File
	seen   []byte
	reads  chan []byte
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	master, slave, err := openPTY()
	if err != nil {
		t.Fatal(err)
	}
	// A file that the runtime polls: closing it must not wait for the reader.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: fd, file: os.NewFile(uintptr(fd), "screen"), slave: slave, reads: make(chan []byte, 64)}
	t.Cleanup(func() { s.file.Close(); slave.Close() })
	go func() {
		defer close(s.reads)
		for {
			b := make([]byte, 4096)
			n, err := s.file.Read(b)
			if n > 0 {
				s.reads <- b[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// expect reads until want has been seen, and forgets everything up to there.
func (s *screen) expect(want string) string {
	s.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		if i := bytes.Index(s.seen, []byte(want)); i >= 0 {
			before := string(s.seen[:i])
			s.seen = s.seen[i+len(want):]
			return before
		}
		select {
		case b, open := <-s.reads:
			if !open {
				s.t.Fatalf("terminal closed: got %q, want %q", s.seen, want)
			}
			s.seen = append(s.seen, b...)
		case <-limit:
			s.t.Fatalf("got %q, want %q", s.seen, want)
		}
	}
}

func (s *screen) typed(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.file, keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) modes() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

// awaitModes waits until the launcher has changed the modes of the screen.
func (s *screen) awaitModes(ok func(unix.Termios) bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok(s.modes()) {
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatalf("got modes %+v", s.modes())
		}
	}
}

// launch starts the launcher with script on the screen, as a session leader.
func (s *screen) launch(script string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTerminalLauncher$")
	cmd.Env = append(os.Environ(), "HW_TEST_TERMINAL="+script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
	cmd.SysProcAttr = ctty([3]*os.File{s.slave})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

// shell starts an interactive shell on the screen whose function "hw" runs the
// launcher.
func (s *screen) shell() *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	cmd.Env = append(os.Environ(), "PS1=$ ", "LC_ALL=C", "HW="+os.Args[0], "HISTFILE=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
	cmd.SysProcAttr = ctty([3]*os.File{s.slave})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	s.expect("$ ")
	s.typed("hw() { HW_TEST_TERMINAL=$1 $HW -test.run='^TestTerminalLauncher$'; }; echo re''ady\n")
	s.expect("ready")
	s.expect("$ ")
	return cmd
}

// exitOf waits for a launcher and gives its exit code.
func (s *screen) exitOf(cmd *exec.Cmd) int {
	s.t.Helper()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

func (s *screen) resize(rows, cols uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(s.master, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		s.t.Fatal(err)
	}
}

// openPTY opens a pair of the host's devpts.
func openPTY() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

// ctty makes the first terminal of fds the controlling one of a new session.
func ctty(fds [3]*os.File) *unix.SysProcAttr {
	for i, f := range fds {
		if f == nil {
			continue
		}
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return &unix.SysProcAttr{Setsid: true, Setctty: true, Ctty: i}
		}
	}
	return &unix.SysProcAttr{Setsid: true}
}

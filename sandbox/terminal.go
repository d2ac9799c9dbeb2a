package sandbox

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// How long a terminal waits. The relay has no other timer: while the command
// has the whole terminal, nothing wakes up without a byte.
const (
	// terminalCheck is how often a relay that does not own the keyboard looks
	// whether it should: a shell's "fg" of a running job sends no signal.
	terminalCheck = 100 * time.Millisecond
	// terminalQuiet is how long Drain waits for a byte when a descriptor of the
	// slave is still open somewhere, terminalStuck how long it waits for a
	// terminal that takes no output.
	terminalQuiet = 50 * time.Millisecond
	terminalStuck = 2 * time.Second
)

// Terminal is the caller's terminal while a relay runs: bytes go between it and
// the master of the sandbox's own pty, unchanged in both directions. Keys are
// interpreted by the line discipline inside, so that Ctrl-C, Ctrl-Z and job
// control concern the process groups inside.
//
// A Terminal starts out doing nothing. Start takes the master; Restore puts the
// caller's modes back and is safe on every exit, any number of times.
type Terminal struct {
	tty    *os.File // what modes are set on and keys are read from
	out    *os.File // where output goes
	attend attention

	mu      sync.Mutex
	saved   console.Console // the caller's modes; set while raw
	raw     bool
	paused  bool
	over    bool // Restore was called: raw mode never comes back
	initial *unix.Termios
	relay   *ttyRelay
}

// attention is when keys belong to the command. Reading a terminal takes the
// keys away from every other process of the job, so a relay must not read more
// than the bare command would.
type attention int

const (
	// attendAsked: stdin is no terminal. Keys are read only while a program
	// inside has changed the modes of its terminal (a pager, a password prompt).
	attendAsked attention = iota
	// attendLines: stdin is a terminal, stdout is not: "hermes-wrap git log |
	// less". Lines are read while nobody else has taken the keyboard over.
	attendLines
	// attendAll: both are terminals. Every key is the command's.
	attendAll
)

// FindTerminal tells which of stdin, stdout and stderr are terminals, and gives
// the Terminal for a relay; nil when none is. It changes nothing.
func FindTerminal(fds [3]*os.File) (*Terminal, [3]bool) {
	var is [3]bool
	t := &Terminal{}
	for i, f := range fds {
		if f == nil {
			continue
		}
		if _, err := console.ConsoleFromFile(f); err != nil {
			continue
		}
		is[i] = true
		if t.tty == nil {
			t.tty = f
		}
		if t.out == nil && i > 0 {
			t.out = f
		}
	}
	if t.tty == nil {
		return nil, is
	}
	if t.out == nil {
		t.out = t.tty // terminals are open for both; programs inside write to /dev/tty
	}
	switch {
	case is[0] && is[1]:
		t.attend = attendAll
	case is[0]:
		t.attend = attendLines
	}
	return t, is
}

// Start begins to relay. It owns master from then on, also when it fails. The
// slave gets the caller's modes and window size before the first byte, so the
// command must not run yet. In the background the caller's terminal stays as it
// is until the shell brings the job to the foreground.
func (t *Terminal) Start(master *os.File) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	relay, err := newTTYRelay(int(t.tty.Fd()), int(t.out.Fd()), master)
	if err != nil {
		return err
	}
	if err := t.lockedPrepareSlave(relay.master); err != nil {
		relay.close()
		return err
	}
	t.relay = relay
	if t.attend == attendAll && inForeground(t.tty) {
		if err := t.lockedRaw(); err != nil {
			relay.close()
			t.relay = nil
			return err
		}
	}
	relay.start(t.mayRead, t.attend != attendAll)
	return nil
}

// lockedPrepareSlave copies modes and size. On Linux, terminal ioctls on a
// master act on its slave. A background job copies no modes: those of that
// moment are the line editor's of the shell.
func (t *Terminal) lockedPrepareSlave(master int) error {
	if inForeground(t.tty) {
		modes, err := unix.IoctlGetTermios(int(t.tty.Fd()), unix.TCGETS)
		if err != nil {
			return fmt.Errorf("read terminal modes: %w", err)
		}
		if err := unix.IoctlSetTermios(master, unix.TCSETS, modes); err != nil {
			return fmt.Errorf("set terminal modes inside: %w", err)
		}
	}
	modes, err := unix.IoctlGetTermios(master, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("read terminal modes inside: %w", err)
	}
	t.initial = modes
	t.lockedResize(master)
	return nil
}

// Resize copies the window size. The kernel sends SIGWINCH to the foreground
// group inside when the size differs. Call it on SIGWINCH, do not forward that.
func (t *Terminal) Resize() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relay != nil {
		t.relay.withMaster(t.lockedResize)
	}
}

func (t *Terminal) lockedResize(master int) {
	size, err := unix.IoctlGetWinsize(int(t.tty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return // the terminal is gone; its hang-up ends the relay
	}
	_ = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size)
}

// Suspend is for the moment when the command has stopped (Ctrl-Z): it restores
// the caller's modes and stops our own job as the terminal would have, so that
// the caller's shell reports it. It returns when the job is continued; at once
// when it cannot stop, as in a process group that no shell looks after. Call
// Resume next and then continue the command.
func (t *Terminal) Suspend() error {
	if t != nil {
		t.mu.Lock()
		t.paused = true
		err := t.lockedCook()
		t.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return stopOwnJob()
}

// Resume takes the terminal up again after Suspend or after a SIGCONT: modes
// if we are in the foreground, and the window size. The shell may have changed
// the modes in between; they are saved anew.
func (t *Terminal) Resume() error {
	if t == nil {
		return nil
	}
	t.Resize()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = false
	if t.relay == nil || !inForeground(t.tty) {
		return nil
	}
	t.relay.nudge()
	if t.raw || t.attend == attendAll {
		return t.lockedRaw()
	}
	return nil
}

// Drain is for the time after the command has ended: it copies what is left of
// the master, takes in what the terminal has to answer, then restores. It returns as soon as every descriptor of the
// slave is closed; init's end sees to that. It never waits long for a slave
// that stays open or for a terminal that takes no output.
func (t *Terminal) Drain() {
	if t == nil {
		return
	}
	t.mu.Lock()
	relay := t.relay
	t.mu.Unlock()
	if relay != nil {
		relay.drain(terminalQuiet, terminalStuck)
		t.settle(relay)
	}
	t.Restore()
}

// Restore puts the caller's modes back and ends the relay for good.
func (t *Terminal) Restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	_ = t.lockedCook() // the terminal may be gone; there is nobody to tell
	if t.relay != nil {
		t.relay.stop()
	}
}

// mayRead says whether keys are the command's now, and takes the caller's
// terminal in or out of raw mode accordingly. settled means that the answer
// holds until a key arrives or nudge is called.
func (t *Terminal) mayRead() (now, settled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.paused {
		return false, false
	}
	if !inForeground(t.tty) {
		t.raw = false // the shell took the terminal back; its modes are the shell's
		return false, false
	}
	if t.attend == attendAll || t.lockedAsked() {
		// A key typed after a change of size arrives after it: SIGWINCH alone
		// could come later than the key.
		t.relay.withMaster(t.lockedResize)
		return t.raw || t.lockedRaw() == nil, t.attend == attendAll
	}
	if err := t.lockedCook(); err != nil || t.attend == attendAsked {
		return false, false
	}
	modes, err := unix.IoctlGetTermios(int(t.tty.Fd()), unix.TCGETS)
	return err == nil && modes.Lflag&unix.ICANON != 0, false
}

// lockedAsked tells whether a program inside has taken its terminal out of the
// line mode or turned its echo off.
func (t *Terminal) lockedAsked() bool {
	asked := false
	t.relay.withMaster(func(master int) {
		modes, err := unix.IoctlGetTermios(master, unix.TCGETS)
		const keys = unix.ICANON | unix.ECHO
		asked = err == nil && modes.Lflag&keys != t.initial.Lflag&keys
	})
	return asked
}

// lockedRaw sets raw mode. The library leaves output processing on, which would
// turn the line ends that the slave has already translated into others.
func (t *Terminal) lockedRaw() error {
	if t.over {
		return nil
	}
	if !t.raw {
		saved, err := console.ConsoleFromFile(t.tty)
		if err != nil {
			return fmt.Errorf("read terminal modes: %w", err)
		}
		t.saved = saved
		// The size may have changed while we were in the background.
		t.relay.withMaster(t.lockedResize)
	}
	if err := t.saved.SetRaw(); err != nil {
		return fmt.Errorf("set terminal raw: %w", err)
	}
	t.raw = true
	modes, err := unix.IoctlGetTermios(int(t.tty.Fd()), unix.TCGETS)
	if err == nil {
		modes.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(t.tty.Fd()), unix.TCSETS, modes)
	}
	if err != nil {
		return fmt.Errorf("set terminal raw: %w", err)
	}
	return nil
}

// lockedCook puts the caller's modes back.
func (t *Terminal) lockedCook() error {
	if !t.raw {
		return nil
	}
	t.raw = false
	if !inForeground(t.tty) {
		return nil // they are the shell's now, and setting them would stop us
	}
	if err := t.saved.Reset(); err != nil {
		return fmt.Errorf("restore terminal modes: %w", err)
	}
	return nil
}

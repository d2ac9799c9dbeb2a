package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Action is one step of a dialogue at a terminal. Exactly one field is set.
type Action struct {
	// Expect waits until the screen's text, after what the last Expect
	// matched, matches.
	Expect *regexp.Regexp
	// Send types.
	Send string
	// Resize changes the size of the terminal.
	Resize Size
	// Hangup closes the terminal.
	Hangup bool
}

// Size is the size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// expectLimit is how long one Expect waits.
const expectLimit = 20 * time.Second

// escape matches what programs send to a terminal besides text: CSI, OSC and
// two-byte sequences.
var escape = regexp.MustCompile(`\x1b\[[0-9;?>=!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()#][0-9A-Z]|\x1bP[^\x1b]*\x1b\\|\x1b[=>78MDEHc]`)

// Dialogue runs a command at a terminal of its own and holds a conversation
// with it. Result.Stdout is all that the terminal showed.
func (h Host) Dialogue(c Command, size Size, actions []Action) (Result, error) {
	master, slave, err := openTerminal(size)
	if err != nil {
		return Result{}, err
	}
	defer master.Close()
	ctx, cancel := context.WithTimeout(context.Background(), c.Limit)
	defer cancel()
	cmd := h.command(ctx, c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setpgid = false
	cmd.SysProcAttr.Setsid = true
	cmd.SysProcAttr.Setctty = true
	started := time.Now()
	err = h.startAt(cmd, slave)
	if err != nil {
		return Result{}, err
	}
	s := newScreen(master)
	talkErr := s.talk(master, actions)
	if talkErr != nil {
		cancel()
	}
	exit, waitErr := exitStatus(cmd.Wait())
	s.drain()
	r := Result{Stdout: s.text(), Exit: exit, Took: time.Since(started)}
	if talkErr != nil {
		return r, talkErr
	}
	if ctx.Err() != nil {
		waitErr = fmt.Errorf("run %q: not done after %v", c.Argv[0], c.Limit)
	}
	return r, waitErr
}

// startAt gives the terminal to the account, as login(1) does, and starts the
// command; only the command keeps the terminal open.
func (h Host) startAt(cmd *exec.Cmd, slave *os.File) error {
	defer slave.Close()
	if h.cred != nil {
		if err := slave.Chown(int(h.cred.Uid), int(h.cred.Gid)); err != nil {
			return err
		}
	}
	return cmd.Start()
}

func openTerminal(size Size) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	// Non-blocking, so that closing it ends a read that waits.
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = resize(master, size)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, slave, nil
}

func resize(master *os.File, size Size) error {
	conn, err := master.SyscallConn()
	if err != nil {
		return err
	}
	set := func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	}
	if controlErr := conn.Control(set); controlErr != nil {
		return controlErr
	}
	return err
}

// screen collects what a terminal shows.
type screen struct {
	changed chan struct{} // one token: something was added
	ended   chan struct{} // closed at the end of the output

	mu  sync.Mutex
	raw strings.Builder
}

// newScreen starts a reader that ends when the terminal is closed on either side.
func newScreen(master *os.File) *screen {
	s := &screen{changed: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.read(master)
	return s
}

func (s *screen) read(master *os.File) {
	defer close(s.ended)
	buf := make([]byte, 32<<10)
	for {
		n, err := master.Read(buf)
		s.mu.Lock()
		s.raw.Write(buf[:n])
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// drain waits for the last output. A process that outlives the command may
// keep the terminal open, so the wait is bounded.
func (s *screen) drain() {
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return escape.ReplaceAllString(s.raw.String(), "")
}

func (s *screen) talk(master *os.File, actions []Action) error {
	seen := 0
	for _, a := range actions {
		var err error
		switch {
		case a.Expect != nil:
			seen, err = s.expect(a.Expect, seen)
		case a.Hangup:
			err = master.Close()
		case a.Resize != Size{}:
			err = resize(master, a.Resize)
		default:
			_, err = master.WriteString(a.Send)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expect gives the end of the match in the text.
func (s *screen) expect(want *regexp.Regexp, from int) (int, error) {
	limit := time.NewTimer(expectLimit)
	defer limit.Stop()
	for ended := false; ; {
		text := s.text()
		from = min(from, len(text))
		if at := want.FindStringIndex(text[from:]); at != nil {
			return from + at[1], nil
		}
		if ended {
			return 0, fmt.Errorf("expect %q: the output ended with %q", want, tail(text))
		}
		select {
		case <-s.changed:
		case <-s.ended:
			ended = true
		case <-limit.C:
			return 0, fmt.Errorf("expect %q: the screen shows %q", want, tail(text))
		}
	}
}

func tail(text string) string {
	const most = 600
	return text[max(0, len(text)-most):]
}

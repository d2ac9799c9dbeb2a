package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// screenRoom is how much of what a terminal showed is kept for those who come
// later, in bytes.
const screenRoom = 256 << 10

// screen is the terminal of a run in the background. What it shows is kept, goes
// to the log, and to those who look at it. It never waits for them: who does not
// keep up misses something.
type screen struct {
	slave  *os.File // the run's standard streams
	master *os.File
	log    io.Writer
	done   chan struct{} // closed when everything was read

	mu      sync.Mutex
	changed *sync.Cond
	kept    []byte
	end     int64 // bytes so far
	over    bool
	looking int
	typing  *viewer // who has the keyboard
}

// viewer is one who looks.
type viewer struct{ left bool }

// openScreen makes the terminal. What it shows goes to log as well.
func openScreen(log io.Writer) (*screen, error) {
	master, slave, err := openPTY()
	if err != nil {
		return nil, fmt.Errorf("open a terminal for the run: %w", err)
	}
	s := &screen{slave: slave, master: master, log: log, done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	s.onMaster(func(fd int) { _ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}) })
	go s.read()
	return s, nil
}

// openPTY opens a pair of the host's. The master does not block, so that reads
// of it end when it is closed.
func openPTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	if err == nil {
		// By the master, and not by a path: /dev/pts may be another's.
		var peer uintptr
		var errno unix.Errno
		if peer, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC); errno != 0 {
			err = os.NewSyscallError("ioctl TIOCGPTPEER", errno)
		} else {
			slave = os.NewFile(peer, "terminal")
		}
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// read takes what the terminal shows until nobody has it any more.
func (s *screen) read() {
	defer close(s.done)
	b := make([]byte, 32<<10)
	for {
		n, err := s.master.Read(b)
		if n > 0 {
			_, _ = s.log.Write(b[:n])
			s.show(b[:n])
		}
		if err != nil {
			s.mu.Lock()
			s.over = true
			s.changed.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

func (s *screen) show(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, b...)
	s.end += int64(len(b))
	if len(s.kept) > 2*screenRoom {
		s.kept = append(s.kept[:0], s.kept[len(s.kept)-screenRoom:]...)
	}
	s.changed.Broadcast()
}

// next waits for what comes after a position; nil when there is no more, or the
// viewer left. The position may be before what is kept.
func (s *screen) next(v *viewer, at int64) (b []byte, now int64, skipped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at >= s.end && !s.over && !v.left {
		s.changed.Wait()
	}
	if v.left {
		return nil, at, false
	}
	first := s.end - int64(len(s.kept))
	if at < first {
		at, skipped = first, true
	}
	return append([]byte(nil), s.kept[at-first:]...), s.end, skipped
}

// replayFrom is where somebody who comes later begins: at a line's beginning.
func (s *screen) replayFrom() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	tail := s.kept[max(0, len(s.kept)-screenRoom):]
	at := s.end - int64(len(tail))
	if at > 0 {
		for i, c := range tail {
			if c == '\n' {
				return at + int64(i) + 1
			}
		}
	}
	return at
}

// errKeyboard refuses a second one who would type.
var errKeyboard = &hintedError{errors.New("somebody else is attached"), "look on without typing: hermes-wrap attach --read-only"}

// enter lets somebody look, and type.
func (s *screen) enter(typing bool) (*viewer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if typing && s.typing != nil {
		return nil, errKeyboard
	}
	v := &viewer{}
	s.looking++
	if typing {
		s.typing = v
	}
	return v, nil
}

// leave takes a viewer out; it may be called more than once.
func (s *screen) leave(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.left {
		s.looking--
	}
	v.left = true
	if s.typing == v {
		s.typing = nil
	}
	s.changed.Broadcast()
}

func (s *screen) hasLeft(v *viewer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.left
}

// viewers counts those who look. A nil screen has none.
func (s *screen) viewers() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looking
}

// serve shows the terminal to a viewer until the terminal is gone or the viewer is.
func (s *screen) serve(v *viewer, w io.Writer) error {
	for at := s.replayFrom(); ; {
		b, now, skipped := s.next(v, at)
		if len(b) == 0 {
			return nil
		}
		at = now
		if skipped {
			b = append([]byte("\r\n[hermes-wrap: some output was skipped]\r\n"), b...)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

// redrawPause is how long programs have to notice a size that changes twice.
const redrawPause = 50 * time.Millisecond

// resize sets the size. A program that has the whole screen draws it anew when
// its size changes, so one that stays the same is changed for a moment when
// redraw is set.
func (s *screen) resize(rows, cols uint16, redraw bool) {
	if rows == 0 || cols == 0 {
		return
	}
	size := unix.Winsize{Row: rows, Col: cols}
	if redraw && cols > 1 && s.size() == size {
		s.setSize(unix.Winsize{Row: rows, Col: cols - 1})
		time.Sleep(redrawPause)
	}
	s.setSize(size)
}

func (s *screen) size() (size unix.Winsize) {
	s.onMaster(func(fd int) {
		if now, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			size = unix.Winsize{Row: now.Row, Col: now.Col}
		}
	})
	return size
}

// setSize sets it. The kernel tells nobody, since the terminal is not the
// launcher's controlling one: the launcher is told as a shell would tell it.
func (s *screen) setSize(size unix.Winsize) {
	s.onMaster(func(fd int) { _ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size) })
	_ = unix.Kill(unix.Getpid(), unix.SIGWINCH)
}

func (s *screen) onMaster(do func(fd int)) {
	if raw, err := s.master.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}

// close ends the terminal once the run is over: what is left of it is read.
func (s *screen) close() {
	_ = s.slave.Close()
	select {
	case <-s.done:
	case <-time.After(farewellLimit):
	}
	_ = s.master.Close()
}

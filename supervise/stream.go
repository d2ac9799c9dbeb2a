package supervise

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Stream carries what one process prints to the log.
type Stream struct {
	f     *os.File
	lines splitter
	flush chan chan struct{}
	done  chan struct{}
}

// drainMost is what a pipe may hold at most, see fcntl(2), F_SETPIPE_SZ.
const drainMost = 1 << 20

// NewStream makes a pipe whose content goes to the log under a name. The
// process gets the other end, which the caller closes; it blocks, as programs expect.
func (l *Log) NewStream(name string) (*Stream, *os.File, error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
	}
	s := &Stream{
		f: os.NewFile(uintptr(fds[0]), "output of "+name), lines: splitter{log: l, name: name},
		flush: make(chan chan struct{}, 1), done: make(chan struct{}),
	}
	go s.carry()
	return s, os.NewFile(uintptr(fds[1]), "output of "+name), nil
}

// carry reads until nobody holds the other end.
func (s *Stream) carry() {
	defer close(s.done)
	defer s.f.Close()
	defer s.lines.end()
	b := make([]byte, 32<<10)
	for {
		n, err := s.f.Read(b)
		s.lines.take(b[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !s.drain(b) {
				return
			}
		case err != nil:
			return
		}
	}
}

// drain takes what is in the pipe and ends the line; what the process left
// behind may go on to write. It tells whether somebody may.
func (s *Stream) drain(b []byte) bool {
	defer func() {
		s.lines.end()
		close(<-s.flush)
	}()
	if s.f.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	raw, err := s.f.SyscallConn()
	if err != nil {
		return false
	}
	for total := 0; total <= drainMost; {
		var n int
		var readErr error
		if err := raw.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), b)
			return true
		}); err != nil {
			return false
		}
		switch {
		case errors.Is(readErr, syscall.EINTR):
			continue
		case errors.Is(readErr, syscall.EAGAIN):
			return true
		case readErr != nil || n <= 0:
			return false
		}
		s.lines.take(b[:n])
		total += n
	}
	return true
}

// Flush returns once everything is in the log that the process printed before
// it ended. It is called once.
func (s *Stream) Flush() {
	taken := make(chan struct{})
	s.flush <- taken
	if s.f.SetReadDeadline(time.Unix(1, 0)) != nil {
		<-s.done
		return
	}
	select {
	case <-taken:
	case <-s.done:
	}
}

// Done is closed when nobody can print any more.
func (s *Stream) Done() <-chan struct{} { return s.done }

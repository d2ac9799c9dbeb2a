package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ttyRelay copies between a terminal and the master of a pty. It works on plain
// descriptors with poll(2): O_NONBLOCK on the caller's terminal would be seen
// by every process that shares it, and a blocked read could not be ended.
type ttyRelay struct {
	in, out int // the caller's terminal; not owned
	ended   chan struct{}
	copied  chan struct{} // closed when the output side has ended
	bytes   atomic.Int64  // copied to out so far
	writing atomic.Bool   // the terminal is slow to take them
	// question is when something was copied that it may answer (Unix nanoseconds).
	question atomic.Int64
	loops    sync.WaitGroup

	stopRead, stopWrite   int // a pipe; closing the write end ends both loops
	nudgeRead, nudgeWrite int // a pipe; a byte makes the input side look again

	mu      sync.Mutex
	master  int // ours, non-blocking; -1 once closed
	stopped bool
}

// newTTYRelay takes master over.
func newTTYRelay(in, out int, master *os.File) (*ttyRelay, error) {
	defer master.Close()
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate terminal: %w", err)
	}
	r := &ttyRelay{in: in, out: out, master: fd, ended: make(chan struct{}), copied: make(chan struct{})}
	var stop, nudge [2]int
	err = errors.Join(
		unix.SetNonblock(fd, true),
		unix.Pipe2(stop[:], unix.O_CLOEXEC|unix.O_NONBLOCK),
		unix.Pipe2(nudge[:], unix.O_CLOEXEC|unix.O_NONBLOCK),
	)
	r.stopRead, r.stopWrite, r.nudgeRead, r.nudgeWrite = stop[0], stop[1], nudge[0], nudge[1]
	if err != nil {
		r.close()
		return nil, fmt.Errorf("prepare terminal relay: %w", err)
	}
	return r, nil
}

// start runs both loops. They end together: with stop, when every slave is
// closed, or when the caller's terminal is gone. ask makes the output side call
// mayRead too, so that a password prompt does not appear before its echo is off.
func (r *ttyRelay) start(mayRead func() (now, settled bool), ask bool) {
	r.loops.Go(func() {
		defer close(r.copied)
		before := func() {}
		if ask {
			before = func() { mayRead() }
		}
		r.copyOut(before)
		r.stop()
	})
	r.loops.Go(func() { r.copyIn(mayRead) })
	go func() {
		r.loops.Wait()
		r.close()
		close(r.ended)
	}()
}

// stop makes both loops end.
func (r *ttyRelay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped && r.stopWrite > 0 {
		unix.Close(r.stopWrite)
	}
	r.stopped = true
}

func (r *ttyRelay) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// close closes the master, which hangs up the terminal inside.
func (r *ttyRelay) close() {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fd := range []*int{&r.master, &r.stopRead, &r.nudgeRead, &r.nudgeWrite} {
		if *fd > 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
}

// withMaster runs f unless the master is closed.
func (r *ttyRelay) withMaster(f func(master int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.master >= 0 {
		f(r.master)
	}
}

// nudge makes the input side ask mayRead again.
func (r *ttyRelay) nudge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nudgeWrite >= 0 {
		// A full pipe holds a nudge already.
		_, _ = unix.Write(r.nudgeWrite, []byte{0})
	}
}

// drain waits for the output side to end, as long as it makes progress: for
// quiet when nothing comes, for stuck when the terminal takes nothing.
func (r *ttyRelay) drain(quiet, stuck time.Duration) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	before, moved := r.bytes.Load(), time.Now()
	for {
		select {
		case <-r.copied:
			return
		case <-tick.C:
		}
		if now := r.bytes.Load(); now != before {
			before, moved = now, time.Now()
			continue
		}
		if !r.writing.Load() || time.Since(moved) > stuck {
			return
		}
	}
}

// copyOut copies from the sandbox to the terminal until one of them is gone.
func (r *ttyRelay) copyOut(before func()) {
	buf := make([]byte, 32<<10)
	for !r.isStopped() {
		n, err := unix.Read(r.master, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if !r.await(r.master, unix.POLLIN) {
				return
			}
		case err != nil || n == 0:
			return // EIO: every slave is closed and everything has been read
		default:
			before()
			r.writing.Store(true)
			if !r.write(r.out, buf[:n]) {
				return
			}
			if mayAsk(buf[:n]) {
				r.question.Store(time.Now().UnixNano())
			}
			r.bytes.Add(int64(n))
			r.writing.Store(false)
		}
	}
}

// copyIn copies keys to the sandbox while they are the command's. mayRead tells
// whether they are, and whether that is settled until a key arrives.
func (r *ttyRelay) copyIn(mayRead func() (now, settled bool)) {
	buf := make([]byte, 4<<10)
	for {
		ready, hangup, stopped := r.awaitKeys(mayRead())
		if stopped {
			return
		}
		// The answer may have changed while we waited, and a read from the
		// background would stop the whole job with SIGTTIN.
		if now, _ := mayRead(); !ready || !now {
			if hangup {
				r.stop()
				return
			}
			continue
		}
		n, err := unix.Read(r.in, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || (n == 0 && hangup):
			r.stop() // the terminal is gone; closing the master says so inside
			return
		case n == 0:
			// End of file typed in line mode: one of the slave's own.
			if !r.write(r.master, []byte{r.endOfFile()}) {
				return
			}
		default:
			if !r.write(r.master, buf[:n]) {
				return
			}
		}
	}
}

// awaitKeys waits for a key, or for the next time to ask whether keys are ours.
func (r *ttyRelay) awaitKeys(ours, settled bool) (ready, hangup, stopped bool) {
	fds := []unix.PollFd{
		{Fd: int32(r.stopRead), Events: unix.POLLIN},
		{Fd: int32(r.nudgeRead), Events: unix.POLLIN},
		{Fd: int32(r.in)}, // hang-up is always reported
	}
	if ours {
		fds[2].Events = unix.POLLIN
	}
	timeout := int(terminalCheck.Milliseconds())
	if settled {
		timeout = -1
	}
	if _, err := unix.Poll(fds, timeout); err != nil {
		return false, false, false
	}
	if fds[1].Revents != 0 {
		var b [64]byte
		_, _ = unix.Read(r.nudgeRead, b[:])
	}
	at := fds[2].Revents
	return at&unix.POLLIN != 0, at&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0, fds[0].Revents != 0
}

// endOfFile is the slave's end-of-file character.
func (r *ttyRelay) endOfFile() byte {
	if modes, err := unix.IoctlGetTermios(r.master, unix.TCGETS); err == nil {
		return modes.Cc[unix.VEOF]
	}
	return 4
}

// write writes all of b, and tells whether it could.
func (r *ttyRelay) write(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case err == nil:
			b = b[n:]
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if !r.await(fd, unix.POLLOUT) {
				return false
			}
		default:
			return false // EIO, EPIPE: the other side is gone
		}
	}
	return true
}

// await waits until fd is ready; false when the relay is to end.
func (r *ttyRelay) await(fd int, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(r.stopRead), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		return err == nil && fds[0].Revents == 0
	}
}

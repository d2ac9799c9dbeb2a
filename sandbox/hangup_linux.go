package sandbox

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal that closes may signal first and hang up a moment later: shells
// pass SIGHUP on to their jobs before they end.
const (
	hangupWait = 300 * time.Millisecond
	hangupLook = 20 * time.Millisecond
)

// hangup decides what a SIGHUP means. If the terminal is gone, the command gets
// it, as any command would. Otherwise somebody sent it with kill(1).
func (r *run) hangup(group bool) {
	for began := time.Now(); r.owner || r.term != nil; time.Sleep(hangupLook) {
		if r.hungUp() {
			r.pass(unix.SIGHUP, group)
			return
		}
		if time.Since(began) > hangupWait {
			break
		}
	}
	r.Hangup()
}

// hungUp tells whether the terminal that there was at the start is gone.
func (r *run) hungUp() bool {
	if r.owner && !hasTerminal() {
		return true
	}
	return r.term != nil && r.term.hungUp()
}

// hasTerminal tells whether this process has a controlling terminal.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// hungUp tells whether the other end of the terminal is closed.
func (t *Terminal) hungUp() bool { return hungUp(t.tty) }

func hungUp(tty *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(tty.Fd())}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

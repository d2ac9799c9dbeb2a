package sandbox

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How long a terminal may take to answer, how long nothing must come after the
// last answer, and how long we listen at most.
const (
	settleAnswer = 300 * time.Millisecond
	settleQuiet  = 30 * time.Millisecond
	settleMost   = time.Second
)

// statusQuestion is DSR 5 of ECMA-48, which every terminal answers with one of these.
const statusQuestion = "\x1b[5n"

var statusAnswers = [][]byte{[]byte("\x1b[0n"), []byte("\x1b[3n")}

// Settle takes in what a terminal still answers to questions that a program has
// asked it, so that they do not reach the caller's shell as if they were typed.
// It asks a question of its own, which is answered after all others, and drops
// everything that comes, also what was typed ahead. The terminal must be raw.
func Settle(tty, out *os.File) {
	if _, err := unix.Write(int(out.Fd()), []byte(statusQuestion)); err != nil {
		return
	}
	var heard []byte
	wait, end := settleAnswer, time.Now().Add(settleMost)
	for time.Now().Before(end) {
		fds := []unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || fds[0].Revents&unix.POLLIN == 0 {
			break
		}
		b := make([]byte, 4<<10)
		if n, err = unix.Read(int(tty.Fd()), b); err != nil || n <= 0 {
			break
		}
		heard = append(heard[max(0, len(heard)-len(statusQuestion)):], b[:n]...)
		for _, a := range statusAnswers {
			if bytes.Contains(heard, a) {
				// A program may have asked the same, so it need not be ours.
				wait = settleQuiet
			}
		}
	}
	_ = unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH)
}

// questionAge is how long ago a program may have asked for an answer to be awaited.
const questionAge = 2 * time.Second

// mayAsk tells whether output may be a question to the terminal: all begin with
// ESC, its 8-bit form, or are ENQ.
func mayAsk(b []byte) bool { return bytes.ContainsAny(b, "\x1b\x05") || bytes.IndexByte(b, 0x9b) >= 0 }

// asked tells whether the terminal may still have something to answer.
func (r *ttyRelay) asked() bool {
	at := r.question.Load()
	return at != 0 && time.Since(time.Unix(0, at)) < questionAge
}

// settle is Settle at the end of a relay that had the whole terminal.
func (t *Terminal) settle(relay *ttyRelay) {
	t.mu.Lock()
	ours := t.raw && !t.over && !t.paused && t.attend == attendAll && inForeground(t.tty)
	t.mu.Unlock()
	if !ours || !relay.asked() {
		return
	}
	relay.stop() // or it would read the answers
	select {
	case <-relay.ended:
		Settle(t.tty, t.out)
	case <-time.After(terminalQuiet): // the terminal takes no output
	}
}

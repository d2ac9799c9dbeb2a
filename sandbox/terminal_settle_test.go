package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalAnswersStayAway: what a terminal answers to a program that has ended
// already is not what the shell reads next.
func TestTerminalAnswersStayAway(t *testing.T) {
	for _, c := range []struct{ name, question, answers string }{
		{"the place of the cursor", `\033[6n`, "\x1b[1;1R\x1b[0n"},
		{"the same question as ours first", `\033[5n\033[6n`, "\x1b[0n\x1b[1;1R\x1b[0n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScreen(t)
			before := s.modes()
			cmd := s.launch(`stty raw -echo; printf '` + c.question + `END'`)
			s.expect("END")
			s.expect(statusQuestion)
			s.typed(c.answers)
			if code := s.exitOf(cmd); code != 0 {
				t.Errorf("exit code: got %d, want 0", code)
			}
			if after := s.modes(); after != before {
				t.Errorf("modes: got %+v, want %+v", after, before)
			}
			raw := before
			raw.Lflag &^= unix.ICANON
			if err := unix.IoctlSetTermios(int(s.slave.Fd()), unix.TCSETS, &raw); err != nil {
				t.Fatal(err)
			}
			if n, err := unix.IoctlGetInt(int(s.slave.Fd()), unix.TIOCINQ); err != nil || n != 0 {
				t.Errorf("the shell would read %d bytes, %v, want none", n, err)
			}
		})
	}
}

package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTerminalPassesEveryByte(t *testing.T) {
	s := newScreen(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	before := s.modes()
	cmd := s.launch(`stty raw -echo; printf GO; dd bs=1 count=256 status=none; printf END; exit 7`)
	s.expect("GO")
	s.typed(string(all))
	if got := s.expect("END"); got != string(all) {
		t.Errorf("got %q, want all 256 bytes", got)
	}
	if code := s.exitOf(cmd); code != 7 {
		t.Errorf("exit code: got %d, want 7", code)
	}
	if after := s.modes(); after != before {
		t.Errorf("modes: got %+v, want %+v", after, before)
	}
}

func TestTerminalCarriesModesAndSize(t *testing.T) {
	s := newScreen(t)
	m := s.modes()
	m.Cc[unix.VERASE] = 8
	if err := unix.IoctlSetTermios(int(s.slave.Fd()), unix.TCSETS, &m); err != nil {
		t.Fatal(err)
	}
	s.resize(33, 101)
	cmd := s.launch(`trap 'stty size; w=1' WINCH; stty size; stty -a | grep -o '; erase = ..'; until [ "$w" ]; do sleep 0.05; done; exec cat`)
	s.expect("33 101\r\n")
	s.expect("erase = ^H")
	s.resize(44, 102)
	unix.Kill(cmd.Process.Pid, unix.SIGWINCH)
	s.expect("44 102\r\n")
	s.typed("x\x08y\n")
	s.expect("y\r\ny\r\n")
	s.typed("\x04")
	if code := s.exitOf(cmd); code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
}

func TestTerminalInterruptEndsTheCommand(t *testing.T) {
	s := newScreen(t)
	before := s.modes()
	cmd := s.launch(`echo GO; sleep 1000`)
	s.expect("GO")
	s.typed("\x03")
	if code := s.exitOf(cmd); code != 130 {
		t.Errorf("exit code: got %d, want 130", code)
	}
	if after := s.modes(); after != before {
		t.Errorf("modes: got %+v, want %+v", after, before)
	}
}

func TestTerminalForwardsSignals(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, 35} {
		s := newScreen(t)
		cmd := s.launch(fmt.Sprintf(`trap 'echo got; kill $!; exit 9' %d; sleep 100 & echo GO; while :; do wait; done`, sig))
		s.expect("GO")
		unix.Kill(cmd.Process.Pid, sig)
		s.expect("got")
		if code := s.exitOf(cmd); code != 9 {
			t.Errorf("signal %d: got exit code %d, want 9", sig, code)
		}
	}
}

func TestTerminalDrainsTheLastByte(t *testing.T) {
	s := newScreen(t)
	cmd := s.launch(`seq 1 60000; printf LAST`)
	got := s.expect("LAST")
	if !strings.HasPrefix(got, "1\r\n2\r\n") || !strings.HasSuffix(got, "60000\r\n") || strings.Count(got, "\r\n") != 60000 {
		t.Errorf("got %d bytes ending %q", len(got), got[max(0, len(got)-20):])
	}
	if code := s.exitOf(cmd); code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
}

func TestTerminalSuspendsAndResumes(t *testing.T) {
	s := newScreen(t)
	s.shell()
	before := s.modes()
	s.typed("hw 'echo G''O; exec cat'\n")
	s.expect("GO")
	s.typed("one\n")
	s.expect("one\r\none\r\n")
	s.typed("\x1a")
	s.expect("Stopped")
	s.expect("$ ")
	if after := s.modes(); after != before {
		t.Errorf("modes while stopped: got %+v, want %+v", after, before)
	}
	s.typed("echo sh''ell\n")
	s.expect("shell")
	s.typed("fg\n")
	s.expect("Launcher$'\r\n")
	s.typed("two\n")
	s.expect("two\r\ntwo\r\n")
	s.typed("\x04")
	s.expect("$ ")
	if after := s.modes(); after != before {
		t.Errorf("modes at the end: got %+v, want %+v", after, before)
	}
}

func TestTerminalInBackgroundLeavesTheKeyboard(t *testing.T) {
	s := newScreen(t)
	s.shell()
	before := s.modes()
	s.typed("hw 'echo G''O; exec cat' &\n")
	s.expect("GO")
	if after := s.modes(); after != before {
		t.Errorf("modes: got %+v, want %+v", after, before)
	}
	s.typed("echo sh''ell; jobs\n")
	s.expect("shell")
	s.expect("Running")
	s.typed("fg\n")
	s.typed("three\n")
	s.expect("three\r\nthree\r\n")
	s.typed("\x04")
	s.expect("$ ")
	s.typed("echo sh''ell again\n")
	s.expect("shell again")
}

func TestTerminalHangupEndsTheCommand(t *testing.T) {
	s := newScreen(t)
	dir := t.TempDir()
	cmd := s.launch(`trap 'echo hup > ` + dir + `/hup; kill $!; exit 0' HUP; sleep 100 & echo GO; while :; do wait; done`)
	s.expect("GO")
	s.slave.Close()
	s.file.Close()
	s.exitOf(cmd)
	if b, err := os.ReadFile(dir + "/hup"); err != nil || string(b) != "hup\n" {
		t.Errorf("got %q, %v, want the hang-up to arrive", b, err)
	}
}

func TestTerminalSharedWithAPager(t *testing.T) {
	s := newScreen(t)
	s.shell()
	before := s.modes()
	s.typed("hw 'echo data; exec sleep 3' | { stty -icanon < /dev/tty; read -r l; echo got $l; head -c 3 < /dev/tty; stty icanon < /dev/tty; echo done; }\n")
	s.expect("got data")
	s.typed("abc")
	s.expect("abc")
	s.expect("done")
	s.expect("$ ")
	if after := s.modes(); after != before {
		t.Errorf("modes: got %+v, want %+v", after, before)
	}
}

func TestTerminalPasswordPromptWithPipedInput(t *testing.T) {
	s := newScreen(t)
	s.shell()
	before := s.modes()
	s.typed("echo data | hw 'read -r l; read -rs -p Pa''ss: p < /dev/tty; echo; echo got $l $p'\n")
	s.expect("Pass:")
	s.awaitModes(func(m unix.Termios) bool { return m.Lflag&unix.ECHO == 0 })
	s.typed("secret\n")
	if got := s.expect("got data secret"); strings.Contains(got, "secret") {
		t.Errorf("got an echo %q, want none", got)
	}
	s.expect("$ ")
	if after := s.modes(); after != before {
		t.Errorf("modes: got %+v, want %+v", after, before)
	}
}

func TestFindTerminal(t *testing.T) {
	s := newScreen(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cases := []struct {
		name string
		fds  [3]*os.File
		is   [3]bool
		want attention
		none bool
	}{
		{"all", [3]*os.File{s.slave, s.slave, s.slave}, [3]bool{true, true, true}, attendAll, false},
		{"output piped", [3]*os.File{s.slave, null, s.slave}, [3]bool{true, false, true}, attendLines, false},
		{"only input", [3]*os.File{s.slave, null, null}, [3]bool{true, false, false}, attendLines, false},
		{"input piped", [3]*os.File{null, s.slave, s.slave}, [3]bool{false, true, true}, attendAsked, false},
		{"only errors", [3]*os.File{null, null, s.slave}, [3]bool{false, false, true}, attendAsked, false},
		{"none", [3]*os.File{null, null, nil}, [3]bool{}, 0, true},
	}
	for _, c := range cases {
		term, is := FindTerminal(c.fds)
		if is != c.is || (term == nil) != c.none {
			t.Errorf("%s: got %v, %v, want %v", c.name, term, is, c.is)
		}
		if term != nil && term.attend != c.want {
			t.Errorf("%s: got attention %v, want %v", c.name, term.attend, c.want)
		}
		for range 3 {
			term.Restore()
			term.Drain()
		}
	}
}

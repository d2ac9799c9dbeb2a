package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
)

func (c *commandLine) attach() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attach [NAME]", Short: "Look at a run in the background, and type",
		Long: "attach connects this terminal to the one of a run that was started with --detach --tty, and\n" +
			"shows what it showed last. One at a time types; others look on with --read-only. Without a\n" +
			"terminal the run's log is followed. The detach keys leave the run alone, as does the end of\n" +
			"this terminal.\n\n" + sessionHelp + "Exit code: that of the run, once it ended; 0 after the detach keys.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeLive,
	}
	keys := cmd.Flags().String("detach-keys", "ctrl-p,ctrl-q", "what to type to leave")
	readOnly := cmd.Flags().Bool("read-only", false, "look on, and type nothing")
	_ = cmd.RegisterFlagCompletionFunc("detach-keys", cobra.NoFileCompletions)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		leave, err := parseKeys(*keys)
		if err != nil {
			return c.did(err)
		}
		e, err := liveSession(args)
		if err != nil {
			return c.did(err)
		}
		switch {
		case e.Path != "" && !e.Detached:
			return c.did(&hintedError{
				fmt.Errorf("session %q was not started in the background: it has the terminal of process %d", e.Name, e.Pid),
				fmt.Sprintf("open a terminal beside it: hermes-wrap exec %s -- sh; start it with --detach --tty to attach to it later", e.Name),
			})
		case e.Path != "" && !e.Terminal:
			return c.did(c.followToEnd(e))
		}
		c.code, err = attachTo(e, c.voice, leave, *readOnly)
		return c.did(err)
	}
	return cmd
}

// parseKeys reads "ctrl-p,ctrl-q" or "ctrl-a,d".
func parseKeys(s string) (keys []byte, err error) {
	for word := range strings.SplitSeq(s, ",") {
		key, control := strings.CutPrefix(strings.ToLower(word), "ctrl-")
		switch {
		case !control && len(word) == 1 && word[0] > ' ' && word[0] < 0x7f:
			keys = append(keys, word[0])
		case control && len(key) == 1 && (key[0] >= '@' && key[0] <= '_' || key[0] >= 'a' && key[0] <= 'z'):
			keys = append(keys, key[0]&0x1f)
		default:
			return nil, &hintedError{fmt.Errorf("read --detach-keys %q: %q is no key", s, word), "write keys as ctrl-X or as one character, with commas: ctrl-p,ctrl-q"}
		}
	}
	return keys, nil
}

// keyFilter looks for the detach keys in what is typed.
type keyFilter struct {
	keys []byte
	met  int // how many of them were typed last
}

// pass gives what goes to the run, and whether the keys were typed. Keys that
// may be the beginning are held back until that is known.
func (k *keyFilter) pass(typed []byte) (on []byte, leave bool) {
	for _, b := range typed {
		for k.met > 0 && b != k.keys[k.met] {
			// What was held back begins with a key that is none of ours after all;
			// the rest of it may still be a beginning.
			held := k.keys[:k.met]
			on = append(on, held[0])
			k.met = 0
			for n := len(held) - 1; n > 0; n-- {
				if bytes.Equal(held[len(held)-n:], k.keys[:n]) {
					k.met = n
					break
				}
				on = append(on, held[len(held)-n])
			}
		}
		if b != k.keys[k.met] {
			on = append(on, b)
			continue
		}
		if k.met++; k.met == len(k.keys) {
			k.met = 0
			return on, true
		}
	}
	return on, false
}

// attachment is one who looks at a run.
type attachment struct {
	peer   *peer
	stream net.Conn
	keys   keyFilter
	left   chan struct{} // one token: the caller leaves
}

// attachTo shows a run's terminal until the run is over or the caller leaves.
func attachTo(e session.Entry, v voice, keys []byte, readOnly bool) (code int, err error) {
	if !isTerminal(os.Stdout) {
		readOnly = true
	}
	size := sizeOf(os.Stdout, os.Stdin)
	p, err := dialRun(e, controlWord)
	if err != nil {
		return 0, err
	}
	defer p.close()
	a, files, err := p.ask(controlRequest{Op: opAttach, Attach: &attachRequest{Rows: size.Row, Cols: size.Col, ReadOnly: readOnly}}, controlWord)
	if err == nil {
		err = a.err()
	}
	if err == nil && len(files) != 1 {
		err = errors.New("BUG: the run sent no terminal")
	}
	if err != nil {
		closeFiles(files)
		return 0, err
	}
	stream, err := net.FileConn(files[0])
	closeFiles(files)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	at := &attachment{peer: p, stream: stream, keys: keyFilter{keys: keys}, left: make(chan struct{}, 1)}
	restore := func() {}
	if isTerminal(os.Stdin) {
		if restore, err = makeRaw(os.Stdin); err != nil {
			return 0, err
		}
		go at.typing(readOnly)
	}
	go at.signals()
	shown, ended := make(chan bool, 1), make(chan *controlExit, 1)
	go func() { shown <- at.show() }()
	go func() { ended <- at.exit() }()
	select {
	case <-at.left:
		giveBack(<-at.stopped(shown), restore)
		v.note("detached from " + e.Name + "; the run goes on")
		return exitOK, nil
	case end := <-ended:
		giveBack(<-shown, restore)
		if end == nil {
			return 0, fmt.Errorf("session %q is gone", e.Name)
		}
		return end.Code, nil
	}
}

// stopped ends what shows the terminal.
func (at *attachment) stopped(shown chan bool) chan bool {
	_ = at.stream.Close()
	return shown
}

// show prints what the terminal shows. It tells whether a program left it in
// its second screen.
func (at *attachment) show() (special bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := at.stream.Read(b)
		on, off := bytes.LastIndex(b[:n], []byte("\x1b[?1049h")), bytes.LastIndex(b[:n], []byte("\x1b[?1049l"))
		if on != off {
			special = on > off
		}
		if _, werr := os.Stdout.Write(b[:n]); err != nil || werr != nil {
			return special
		}
	}
}

// giveBack makes the terminal the shell's again. What it still answers to the
// run's programs is not the shell's to read.
func giveBack(special bool, restore func()) {
	if isTerminal(os.Stdout) {
		fmt.Print(plainScreen(special))
		if isTerminal(os.Stdin) {
			sandbox.Settle(os.Stdin, os.Stdout)
		}
	}
	restore()
}

// plainScreen is what gives a terminal back to a shell: no second screen, no
// keys in other forms, no reports of mouse or focus, no marks around what is pasted, no
// scroll region, no link, no colours, a cursor.
func plainScreen(special bool) string {
	s := "\x1b[=0u\x1b[>4;0m\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2004l\x1b[?2026l" +
		"\x1b[?1l\x1b>\x1b[4l\x1b[?6l\x1b[?7h\x1b7\x1b[r\x1b8\x1b(B\x0f\x1b]8;;\x1b\\\x1b[0m\x1b[?25h"
	if special {
		s = "\x1b[?1049l" + s
	}
	return s + "\r\n"
}

// typing carries keys to the run.
func (at *attachment) typing(readOnly bool) {
	b := make([]byte, 4096)
	for {
		n, err := os.Stdin.Read(b)
		on, leave := at.keys.pass(b[:n])
		if !readOnly && len(on) > 0 {
			if _, err := at.stream.Write(on); err != nil {
				return
			}
		}
		if leave || err != nil || readOnly && bytes.IndexByte(b[:n], 3) >= 0 {
			at.leave()
			return
		}
	}
}

func (at *attachment) leave() {
	select {
	case at.left <- struct{}{}:
	default:
	}
}

// signals tells the run of the terminal's size; every other signal leaves.
func (at *attachment) signals() {
	in := make(chan os.Signal, 8)
	signal.Notify(in, unix.SIGWINCH, unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	for s := range in {
		if s != unix.SIGWINCH {
			at.leave()
			continue
		}
		size := sizeOf(os.Stdout, os.Stdin)
		_ = at.peer.send(controlOrder{Rows: size.Row, Cols: size.Col})
	}
}

// exit waits for the run's end.
func (at *attachment) exit() *controlExit {
	var a controlAnswer
	files, err := at.peer.receive(&a, 0)
	closeFiles(files)
	if err != nil {
		return nil
	}
	return a.Exit
}

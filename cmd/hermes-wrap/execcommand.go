package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func (c *commandLine) exec() *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec [NAME] -- COMMAND [ARG…]", Short: "Run one more command in a sandbox that is live",
		Long: "exec starts a command in the sandbox of a run: under the same confinement and limits, with the\n" +
			"environment of the run's own command. It gets a terminal of its own when one of its standard\n" +
			"streams is a terminal; the caller's never comes inside.\n\n" + sessionHelp +
			"Exit code: that of the command; 125 hermes-wrap failed; 126 not executable; 127 not found.",
		Args: afterName, ValidArgsFunction: c.completeLive,
	}
	f := cmd.Flags()
	tty := f.BoolP("tty", "t", false, "make a terminal, whatever the standard streams are")
	noTTY := f.BoolP("no-tty", "T", false, "make no terminal: the streams are pipes")
	env := f.StringArray("env", nil, "set `NAME=VALUE`, if the policy allows the name")
	cwd := f.StringP("cwd", "C", "", "start in this `DIRECTORY` inside")
	cmd.MarkFlagsMutuallyExclusive("tty", "no-tty")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := cmd.ArgsLenAtDash()
		e, err := liveSession(args[:at])
		if err != nil {
			return c.did(err)
		}
		p, err := dialRun(e, controlWord)
		if err != nil {
			return c.did(err)
		}
		defer p.close()
		x := execution{peer: p, voice: c.voice, stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}}
		x.request = execRequest{Argv: args[at:], Env: *env, Cwd: *cwd, Term: os.Getenv("TERM")}
		if err := x.prepare(*tty, *noTTY); err != nil {
			return c.did(err)
		}
		if c.code, err = x.run(); err != nil {
			return c.did(err)
		}
		return nil
	}
	return cmd
}

// afterName accepts at most a name before the dashes and a command behind them.
func afterName(cmd *cobra.Command, args []string) error {
	at := cmd.ArgsLenAtDash()
	switch {
	case at < 0 || at == len(args):
		return errors.New("no command behind --")
	case at > 1:
		return fmt.Errorf("got %d names before --, want one", at)
	}
	return nil
}

// execution is one command in a run, as its caller sees it.
type execution struct {
	peer    *peer
	voice   voice
	stdio   [3]*os.File
	request execRequest
	files   []*os.File        // the streams that go inside
	term    *sandbox.Terminal // the caller's; nil: the command gets none, or no terminal is there to show it
	carry   []func()          // between the caller's streams and those that go inside
}

// prepare decides what the command's standard streams are. The caller's terminal
// is none of them, whoever asks for what.
func (x *execution) prepare(tty, noTTY bool) error {
	var is [3]bool
	term, is := sandbox.FindTerminal(x.stdio)
	if noTTY {
		return x.pipes(is)
	}
	if x.request.Terminal = tty || term != nil; x.request.Terminal {
		x.term = term
		size := sizeOf(x.stdio[:]...)
		x.request.Rows, x.request.Cols = size.Row, size.Col
	}
	for i, f := range x.stdio {
		if is[i] || x.request.Terminal && term == nil {
			continue
		}
		x.request.Streams, x.files = append(x.request.Streams, i), append(x.files, f)
	}
	return nil
}

// pipes puts a pipe before each stream that is a terminal.
func (x *execution) pipes(is [3]bool) error {
	for i, f := range x.stdio {
		if is[i] {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			from, to, inside := r, f, w
			if i == 0 {
				from, to, inside = f, w, r
			}
			x.carry = append(x.carry, func() {
				_, _ = io.Copy(to, from)
				if to == w {
					w.Close()
				}
			})
			f = inside
		}
		x.request.Streams, x.files = append(x.request.Streams, i), append(x.files, f)
	}
	return nil
}

// execGrace is how long a signal waits for the command to start. One that meets a
// run that does not answer does to us what it does to any program.
const execGrace = 2 * time.Second

// run starts the command and waits for it.
func (x *execution) run() (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun, left := make(chan struct{}), make(chan int, 1)
	// Caught before the command can run, since it may run before its answer is here.
	sandbox.ForwardSignals(ctx, func(sig unix.Signal, _ bool) {
		select {
		case <-begun:
			x.signal(sig, left)
		case <-ctx.Done():
		case <-time.After(execGrace):
			signal.Reset(sig)
			_ = unix.Kill(unix.Getpid(), sig)
		}
	})
	a, got, err := x.peer.ask(controlRequest{Op: opExec, Exec: &x.request}, controlWord, x.files...)
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return 0, err
	}
	out := x.carryOn()
	if x.request.Terminal {
		if len(got) != 1 {
			return 0, errors.New("BUG: the run sent no terminal")
		}
		if out, err = x.show(got[0]); err != nil {
			return 0, err
		}
	}
	defer x.term.Restore()
	close(begun)
	ended := make(chan *controlExit, 1)
	go func() { ended <- x.exit() }()
	select {
	case code := <-left:
		return code, nil
	case e := <-ended:
		if e == nil {
			return 0, errors.New("the run is gone, and the command with it")
		}
		x.term.Drain()
		<-out
		x.term.Restore()
		if e.Note != "" {
			x.voice.note(e.Note)
		}
		return e.Code, nil
	}
}

// carryOn begins to copy between the caller's streams and the pipes. The channel
// is closed when all output was copied.
func (x *execution) carryOn() <-chan struct{} {
	for i, f := range x.files {
		if f != x.stdio[x.request.Streams[i]] {
			f.Close() // the run has it
		}
	}
	done := make(chan struct{})
	outputs := x.carry
	if len(outputs) > 0 && isTerminal(x.stdio[0]) {
		go outputs[0]() // nobody waits for what is typed
		outputs = outputs[1:]
	}
	go func() {
		defer close(done)
		ends := make(chan struct{}, len(outputs))
		for _, copying := range outputs {
			go func() { copying(); ends <- struct{}{} }()
		}
		for range outputs {
			<-ends
		}
	}()
	return done
}

// show puts the command's terminal on the caller's, or copies between it and the
// standard streams where there is none.
func (x *execution) show(master *os.File) (<-chan struct{}, error) {
	done := make(chan struct{})
	if x.term != nil {
		close(done)
		return done, x.term.Start(master)
	}
	go func() { _, _ = io.Copy(master, x.stdio[0]) }()
	go func() {
		defer close(done)
		_, _ = io.Copy(x.stdio[1], master)
	}()
	return done, nil
}

// signal takes a signal that this process got.
func (x *execution) signal(sig unix.Signal, left chan<- int) {
	switch {
	case sig == unix.SIGWINCH:
		x.term.Resize()
	case sig == unix.SIGTSTP:
		if x.term.Suspend() == nil {
			_ = x.term.Resume()
		}
	case sig == unix.SIGHUP && x.term != nil:
		left <- exitSignalled + int(sig) // the terminal is gone, and so are we
	case !slices.Contains([]unix.Signal{unix.SIGCONT, unix.SIGIO}, sig):
		_ = x.peer.send(controlOrder{Signal: int(sig)})
	}
}

// exit waits for the command's end.
func (x *execution) exit() *controlExit {
	var a controlAnswer
	files, err := x.peer.receive(&a, 0)
	closeFiles(files)
	if err != nil {
		return nil
	}
	return a.Exit
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxyLife is one proxy of a run, as the launcher sees it.
type proxyLife struct {
	writer string                // of its part of the record
	proc   *sandbox.ProxyProcess // nil where there is none of ours to kill
	words  *lastWords
	ended  chan struct{} // closed when it says nothing more

	receive func(v any) ([]*os.File, error) // for one caller at a time

	begun  atomic.Bool           // its part of the record
	reason atomic.Pointer[error] // why the launcher killed it

	mu sync.Mutex
	c  *sandbox.Channel // nil once it is closed
}

func newProxyLife(writer string, c *sandbox.Channel) *proxyLife {
	return &proxyLife{writer: writer, c: c, receive: c.Receive, ended: make(chan struct{})}
}

// send says something to the proxy. It waits only for a proxy that takes nothing,
// until that is killed.
func (l *proxyLife) send(v any, files ...*os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == nil {
		return errors.New("the proxy ended")
	}
	return l.c.Send(v, files...)
}

// hear waits for the next thing that the proxy says. No event comes with
// descriptors: those of a proxy that was taken over must not fill our table.
func (l *proxyLife) hear() (e proxyEvent, err error) {
	files, err := l.receive(&e)
	closeFiles(files)
	return e, err
}

// condemn kills the proxy. The first reason counts.
func (l *proxyLife) condemn(reason error) {
	if l.proc == nil {
		return
	}
	l.reason.CompareAndSwap(nil, &reason)
	l.proc.Kill()
}

// explain puts the reason for which the launcher killed the proxy in the place of
// the end of its connection.
func (l *proxyLife) explain(err error) error {
	if reason := l.reason.Load(); reason != nil && errors.Is(err, errProxyEnded) {
		return fmt.Errorf("the proxy was killed: %w", *reason)
	}
	return err
}

// bury ends what is left of the proxy once it says nothing more, and tells why it
// ended.
func (l *proxyLife) bury() error {
	l.close()
	if l.proc == nil {
		return errors.New("it closed its connection")
	}
	l.proc.Kill() // one that closed its connection and lives on serves nobody
	status, err := l.proc.Wait()
	if err != nil {
		return err
	}
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return errors.New(howEnded(status) + l.words.cause())
}

// endsWithin waits, for so long at most, until it says nothing more.
func (l *proxyLife) endsWithin(d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-l.ended:
		return true
	case <-late.C:
		return false
	}
}

func (l *proxyLife) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		_ = l.c.HangUp()
		l.c = nil
	}
}

func howEnded(ws unix.WaitStatus) string {
	if ws.Signaled() {
		return fmt.Sprintf("signal %d (%v)", int(ws.Signal()), ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// lastWords reads what a proxy writes to its standard error, which is nothing
// unless the Go runtime ends it. It must not reach the terminal as it is: a panic
// can hold anything.
type lastWords struct {
	done chan struct{}
	head []byte
}

const (
	maxWords  = 16 << 10
	maxFrames = 6
	// wordsLimit bounds how long they are waited for once the proxy is dead.
	wordsLimit = time.Second
)

func hear(r *os.File) *lastWords {
	w := &lastWords{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer r.Close()
		w.head, _ = io.ReadAll(io.LimitReader(r, maxWords))
		_, _ = io.Copy(io.Discard, r)
	}()
	return w
}

// cause gives what the Go runtime said, as far as it cannot hold a secret: its
// own errors, and the names of functions.
func (w *lastWords) cause() string {
	if w == nil {
		return ""
	}
	select {
	case <-w.done:
		return causeOf(string(w.head))
	case <-time.After(wordsLimit):
		return ""
	}
}

func causeOf(text string) string {
	var said string
	var frames []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case inside && line == "":
			inside = false
		case inside && line[0] != '\t' && len(frames) < maxFrames:
			if at := strings.LastIndexByte(line, '('); at > 0 {
				frames = append(frames, line[:at])
			}
		case said == "" && (strings.HasPrefix(line, "panic: runtime error: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG")):
			said = line
		case said == "" && strings.HasPrefix(line, "panic: "):
			said = "panic"
		case said != "" && len(frames) == 0 && strings.HasPrefix(line, "goroutine "):
			inside = true
		}
	}
	if said == "" {
		return ""
	}
	if len(frames) > 0 {
		said += " in " + strings.Join(frames, ", ")
	}
	return ": " + said
}

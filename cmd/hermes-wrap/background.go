package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/supervise"
)

// launcherArg0 is how our own executable knows that it is a launcher in the
// background. Descriptor 3 is then a pipe to whoever started it.
const (
	launcherArg0 = "hermes-wrap: launcher"
	reportFd     = 3
)

func isBackgroundRole() bool { return os.Args[0] == launcherArg0 }

// report is what a launcher in the background says until the command runs: first
// what a foreground run would print, at last Started.
type report struct {
	Say     string `json:"say,omitempty"` // bytes for standard error
	Started string `json:"started,omitempty"`
}

// detach starts a launcher in the background with the arguments that this one
// was given, and returns when the command runs, or with the exit code of a run
// that failed.
func detach(args []string) (name string, code int, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{launcherArg0}, args...)
	cmd.ExtraFiles = []*os.File{theirs}
	// A session of its own: no terminal's signals reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// What else the caller had open (a lock, a pipe that is read to its end) must
	// not stay open for as long as the run lasts.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", 0, fmt.Errorf("close what was inherited: %w", err)
	}
	err = sandbox.Attentive(cmd.Start)
	theirs.Close()
	if err != nil {
		return "", 0, fmt.Errorf("start the launcher: %w", err)
	}
	for d := json.NewDecoder(ours); ; {
		var r report
		if d.Decode(&r) != nil {
			break
		}
		if _, err := io.WriteString(os.Stderr, r.Say); err != nil {
			return "", 0, err
		}
		if r.Started != "" {
			return r.Started, exitOK, nil
		}
	}
	var ended *exec.ExitError
	switch err := cmd.Wait(); {
	case err == nil: // it ended well, and before it could say that it began
		return "", exitOK, nil
	case !errors.As(err, &ended):
		return "", 0, fmt.Errorf("wait for the launcher: %w", err)
	}
	if ws, ok := ended.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return "", 0, fmt.Errorf("the launcher was killed by signal %d", ws.Signal())
	}
	return "", ended.ExitCode(), nil
}

// background is a launcher's end of it: where it reports to, and where the run's
// output goes.
type background struct {
	mu     sync.Mutex
	report *os.File // nil once the command runs
	log    *supervise.Log
}

// newBackground takes the pipe over.
func newBackground() (*background, error) {
	if _, err := unix.FcntlInt(reportFd, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, errors.New("nobody waits for this launcher; start a run with hermes-wrap --detach")
	}
	return &background{report: os.NewFile(reportFd, "report")}, nil
}

// Write is what the launcher prints for people: to whoever started it, and later
// to the log.
func (b *background) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.report != nil:
		return len(text), json.NewEncoder(b.report).Encode(report{Say: string(text)})
	case b.log != nil:
		b.log.Say(launcherName, strings.TrimPrefix(strings.TrimRight(string(text), "\r\n"), launcherName+": "))
	}
	return len(text), nil
}

// launcherName stands for the launcher in the log.
const launcherName = "hermes-wrap"

// started lets whoever waits go.
func (b *background) started(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := json.NewEncoder(b.report).Encode(report{Started: name})
	err = errors.Join(err, b.report.Close())
	b.report = nil
	return err
}

// The log's size and number where the policy says nothing.
const (
	logMaxSize = 16 << 20
	logKeep    = 4
)

// toLog has what the launcher says from now on written to a log as well.
func (b *background) toLog(log *supervise.Log) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = log
}

// openLog opens the log of a run in the background. What this process and its
// proxy print by accident, such as the trace of a crash, goes there too.
func (l *launch) openLog() (*supervise.Log, error) {
	path := l.logPath()
	f, err := l.openLogFile(func(err error, lost int) {
		if err == nil { // it can be written again
			go l.voice.warn(fmt.Sprintf("the log lacks %d lines", lost))
		}
	})
	if err != nil {
		return nil, err
	}
	plain, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	if err := unix.Dup3(int(plain.Fd()), 2, 0); err != nil {
		return nil, os.NewSyscallError("dup3", err)
	}
	return &supervise.Log{File: f}, l.update(func(r *session.Record) {
		r.Log, r.Detached, r.Terminal = path, true, l.flags.tty
	})
}

// logPath is where the run's output is kept.
func (l *launch) logPath() string {
	return cmp.Or(l.prep.policy.Supervise.Log.File.Abs, filepath.Join(l.session.Path, session.LogName))
}

// openLogFile opens the log itself.
func (l *launch) openLogFile(failed func(err error, lost int)) (*supervise.File, error) {
	s := l.prep.policy.Supervise.Log
	if err := os.MkdirAll(filepath.Dir(l.logPath()), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	return supervise.OpenFile(l.logPath(), cmp.Or(int64(s.MaxSize), logMaxSize), cmp.Or(s.Keep, logKeep), failed)
}

// output is where the command's standard streams lead.
type output struct {
	stdio  [3]*os.File
	screen *screen // nil: a run in the foreground, or one without a terminal
	close  func()  // returns when everything is in the log
}

// openOutput gives a run in the foreground the caller's streams, and one in the
// background a log, with a terminal before it if asked for.
func (l *launch) openOutput() (o output, err error) {
	if l.supervised() { // each service has streams of its own
		if l.flags.tty {
			return o, &hintedError{errors.New("--tty: services under supervision have no terminal"), "leave --tty out, and open a terminal beside them: hermes-wrap exec"}
		}
		return output{close: func() {}}, nil
	}
	if l.back == nil {
		return output{stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, close: func() {}}, nil
	}
	log, err := l.openLog()
	if err != nil {
		return o, err
	}
	l.back.toLog(log)
	stream, w, err := log.NewStream(supervise.Main)
	if err != nil {
		return o, err
	}
	o = output{stdio: [3]*os.File{os.Stdin, w, w}}
	if l.flags.tty {
		if o.screen, err = openScreen(w); err != nil {
			return o, err
		}
		o.stdio = [3]*os.File{o.screen.slave, o.screen.slave, o.screen.slave}
	}
	o.close = func() {
		if o.screen != nil {
			o.screen.close()
		}
		w.Close()
		select {
		case <-stream.Done():
		case <-time.After(farewellLimit):
		}
	}
	return o, nil
}

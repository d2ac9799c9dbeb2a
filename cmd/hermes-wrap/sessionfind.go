package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/session"
)

// sessionHelp says how a session is named.
const sessionHelp = "NAME is the session's name, or the beginning of it or of the run's identifier; it can be left\n" +
	"out when one run is live. Root reaches the run of another user by the path of its directory.\n"

// stateHomeOfUs is where this user's sessions lie.
func stateHomeOfUs() (string, error) {
	who, err := whoCalls()
	return who.stateHome(), err
}

// noSession is the error for a name that nobody has.
func noSession(name string) error {
	return &hintedError{fmt.Errorf("no session %q", name), "hermes-wrap ps --all lists them"}
}

// findSession gives the session of a name. A live one may also be named by a
// beginning, of its name or of its run's identifier, or not at all if it is the
// only one. A name with a slash is the directory of a run.
func findSession(name string) (session.Entry, error) {
	if strings.Contains(name, "/") {
		r := session.Record{Name: name, RunDir: name}
		return session.Entry{Record: r, Live: true}, nil
	}
	stateHome, err := stateHomeOfUs()
	if err != nil {
		return session.Entry{}, err
	}
	if e, err := session.Find(stateHome, name); err == nil {
		return e, nil
	}
	all, err := session.List(stateHome)
	if err != nil {
		return session.Entry{}, err
	}
	var found []session.Entry
	for _, e := range all {
		if e.Live && (strings.HasPrefix(e.Name, name) || strings.HasPrefix(e.Run, name)) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return session.Entry{}, &choiceError{found}
	case name != "":
		return session.Entry{}, noSession(name)
	}
	return session.Entry{}, &hintedError{errors.New("no run of yours is live"), "hermes-wrap ps --all lists those that ended"}
}

// choiceError lists the sessions that a command could mean.
type choiceError struct{ sessions []session.Entry }

func (e *choiceError) Error() string {
	s := "several runs are live; name one:"
	for _, r := range e.sessions {
		s += fmt.Sprintf("\n%s  %s, policy %s, pid %d, since %s", r.Name, r.Command, r.Policy, r.Pid, r.Started.Local().Format(time.DateTime))
	}
	return s
}

// liveSession gives the session that a command's only argument names.
func liveSession(args []string) (session.Entry, error) {
	e, err := findSession(strings.Join(args, ""))
	if err == nil && !e.Live {
		how := "its launcher was killed"
		if e.ExitCode != nil {
			how = fmt.Sprintf("it ended %s ago with exit code %d", ago(time.Since(e.Ended)), *e.ExitCode)
		}
		return e, &hintedError{fmt.Errorf("session %q does not run: %s", e.Name, how), "hermes-wrap ps lists what runs"}
	}
	return e, err
}

// ago is a duration in one or two units, as people say it.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// completeLive completes the name of one run that is live, completeLives of several.
func (c *commandLine) completeLive(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeLives(cmd, args, "")
}

func (c *commandLine) completeLives(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completeSessions(args, func(e session.Entry) bool { return e.Live })
}

// completeAny completes the name of one session.
func (c *commandLine) completeAny(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeSessions(args, func(session.Entry) bool { return true })
}

func completeSessions(given []string, fits func(session.Entry) bool) (names []string, _ cobra.ShellCompDirective) {
	stateHome, err := stateHomeOfUs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := session.List(stateHome)
	for _, e := range all {
		if fits(e) && !slices.Contains(given, e.Name) {
			names = append(names, e.Name+"\t"+e.Command+", policy "+e.Policy)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// dialRun connects to the control socket of a run. A queue that is full is one
// of the moment.
func dialRun(e session.Entry, wait time.Duration) (*peer, error) {
	unreachable := func(err error) error {
		err = fmt.Errorf("reach the run of session %q in %q: %w", e.Name, e.RunDir, err)
		if e.Pid > 0 {
			return &hintedError{err, fmt.Sprintf("its launcher takes signals all the same: kill %d", e.Pid)}
		}
		return err
	}
	at, err := os.OpenFile(filepath.Clean(e.RunDir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, unreachable(errors.Unwrap(err))
	}
	defer at.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), controlName)
	for end := time.Now().Add(wait); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("unixpacket", path, wait)
		if errors.Is(err, unix.EAGAIN) && time.Now().Before(end) {
			continue
		}
		if err != nil {
			return nil, unreachable(errors.Unwrap(err))
		}
		u, ok := conn.(*net.UnixConn)
		if !ok {
			return nil, errors.New("BUG: a Unix socket was dialled")
		}
		return &peer{conn: u}, nil
	}
}

// askRun sends one request to a run and waits for its answer.
func askRun(e session.Entry, q controlRequest, wait time.Duration) (a controlAnswer, err error) {
	p, err := dialRun(e, wait)
	if err != nil {
		return a, err
	}
	defer p.close()
	a, files, err := p.ask(q, wait)
	closeFiles(files)
	return a, err
}

// ask sends the first packet and waits for the first answer.
func (p *peer) ask(q controlRequest, wait time.Duration, files ...*os.File) (a controlAnswer, got []*os.File, err error) {
	if err := p.send(q, files...); err != nil {
		return a, nil, fmt.Errorf("ask the run: %w", err)
	}
	if got, err = p.receive(&a, wait); err != nil {
		return a, nil, fmt.Errorf("the run gave no answer: %w", err)
	}
	return a, got, nil
}

// err gives what went wrong in the run as an error of this process.
func (a controlAnswer) err() error {
	if a.Error == "" {
		return nil
	}
	return &answeredError{hintedError{errors.New(a.Error), a.Hint}, a.Code}
}

// answeredError comes with an exit code of the run's choice.
type answeredError struct {
	hintedError
	code int
}

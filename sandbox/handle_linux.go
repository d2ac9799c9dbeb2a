package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Sandbox is the launcher's handle on a sandbox that runs. It is valid until
// Run returns; after that every call gives ErrEnded. Pausing, listening and
// connecting need namespaces: in the tier without them they give an error.
type Sandbox struct{ r *run }

// Task is one more process to start inside, confined like the command: in its
// Landlock domain, under its filter and limits. It gets a session of its own.
type Task struct {
	// Argv is the program and its arguments. A name without a slash is looked up
	// in PATH of Env, inside.
	Argv []string
	// Env is the whole environment; nil means the command's own.
	Env []string
	// Cwd is a directory inside; "" means the command's own.
	Cwd string
	// Stdio are the standard streams. Nil ones are /dev/null. They stay open here.
	Stdio [3]*os.File
	// Terminal makes a terminal of its own for the task and lays it over the
	// streams that are nil, of which there must be one; Running.Master is then
	// its other end.
	Terminal bool
	// Size is the terminal's first size.
	Size unix.Winsize
	// Sweep kills what is left of its process group when the task ends.
	Sweep bool
}

// Running is a task that was started.
type Running struct {
	// Pid is its process id inside.
	Pid int
	// Master is the host's end of its terminal; nil without one. The caller
	// closes it.
	Master *os.File

	desk   *desk
	id     int
	ended  chan struct{} // closed once status is set
	status unix.WaitStatus
}

// InitPid is the process id of the sandbox's init on the host.
func (s *Sandbox) InitPid() int { return s.r.box.pid() }

// Env is the whole environment of the command.
func (s *Sandbox) Env() []string { return slices.Clone(s.r.env) }

// Start starts a task and returns once it runs, or says why it does not. While
// the run is paused it waits for Resume. Errors that unwrap to ENOENT or EACCES
// are about the program.
func (s *Sandbox) Start(t Task) (*Running, error) {
	if err := s.r.Plan.noStarter(); err != nil {
		return nil, err
	}
	m, err := s.order(t)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", strings.Join(t.Argv[:min(1, len(t.Argv))], ""), err)
	}
	defer m.files[0].Close()
	k := &Running{desk: s.r.desk, ended: make(chan struct{})}
	a, err := s.r.desk.ask(m, k)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", t.Argv[0], aboutProgram(err))
	}
	k.Pid = a.Pid
	for i, f := range a.files {
		if i == 0 && t.Terminal {
			k.Master = f
		} else {
			f.Close()
		}
	}
	return k, nil
}

// order is what init is told to start.
func (s *Sandbox) order(t Task) (message, error) {
	if len(t.Argv) == 0 || t.Argv[0] == "" {
		return message{}, errors.New("a task without a program")
	}
	b := block{argv: t.Argv, env: t.Env, cwd: t.Cwd}
	if t.Env == nil {
		b.env = s.r.env
	}
	if t.Cwd == "" {
		b.cwd = s.r.Plan.Cwd
	}
	b.programs = candidates(t.Argv[0], b.env)
	m := message{Op: opStart, Terminal: t.Terminal, Sweep: t.Sweep, Rows: t.Size.Row, Cols: t.Size.Col}
	var files []*os.File
	for i, f := range t.Stdio {
		if f == nil {
			continue
		}
		if err := checkStream(i, f); err != nil {
			return message{}, err
		}
		m.Streams[i], files = true, append(files, f)
	}
	if t.Terminal && len(files) == len(t.Stdio) {
		return message{}, errors.New("a terminal without a stream to be")
	}
	f, err := b.seal()
	if err != nil {
		return message{}, err
	}
	m.files = append([]*os.File{f}, files...)
	return m, nil
}

// aboutProgram leaves the kernel's error visible only where it is that of the
// program's execve(2).
func aboutProgram(err error) error {
	if se := (*StepError)(nil); errors.As(err, &se) && se.Step != StepExec {
		return errors.New(err.Error())
	}
	return err
}

// candidates are the places where execvp(3) would look for a program.
func candidates(name string, env []string) (all []string) {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		all = append(all, dir+"/"+name)
	}
	return all
}

// Wait blocks until the task ended and gives its wait status. An error means
// that the sandbox ended. It may be called any number of times.
func (t *Running) Wait() (unix.WaitStatus, error) {
	select {
	case <-t.ended:
		return t.status, nil
	case <-t.desk.over:
	}
	// Its end may have been the last thing that was heard.
	select {
	case <-t.ended:
		return t.status, nil
	default:
		return 0, ErrEnded
	}
}

// Signal sends a signal to the task, or to its whole process group. A task that
// has ended gets none, which is no error.
func (t *Running) Signal(sig unix.Signal, group bool) error {
	select {
	case <-t.desk.over:
		return ErrEnded
	default:
		return t.desk.send(message{Op: opSignal, Id: t.id, Signal: int(sig), Group: group})
	}
}

// Pause stops every process inside and returns when none runs any more. What is
// started meanwhile starts with Resume. Signals wait too, except for SIGKILL.
func (s *Sandbox) Pause() error { return s.simple(opPause) }

// Resume continues what Pause stopped, and nothing that was stopped before.
func (s *Sandbox) Resume() error { return s.simple(opUnpause) }

func (s *Sandbox) simple(op string) error {
	if s.r.Plan.Weak != nil {
		return errNoNamespaces
	}
	_, err := s.r.desk.ask(message{Op: op}, nil)
	return err
}

var errNoNamespaces = errors.New("this needs namespaces, which the run does without")

// Listen makes a socket inside that the agent can reach, and gives it to the
// caller: "unix:PATH" (stream), "unixgram:PATH". The path must lie in a tmpfs of
// the sandbox's own, such as its /tmp or runtime directory.
func (s *Sandbox) Listen(address string) (*os.File, error) {
	network, path, _ := strings.Cut(address, ":")
	if network != "unix" && network != "unixgram" {
		return nil, fmt.Errorf("listen on %q: want unix:PATH or unixgram:PATH", address)
	}
	if s.r.Plan.Weak != nil {
		return nil, errNoNamespaces
	}
	return s.r.desk.askFile(message{Op: opListen, Path: path, Datagram: network == "unixgram"})
}

// Dial connects to "tcp:PORT" on the sandbox's loopback or to "unix:PATH"
// inside, where only a process of the sandbox is taken for the listener.
func (s *Sandbox) Dial(address string) (*os.File, error) {
	network, to, _ := strings.Cut(address, ":")
	if s.r.Plan.Weak != nil {
		return nil, errNoNamespaces
	}
	if network != "tcp" && network != "unix" || strings.HasPrefix(to, "/") != (network == "unix") {
		return nil, fmt.Errorf("connect to %q: want tcp:PORT or unix:PATH", address)
	}
	return s.r.desk.dial(to)
}

// End ends the run, with everything inside, and makes status its Result's. Ask
// the tasks to stop first.
func (s *Sandbox) End(status unix.WaitStatus) {
	select {
	case s.r.finish <- status:
	default: // it is ending already
	}
}

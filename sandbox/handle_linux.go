package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sandbox is the launcher's handle on a sandbox that runs. It is valid until
// Run returns; after that every call gives an error.
type Sandbox struct{ r *run }

// Task is one more process to start inside, confined like the command: in its
// Landlock domain, under its filter and limits.
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
	// streams that are nil; Running.Master is then its other end.
	Terminal bool
	// Size is the terminal's first size.
	Size unix.Winsize
}

// Running is a task that was started.
type Running struct {
	// Pid is its process id inside.
	Pid int
	// Master is the host's end of its terminal; nil without one. The caller
	// closes it.
	Master *os.File
}

// InitPid is the process id of the sandbox's init on the host.
func (s *Sandbox) InitPid() int { return s.r.box.pid() }

// Start starts a task and returns once it runs, or says why it does not.
// Errors that unwrap to ENOENT or EACCES are about the program.
func (s *Sandbox) Start(Task) (*Running, error) { return nil, errors.ErrUnsupported }

// Wait blocks until the task ended and gives its wait status. An error means
// that the sandbox ended.
func (t *Running) Wait() (unix.WaitStatus, error) { return 0, errors.ErrUnsupported }

// Signal sends a signal to the task, or to its whole process group.
func (t *Running) Signal(unix.Signal, bool) error { return errors.ErrUnsupported }

// Pause stops every process inside, and Resume continues those that Pause
// stopped. A task that is started meanwhile is stopped too.
func (s *Sandbox) Pause() error { return errors.ErrUnsupported }

// Resume undoes Pause.
func (s *Sandbox) Resume() error { return errors.ErrUnsupported }

// Listen makes a socket inside that the agent can reach, and gives it to the
// caller: "unix:PATH" (stream), "unixgram:PATH".
func (s *Sandbox) Listen(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Dial connects to "tcp:PORT" on the sandbox's loopback or to "unix:PATH" inside.
func (s *Sandbox) Dial(string) (*os.File, error) { return nil, errors.ErrUnsupported }

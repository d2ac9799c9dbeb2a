package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// execRequest starts one more command in a run. The descriptors that come with
// it are the standard streams that Streams names, in their order.
type execRequest struct {
	Argv []string `json:"argv"`
	// Env are variables beside those of the run's own command.
	Env []string `json:"env,omitempty"`
	// Term is TERM of the caller's terminal.
	Term string `json:"term,omitempty"`
	// Cwd is a directory inside; "" means that of the run's own command.
	Cwd string `json:"cwd,omitempty"`
	// Streams are the numbers of the descriptors. A stream without one is the
	// terminal, or /dev/null where there is none.
	Streams []int `json:"streams,omitempty"`
	// Terminal makes a terminal, whose other end comes with the answer.
	Terminal bool   `json:"terminal,omitempty"`
	Rows     uint16 `json:"rows,omitempty"`
	Cols     uint16 `json:"cols,omitempty"`
}

// exec starts a command and stays until it ended.
func (c *controller) exec(p *peer, q *execRequest, files []*os.File) {
	task, err := c.startTask(q, files)
	closeFiles(files)
	a := controlAnswer{Run: c.launch.dir.Id}
	if err != nil {
		a.failed(err)
		_ = p.send(a)
		return
	}
	var master []*os.File
	if task.Master != nil {
		master = append(master, task.Master)
	}
	err = p.send(a, master...)
	// Whoever asked holds the only one: when they are gone, the terminal hangs up.
	closeFiles(master)
	if err == nil {
		go c.obey(p, task)
		_ = p.send(controlAnswer{Run: a.Run, Exit: ended(task.Wait())})
		return
	}
	_ = task.Signal(unix.SIGHUP, true)
}

// ended tells how a task did.
func ended(status unix.WaitStatus, err error) *controlExit {
	if err != nil {
		return &controlExit{Code: exitSignalled + int(unix.SIGKILL), Note: "the run ended, and the command with it"}
	}
	return &controlExit{Code: exitCode(status)}
}

// obey carries out what comes in for a task, and tells it when nobody is there
// any more.
func (c *controller) obey(p *peer, task *sandbox.Running) {
	for {
		var o controlOrder
		files, err := p.receive(&o, 0)
		if err != nil {
			_ = task.Signal(unix.SIGHUP, true)
			p.close()
			return
		}
		closeFiles(files)
		if o.Signal > 0 && o.Signal <= 64 {
			_ = task.Signal(unix.Signal(o.Signal), true)
		}
	}
}

func (c *controller) startTask(q *execRequest, files []*os.File) (*sandbox.Running, error) {
	box := c.launch.box.Load()
	switch {
	case q == nil || len(q.Argv) == 0:
		return nil, errors.New("no command")
	case box == nil:
		return nil, errStarting
	case c.launch.isPaused():
		return nil, &hintedError{errors.New("the run is paused"), "continue it: hermes-wrap resume " + c.launch.prep.name}
	}
	env, err := c.taskEnv(box, q)
	if err != nil {
		return nil, err
	}
	t := sandbox.Task{Argv: q.Argv, Env: env, Cwd: q.Cwd, Terminal: q.Terminal, Size: unix.Winsize{Row: q.Rows, Col: q.Cols}}
	if len(q.Streams) != len(files) {
		return nil, errors.New("the streams and their descriptors do not match")
	}
	for i, n := range q.Streams {
		if n < 0 || n > 2 || t.Stdio[n] != nil {
			return nil, fmt.Errorf("no stream can have number %d", n)
		}
		t.Stdio[n] = files[i]
	}
	if err := c.record("exec", filepath.Base(q.Argv[0])); err != nil {
		return nil, err
	}
	task, err := box.Start(t)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("exec: %q: %w", q.Argv[0], sandbox.ErrNotFound)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC):
		return nil, fmt.Errorf("exec: %q: %w", q.Argv[0], sandbox.ErrNotExecutable)
	}
	return task, err
}

// taskEnv is the environment of the run's own command and what was asked for
// beside it, as far as the policy lets a caller's variables in.
func (c *controller) taskEnv(box *sandbox.Sandbox, q *execRequest) ([]string, error) {
	env := box.Env()
	e := c.reloads.inForce().policy.Env
	for _, kv := range q.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("read variable %q: want NAME=VALUE", name)
		}
		if pass, why := sandbox.EnvVerdict(e, name); !pass {
			return nil, &hintedError{fmt.Errorf("variable %s: %s", name, why), "hermes-wrap why env " + name + " says what the next run's policy needs"}
		}
		env = withVariable(env, kv)
	}
	if pass, _ := sandbox.EnvVerdict(e, "TERM"); pass && q.Term != "" {
		env = withVariable(env, "TERM="+q.Term)
	}
	return env, nil
}

func withVariable(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
	return append(env, kv)
}

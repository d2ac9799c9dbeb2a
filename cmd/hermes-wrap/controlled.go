package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// controller answers the requests of a run's control socket.
type controller struct {
	launch  *launch
	reloads *reloader
	screen  *screen // the terminal of a run in the background; nil: it has none
}

// answer answers one peer.
func (c *controller) answer(p *peer, q controlRequest, files []*os.File) {
	switch q.Op {
	case opExec:
		c.exec(p, q.Exec, files)
		return
	case opAttach:
		closeFiles(files)
		c.attach(p, q.Attach)
		return
	}
	closeFiles(files)
	a := controlAnswer{Run: c.launch.dir.Id}
	switch q.Op {
	case opReload:
		out, err := c.reloads.reload()
		a.Reload = &out
		a.failed(err)
	case opStatus:
		a.Status = c.status()
	case opStats:
		var err error
		a.Stats, err = c.stats()
		a.failed(err)
	case opStop:
		a.failed(c.stop(q.Stop))
	case opPause:
		a.failed(c.pause(true))
	case opResume:
		a.failed(c.pause(false))
	default:
		a.Error = "unknown operation; one of " + strings.Join([]string{opReload, opStatus, opStats, opStop, opPause, opResume, opExec, opAttach}, ", ")
	}
	_ = p.send(a)
}

// failed fills in what went wrong, if anything did.
func (a *controlAnswer) failed(err error) {
	if err == nil {
		return
	}
	a.Error, a.Reload = shortened(err.Error()), nil
	a.Hint = hintOf(err)
	if code := codeOf(err); code != exitFailed {
		a.Code = code
	}
	var static *staticError
	if errors.As(err, &static) {
		a.Static = static.keys
	}
	var problem policy.Problem
	switch {
	case errors.As(err, &a.Problems):
		a.Error = "the policy has mistakes, and the old one stays in force"
	case errors.As(err, &problem):
		a.Problems = policy.Problems{problem}
	}
	a.Problems = a.Problems[:min(len(a.Problems), controlProblems)]
}

// runStatus is what a run says of itself.
type runStatus struct {
	Name    string    `json:"name"`
	Pid     int       `json:"pid"` // of the launcher
	Command string    `json:"command"`
	Policy  string    `json:"policy"`
	Digest  string    `json:"digest"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready tells that the command runs and that the proxy serves it.
	Ready  bool `json:"ready"`
	Paused bool `json:"paused,omitempty"`
	// Attached is the number of those who look at its terminal.
	Attached int `json:"attached,omitempty"`
}

func (c *controller) status() *runStatus {
	p := c.reloads.inForce().policy
	return &runStatus{
		Name: c.launch.prep.name, Pid: os.Getpid(), Command: filepath.Base(c.reloads.base), Policy: p.Name, Digest: p.Digest,
		Version: version(), Started: c.launch.began.UTC(), Ready: c.reloads.px.isReady() && c.launch.box.Load() != nil,
		Paused: c.launch.isPaused(), Attached: c.screen.viewers(),
	}
}

// runStats is what a run uses. A limit of 0 is none.
type runStats struct {
	Name string    `json:"name"`
	Time time.Time `json:"time"`
	// Memory is in bytes, CPU in seconds, CPULimit in processors. Pids counts
	// processes and threads; init is among them.
	Memory      int64   `json:"memory"`
	MemoryLimit int64   `json:"memory_limit,omitempty"`
	CPU         float64 `json:"cpu_seconds"`
	CPULimit    float64 `json:"cpu_limit,omitempty"`
	Processes   int     `json:"processes"`
	Pids        int     `json:"pids"`
	PidsLimit   int     `json:"pids_limit,omitempty"`
	// ConnectionsLimit is for what Network counts as open.
	ConnectionsLimit int          `json:"connections_limit,omitempty"`
	Network          *proxy.Stats `json:"network"`
}

func (c *controller) stats() (*runStats, error) {
	box := c.launch.box.Load()
	if box == nil {
		return nil, errStarting
	}
	used, err := box.Usage()
	if err != nil {
		return nil, err
	}
	numbers, err := c.reloads.px.stats()
	if err != nil {
		return nil, err
	}
	limits := c.launch.prep.policy.Limits
	return &runStats{
		Name: c.launch.prep.name, Time: time.Now().UTC(), Memory: used.Memory, MemoryLimit: int64(limits.Memory),
		CPU: used.CPU.Seconds(), CPULimit: limits.CPU, Processes: used.Processes, Pids: used.Tasks, PidsLimit: limits.Pids,
		ConnectionsLimit: limits.Connections, Network: numbers,
	}, nil
}

// stopRequest ends a run.
type stopRequest struct {
	// Grace is how long it has after SIGTERM; nil: what the policy says.
	Grace *time.Duration `json:"grace,omitempty"`
	// Now kills it without one.
	Now bool `json:"now,omitempty"`
}

// errStopped is why a run ends that its user stopped. How its command took that
// is its exit code.
var errStopped = errors.New("it was stopped by its user")

// stop begins to end the run. It does not wait for the end.
func (c *controller) stop(q *stopRequest) error {
	if q == nil {
		q = &stopRequest{}
	}
	reason := &sandbox.StopError{Err: errStopped, Grace: time.Duration(c.reloads.inForce().policy.Process.StopGrace)}
	switch {
	case q.Now:
		reason.Grace = 0
	case q.Grace != nil:
		reason.Grace = max(0, *q.Grace)
	}
	if err := c.record("stop", ""); err != nil {
		return err
	}
	if reason.Grace > 0 && c.launch.isPaused() {
		// Who is stopped takes no signal but the last one.
		if err := c.pause(false); err != nil {
			return err
		}
	}
	select {
	case c.launch.stop <- reason:
	case <-c.launch.over:
	case <-time.After(controlWait):
		return errors.New("the run does not take the order to end")
	}
	return nil
}

// pause stops every process inside, or lets those go on that it stopped.
func (c *controller) pause(on bool) error {
	box := c.launch.box.Load()
	if box == nil {
		return errStarting
	}
	word, do := "resume", box.Resume
	if on {
		word, do = "pause", box.Pause
	}
	return c.launch.setPaused(on, func() error {
		if err := do(); err != nil {
			return err
		}
		return c.record(word, "")
	})
}

// record writes into the audit record what the run's user did with it.
func (c *controller) record(operation, command string) error {
	return c.launch.write(audit.Event{Kind: audit.KindControl, Operation: operation, Command: command, Reason: "asked for by the run's user"})
}

// isPaused tells whether the run was paused.
func (l *launch) isPaused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry.Paused
}

// setPaused takes down what do achieves; one at a time.
func (l *launch) setPaused(on bool, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	l.entry.Paused = on
	return l.session.Write(l.entry)
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// launchGrace is how long a signal waits for the launch to come to its end.
const launchGrace = 5 * time.Second

// forward takes a signal that the launcher got.
func (r *run) forward(sig unix.Signal, group bool) {
	if sig == unix.SIGHUP && r.Hangup != nil {
		go r.hangup(group)
		return
	}
	r.pass(sig, group)
}

// pass gives a signal to the command. One that meets a launch that hangs does to
// us what it does to any program.
func (r *run) pass(sig unix.Signal, group bool) {
	select {
	case <-r.built:
	case <-time.After(launchGrace):
		signal.Reset(sig)
		_ = unix.Kill(unix.Getpid(), sig)
		return
	}
	if sig == unix.SIGWINCH && r.term != nil {
		r.term.Resize()
		return
	}
	if r.Plan.Hold {
		r.held(sig)
		return
	}
	// A stopped job is continued as a whole, whoever sent the signal.
	_ = r.control.send(message{Op: opSignal, Signal: int(sig), Group: group || sig == unix.SIGCONT})
}

// held is a signal to a run that has no command to get it.
func (r *run) held(sig unix.Signal) {
	switch {
	case r.Signal != nil:
		r.Signal(sig)
	case sig != unix.SIGCONT && sig != unix.SIGWINCH:
		(&Sandbox{r}).End(unix.WaitStatus(sig))
	}
}

// supervise passes the end out.
func (r *run) supervise(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	var kill <-chan time.Time
	var stopped error
	starting := time.After(startLimit)
	for {
		select {
		case <-starting:
			return Result{}, r.neverStarted()
		case m, ok := <-r.messages:
			if !ok {
				return Result{Stopped: stopped, Status: unix.WaitStatus(unix.SIGKILL)}, r.initGone(stopped)
			}
			if m.Op == opStarted {
				starting = nil
			}
			done, res, err := r.handle(ctx, m, over)
			if done || err != nil {
				res.Stopped = stopped
				return res, err
			}
		case stopped = <-r.Stop:
			kill = r.end(stopped)
		case stopped = <-over:
			if errors.As(stopped, new(*DiskError)) {
				// Until it is gone it goes on writing.
				r.box.kill()
				continue
			}
			kill = r.end(stopped)
		case <-kill:
			r.box.kill()
		case ws := <-r.finish:
			r.box.kill()
			if r.term != nil {
				r.term.Drain()
			}
			return Result{Status: ws, Terminal: r.term != nil, Stopped: stopped}, nil
		}
	}
}

func (r *run) handle(ctx context.Context, m message, over chan<- error) (done bool, res Result, err error) {
	if m.Op != opTTY && m.Op != opStarted {
		closeAll(m.files) // nothing else comes with any: init must not fill our table
	}
	switch m.Op {
	case opTTY:
		return false, res, r.openTerminal(m)
	case opStarted:
		_ = r.canary.Close()
		r.Trace(StepExec, time.Since(r.began))
		if r.Started != nil {
			r.Started(&Sandbox{r})
		}
		if r.Docker != nil && len(m.files) == 1 {
			go r.Docker(m.files[0])
		} else {
			closeAll(m.files)
		}
		r.pub.serveAll()
		go r.watchMemory(ctx, over)
		go r.watchDisk(ctx, over)
	case opBare:
		if err := r.box.recover(r.Plan); err != nil {
			r.box.kill()
			return true, res, stepErr(StepRoot, fmt.Errorf("somebody outside replaced a protected or hidden entry of the workspace, and the run was ended: %w", err))
		}
		return false, res, r.control.send(message{Op: opCovered})
	case opStopped:
		r.suspend()
	case opExited:
		if r.term != nil {
			r.term.Drain()
		}
		res = Result{Status: unix.WaitStatus(m.Status), Terminal: r.term != nil}
		if res.Status != 0 {
			// A group that cannot be asked leaves the status as all there is to say.
			res.Starved, _ = r.Plan.Limits.OOMKills(r.Dir.Id)
		}
		return true, res, nil
	case opFailed:
		return true, res, m.err()
	}
	return false, res, nil
}

func (r *run) openTerminal(m message) error {
	if r.term == nil || len(m.files) != 1 {
		closeAll(m.files)
		return stepErr(StepTerminal, errors.New("BUG: init opened a terminal that nobody asked for"))
	}
	if err := r.term.Start(m.files[0]); err != nil {
		return stepErr(StepTerminal, err)
	}
	return r.control.send(message{Op: opResume})
}

// suspend stops the launcher too, so that the shell outside sees a stopped job;
// it returns when somebody continues it, and that SIGCONT is forwarded.
func (r *run) suspend() {
	if r.term == nil {
		_ = stopOwnJob()
		return
	}
	if r.term.Suspend() == nil {
		_ = r.term.Resume()
	}
}

// end asks the tree to stop and gives the moment at which it is killed.
func (r *run) end(reason error) <-chan time.Time {
	grace := r.Grace
	var own *StopError
	if errors.As(reason, &own) {
		grace = own.Grace
	}
	if grace <= 0 {
		r.box.kill()
		return nil
	}
	_ = r.control.send(message{Op: opSignal, Signal: int(unix.SIGTERM)})
	// In a paused run nobody could act on it.
	_ = r.control.send(message{Op: opUnpause})
	if r.Plan.Hold {
		go r.killAfter(r.desk.running())
	}
	return time.After(grace)
}

// killAfter ends a run without a command once the tasks have ended.
func (r *run) killAfter(tasks []*Running) {
	for _, t := range tasks {
		_, _ = t.Wait()
	}
	r.box.kill()
}

func (r *run) initGone(stopped error) error {
	if stopped != nil {
		return nil
	}
	if n, err := r.Plan.Limits.OOMKills(r.Dir.Id); err == nil && n > 0 {
		return stepErr(StepLimits, errors.New("limits.memory was reached, and the kernel ended the tree"))
	}
	return stepErr(StepExec, r.withCause(errors.New("the sandbox's init was killed; nothing inside is left running")))
}

// startLimit bounds what init needs between its own start and the command's.
const startLimit = 30 * time.Second

func (r *run) neverStarted() error {
	r.box.kill()
	return &StepError{
		Step: StepConfine, Err: fmt.Errorf("init did not start the command within %v", startLimit),
		Hint: "see whether your user may queue signals: ulimit -i, and SigQ in /proc/self/status",
	}
}

func (r *run) watchMemory(ctx context.Context, over chan<- error) {
	limit := r.Plan.Limits.Watch
	if limit <= 0 {
		return
	}
	err := WatchMemory(ctx, r.box.pid(), limit, func(rss int64) {
		over <- fmt.Errorf("the tree uses %d MiB, more than limits.memory (%d MiB)", rss>>20, limit>>20)
	})
	if err != nil && ctx.Err() == nil {
		over <- fmt.Errorf("watch memory: %w", err)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/supervise"
)

// unsupervised tells whether the command is run once, whatever the policy says.
func (l *launch) unsupervised() bool {
	return l.flags.noSupervise || slices.Contains(l.who.environ, "HERMES_GATEWAY_NO_SUPERVISE=1")
}

// supervised tells whether this run keeps services going.
func (l *launch) supervised() bool {
	return l.prep.policy.Supervise.Active() && !l.unsupervised()
}

// inside runs the command, or the services, in a sandbox.
func (l *launch) inside(o sandbox.Options) (sandbox.Result, error) {
	l.outside = newServiceManager(l.isPaused)
	defer l.outside.close()
	defer l.removeContainers() // while the record is open
	if !l.supervised() {
		l.sayUnsupervised()
		started := o.Started
		o.Started = func(box *sandbox.Sandbox) {
			started(box)
			l.outside.tell(sdReady)
		}
		return sandbox.Run(context.Background(), o)
	}
	s, err := l.supervise()
	if err != nil {
		return sandbox.Result{}, err
	}
	return s.finish(sandbox.Run(context.Background(), s.options(o)))
}

// supervision is the services of a run.
type supervision struct {
	l       *launch
	manager *supervise.Manager
	outside *serviceManager
	log     *supervise.Log
	env     []string // of the command
	// asked is why everything is to end.
	asked chan string
	null  *os.File

	ending  atomic.Bool
	unready []string // services that were not up yet; of the manager's goroutine
	notify  bool
	box     *sandbox.Sandbox
	wg      sync.WaitGroup
	saying  sync.WaitGroup

	mu      sync.Mutex
	streams []*supervise.Stream
	stopped error // why we ended the run, if we did
}

// supervise prepares the services; nothing is started.
func (l *launch) supervise() (*supervision, error) {
	p := l.prep.policy
	if l.prep.plan.Weak != nil {
		return nil, &sandbox.StepError{Step: sandbox.StepPreflight, Err: errors.New("supervise needs namespaces, which this run does without"), Hint: "--no-supervise runs the command once, and a service manager outside can start it again"}
	}
	s := &supervision{
		l: l, outside: l.outside, env: slices.Clone(l.prep.plan.Env), notify: p.Supervise.Notify,
		asked: make(chan string, 8),
	}
	services := supervise.Services(p)
	for _, v := range services {
		s.unready = append(s.unready, v.Name)
	}
	var err error
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err := s.openLog(); err != nil {
		return nil, errors.Join(err, s.null.Close())
	}
	s.manager = supervise.NewManager(services)
	s.manager.Start, s.manager.Tell, s.manager.Stop = s.start, s.told, s.asked
	s.manager.Dial, s.manager.Paused = s.dial, l.isPaused
	return s, nil
}

// openLog opens the file, and in the foreground the standard output.
func (s *supervision) openLog() (err error) {
	if s.l.back != nil {
		if s.log, err = s.l.openLog(); err == nil {
			s.l.back.toLog(s.log)
		}
		return err
	}
	file, err := s.l.openLogFile(s.logFailed)
	if err != nil {
		return err
	}
	if err := s.l.update(func(r *session.Record) { r.Log = s.l.logPath() }); err != nil {
		return err
	}
	// A reader that is gone is not what ends services. The signal is caught, not
	// ignored: what is ignored here would be ignored inside.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	s.log = &supervise.Log{File: file, Screen: supervise.NewScreen(os.Stdout)}
	if isTerminal(os.Stdout) {
		s.log.Escape = audit.Escape
	}
	return nil
}

func (s *supervision) logFailed(err error, lost int) {
	if err != nil {
		s.warn(fmt.Sprintf("the log %q: %v; lines are missing there until this is mended", s.l.logPath(), err))
		return
	}
	s.warn(fmt.Sprintf("the log %q is written again; %d lines are missing", s.l.logPath(), lost))
}

// warn says something on stderr, which nobody may read: it keeps nobody waiting.
func (s *supervision) warn(text string) {
	s.saying.Go(func() { s.l.voice.warn(text) })
}

// options changes what is run: nothing, until services are started one by one.
func (s *supervision) options(o sandbox.Options) sandbox.Options {
	o.Plan.Hold = true
	o.Stdio = [3]*os.File{s.null, s.null, s.null}
	stop, started := o.Stop, o.Started
	o.Stop = nil
	go s.haltBy(stop)
	o.Started = func(box *sandbox.Sandbox) {
		started(box)
		s.wg.Go(func() { s.run(box) })
	}
	o.Signal = s.signal
	return o
}

// haltBy ends the services when the run is to end: because its time is over,
// its proxy failed, or somebody asked.
func (s *supervision) haltBy(stop <-chan error) {
	for {
		select {
		case <-s.l.over:
			return
		case err := <-stop:
			s.end(err, err.Error())
			var own *sandbox.StopError
			if !errors.As(err, &own) || own.Grace == time.Duration(s.l.prep.policy.Process.StopGrace) {
				continue
			}
			// Whoever gave a grace meant it for all together.
			go func() {
				select {
				case <-s.l.over:
				case <-time.After(own.Grace):
					s.end(nil, "its time to end is over")
				}
			}()
		}
	}
}

// end asks for the end, in order. A nil error means that somebody wanted it.
func (s *supervision) end(err error, reason string) {
	s.mu.Lock()
	if s.stopped == nil {
		s.stopped = err
	}
	s.mu.Unlock()
	if !s.ending.Swap(true) {
		s.outside.tell(sdStopping)
		go s.wake()
	}
	select {
	case s.asked <- reason:
	default:
	}
}

// wake lets those go on that were paused: they could not hear that they are to
// end.
func (s *supervision) wake() {
	if box := s.l.box.Load(); box != nil && s.l.isPaused() {
		if err := s.l.setPaused(false, box.Resume); err != nil {
			s.l.voice.warn(err.Error())
		}
	}
}

// signal takes a signal that was sent to us. Those that end a process end the
// services in order; the second one ends them at once.
func (s *supervision) signal(sig unix.Signal) {
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP:
		s.end(nil, "asked to by "+unix.SignalName(sig))
	case unix.SIGTSTP:
		// The job is this process and its proxy; the services go on.
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	case unix.SIGWINCH, unix.SIGCONT:
	default:
		s.manager.Signal(supervise.Main, sig, false)
	}
}

// run runs the services in a sandbox that is up, and ends it.
func (s *supervision) run(box *sandbox.Sandbox) {
	s.box = box
	var e supervise.Exit
	err := s.listenNotify()
	if err == nil {
		e, err = s.manager.Run()
	}
	if err != nil {
		s.end(err, err.Error())
	}
	box.End(waitStatusOf(e))
}

// start starts one service.
func (s *supervision) start(name string) (supervise.Process, error) {
	var out [2]*supervise.Stream
	var theirs [2]*os.File
	defer func() { closeFiles(slices.DeleteFunc(theirs[:], func(f *os.File) bool { return f == nil })) }()
	for i := range out {
		var err error
		if out[i], theirs[i], err = s.log.NewStream(name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.streams = append(slices.DeleteFunc(s.streams, isDone), out[:]...)
	s.mu.Unlock()
	argv, env := s.l.prep.plan.Argv, s.env
	if name != supervise.Main {
		v := s.l.prep.policy.Supervise.Services[name]
		argv, env = v.Command, overlaid(env, v.Env)
	} else if s.notify {
		env = overlaid(env, s.notifyEnv())
	}
	t, err := s.box.Start(sandbox.Task{Argv: argv, Env: env, Stdio: [3]*os.File{nil, theirs[0], theirs[1]}, Sweep: true})
	if errors.Is(err, sandbox.ErrEnded) {
		return nil, fmt.Errorf("%w: %w", supervise.ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	return serviceProcess{t, out}, nil
}

func isDone(s *supervise.Stream) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// overlaid gives an environment with some variables set anew.
func overlaid(env []string, set map[string]string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, again := set[name]
		return again
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// serviceProcess is one start of a service in the sandbox.
type serviceProcess struct {
	task *sandbox.Running
	out  [2]*supervise.Stream
}

// Wait waits for the process, and takes what is still in its pipes.
func (p serviceProcess) Wait() (supervise.Exit, error) {
	ws, err := p.task.Wait()
	if err != nil {
		return supervise.Exit{}, err
	}
	for _, o := range p.out {
		o.Flush()
	}
	if ws.Signaled() {
		return supervise.Exit{Signal: int(ws.Signal())}, nil
	}
	return supervise.Exit{Code: ws.ExitStatus()}, nil
}

func (p serviceProcess) Signal(sig syscall.Signal, group bool) error {
	return p.task.Signal(sig, group)
}

// dial connects to a port inside, for a health check.
func (s *supervision) dial(_ context.Context, port int) (net.Conn, error) {
	f, err := s.box.Dial(fmt.Sprintf("tcp:%d", port))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// drainLimit bounds how long the end of the run waits for what services have
// printed, and for somebody who reads it.
const drainLimit = 5 * time.Second

// finish gives the run's result as the services have it, once the sandbox is
// gone and everything that was printed is in the log.
func (s *supervision) finish(res sandbox.Result, err error) (sandbox.Result, error) {
	s.end(nil, "the sandbox is gone")
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	late, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	for _, o := range s.streams {
		select {
		case <-o.Done():
		case <-late.Done():
		}
	}
	if s.log.Screen != nil {
		if screenErr := s.log.Screen.Close(drainLimit); screenErr != nil {
			s.warn(fmt.Sprintf("%v; all output is in %q", screenErr, s.l.logPath()))
		}
	}
	s.said()
	if res.Stopped == nil && err == nil {
		res.Stopped = s.stopped
	}
	return res, errors.Join(err, s.log.File.Close(), s.null.Close())
}

// said waits until warnings are read, for a moment.
func (s *supervision) said() {
	all := make(chan struct{})
	go func() {
		s.saying.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(time.Second):
	}
}

// waitStatusOf is the wait status that a shell would see.
func waitStatusOf(e supervise.Exit) unix.WaitStatus {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return exitNotFound << 8
	case errors.Is(e.Err, fs.ErrPermission):
		return exitNotExecutable << 8
	case e.Err != nil:
		return exitFailed << 8
	case e.Signal != 0:
		return unix.WaitStatus(e.Signal)
	}
	return unix.WaitStatus(e.Code << 8)
}

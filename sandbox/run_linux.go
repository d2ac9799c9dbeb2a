package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Options is one run of a plan. Stdio must be set; the rest may be zero.
type Options struct {
	Plan   Plan
	Filter []byte // from CompileFilter
	Stdio  [3]*os.File
	Dir    *RunDir
	// Blobs gives the content of the plan's entries with Blob set. It is called
	// while the container is being made. Nil when there is no such entry.
	Blobs func() (map[Blob][]byte, error)
	// Doors receives the listeners and the resolver sockets of the sandbox's
	// network namespace and returns when somebody serves them. It owns them.
	Doors func(listeners, resolvers []*os.File) error
	// Degraded is told, before the agent starts, about a layer that turned out
	// to be missing and may be.
	Degraded func(Degradation)
	// ProxyUser and ProxyToken are what clients show the proxy in the weaker
	// tier, where it cannot tell them by their network namespace.
	ProxyUser, ProxyToken string
	// Forwards are the published ports. They are served once the agent runs.
	Forwards []Forward
	// Docker is given the listener at the plan's socket for the container engine,
	// on a goroutine of its own, and owns it. Nil: nobody serves it.
	Docker func(listener *os.File)
	// Layers are the directories of copy-on-write layers that are kept on disk:
	// all layers of a persistent plan, none of an ephemeral one.
	Layers []LayerDir
	// LayerDirs gives them for an ephemeral plan whose layers cannot be kept in
	// memory here. Nil: the launch fails then.
	LayerDirs func() ([]LayerDir, error)
	// Layered is told, before the command starts, how each layer is kept, and the
	// host's process id of the init that holds them. An error ends the launch.
	Layered func(layers []Layer, init int) error
	// Progress is told how far the copy of a tree is.
	Progress func(string)
	// Trace is told how long each step took.
	Trace func(Step, time.Duration)
	// Started is told once the agent runs. The handle is valid until Run returns.
	Started func(*Sandbox)
	// Hangup is told that SIGHUP was sent to the launcher while its terminal is
	// still there. Nil: the command gets the signal, as it does when the
	// terminal hangs up.
	Hangup func()
	// Signal is told what signals the launcher gets when the plan holds, for
	// there is no command to pass them to. Nil: such a signal ends the run.
	Signal func(unix.Signal)
	// Stop ends the run: the reason is what the launcher reports.
	Stop <-chan error
	// Grace is how long the agent has between SIGTERM and SIGKILL when Stop
	// fires. 0: it is killed at once. When the plan holds, every task gets both.
	Grace time.Duration
}

// StopError is a reason to end a run that comes with a grace of its own, which
// takes the place of Options.Grace.
type StopError struct {
	Err   error
	Grace time.Duration
}

func (e *StopError) Error() string { return e.Err.Error() }
func (e *StopError) Unwrap() error { return e.Err }

// Result is how a run ended.
type Result struct {
	// Status is the wait status of the command; that of SIGKILL when the whole
	// tree was killed.
	Status unix.WaitStatus
	// Terminal tells that the command had the caller's terminal.
	Terminal bool
	// Stopped is the reason when the launcher ended the run; nil otherwise.
	Stopped error
	// Starved is how many processes the kernel ended because the tree reached
	// limits.memory, where a cgroup holds that.
	Starved uint64
	// Layers are the copy-on-write layers as the run left them. The caller closes
	// them; those in memory are gone then.
	Layers []Layer
}

// run is the launcher's side of one sandbox.
type run struct {
	Options
	control  *Channel
	box      box
	term     *Terminal
	pub      *publisher
	canary   net.Listener // what the self-test must not reach; closed after it
	words    words
	messages chan message
	desk     *desk
	finish   chan unix.WaitStatus // by Sandbox.End
	env      []string             // the command's
	built    chan struct{}        // closed once signals can be passed in
	began    time.Time
	owner    bool // there was a controlling terminal at the start
	layers   layerHolder
}

// Run starts the plan's command and waits for it. It must be called on the
// main thread, locked: the parent-death signal of init is bound to the thread
// that forked it.
func Run(ctx context.Context, o Options) (Result, error) {
	for i, f := range o.Stdio {
		if err := checkStream(i, f); err != nil {
			return Result{}, stepErr(StepPreflight, err)
		}
	}
	if err := o.Plan.noStarter(); err != nil && o.Plan.Hold {
		return Result{}, stepErr(StepPreflight, err)
	}
	r := &run{Options: o, messages: make(chan message, 16), finish: make(chan unix.WaitStatus, 1), built: make(chan struct{}), began: time.Now()}
	if r.Trace == nil {
		r.Trace = func(Step, time.Duration) {}
	}
	var err error
	if r.canary, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return Result{}, stepErr(StepPreflight, fmt.Errorf("listen for the self-test: %w", err))
	}
	defer r.canary.Close()
	if r.words, err = newWords(); err != nil {
		return Result{}, stepErr(StepPreflight, err)
	}
	defer r.words.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.owner = hasTerminal()
	// Caught before the command can run, since it may run before create returns.
	ForwardSignals(ctx, r.forward)
	port, err := portOf(r.canary)
	if err != nil {
		return Result{}, stepErr(StepPreflight, err)
	}
	if err := r.create(port); err != nil {
		r.layers.close()
		return Result{}, err
	}
	close(r.built)
	res, err := r.supervise(ctx)
	if r.term != nil {
		r.term.Restore()
	}
	r.pub.close()
	_ = r.control.HangUp()
	err = errors.Join(err, stepErr(StepContainer, r.box.destroy()))
	if res.Layers = r.layers.list(); err != nil {
		res.Layers = nil
		r.layers.close()
	}
	return res, err
}

// portOf is where a listener of ours is. One whose address the kernel did not tell
// has none.
func portOf(l net.Listener) (int, error) {
	if at, ok := l.Addr().(*net.TCPAddr); ok && at != nil {
		return at.Port, nil
	}
	return 0, errors.New("the kernel did not say where a listener is")
}

// create builds the sandbox up to the moment in which init runs.
func (r *run) create(canaryPort int) error {
	ours, theirs, err := NewChannelPair()
	if err != nil {
		return stepErr(StepContainer, err)
	}
	defer theirs.Close()
	r.control, r.desk = ours, newDesk(ours.send)
	r.pub = &publisher{dial: r.desk.dial, forwards: r.Forwards}
	var slave [3]bool
	if !r.Plan.Hold {
		r.term, slave = FindTerminal(r.Stdio)
	}
	plan := r.Plan
	if plan.Umask < 0 {
		plan.Umask = callerUmask()
	}
	s := spec{
		Plan: plan, Filter: r.Filter, Root: r.Dir.root(), Inherited: fromCaller(),
		Terminal: r.term != nil, Slave: slave, CanaryPort: canaryPort,
		ProxyUser: r.ProxyUser, ProxyToken: r.ProxyToken, Layers: r.Layers,
	}
	files, err := r.inherited(s, theirs)
	if err != nil {
		return stepErr(StepContainer, err)
	}
	defer closeAll(files[1:])
	r.box, err = newBox(r.Dir, r.Plan)
	if err != nil {
		return stepErr(StepContainer, err)
	}
	go r.read()
	doors, blobs := make(chan error, 1), make(chan error, 1)
	go func() { doors <- r.serveDoors() }()
	go func() { blobs <- r.sendBlobs() }()
	startErr := r.box.start([3]*os.File{r.Stdio[0], r.Stdio[1], r.words.f}, append(files, r.Stdio[2]))
	theirs.Close()
	blobsErr, doorsErr := <-blobs, <-doors
	if startErr != nil || blobsErr != nil || doorsErr != nil {
		r.box.kill()
		err := r.whyNot(startErr, blobsErr, doorsErr)
		return errors.Join(err, r.box.destroy())
	}
	r.Trace(StepContainer, time.Since(r.began))
	// Not before everything outside is in place. An init that does not hear it any
	// more is gone, which supervise finds.
	_ = r.control.send(message{Op: opGo})
	return nil
}

// callerUmask reads the umask: libcontainer gives init one of its own. umask(2)
// shows it only by changing it, so it is the tightest for that moment.
func callerUmask() int {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return old
}

// inherited lists what init gets beside the standard streams, in the order of
// the fd constants.
func (r *run) inherited(s spec, control *Channel) ([]*os.File, error) {
	plan, err := s.seal()
	if err != nil {
		return nil, err
	}
	// Places for init's own executable and its /proc, filled by stageInit.
	self, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	proc, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	return []*os.File{control.f, plan, self, proc}, nil
}

// read turns the control connection into a channel; its end means that init is
// gone, or goes now that nobody hears it. Answers go to who asked.
func (r *run) read() {
	defer close(r.messages)
	defer close(r.desk.over)
	defer func() { _ = r.control.HangUp() }()
	for {
		m, err := r.control.receive()
		if err != nil {
			return
		}
		switch {
		case m.Op == opAnswer || m.Op == opEnded:
			r.desk.deliver(m)
		case !r.aboutLayers(m):
			r.messages <- m
		}
	}
}

// sendBlobs passes the large content on; when there is none to be had, or it does
// not get through, the container is not waited for any longer.
func (r *run) sendBlobs() error {
	if r.Blobs == nil {
		return nil
	}
	m, err := r.sealBlobs()
	defer closeAll(m.files)
	if err != nil {
		err = stepErr(StepProxy, err)
	} else {
		err = r.control.send(m)
	}
	if err != nil {
		_ = r.control.HangUp() // the stage waits for them, and read waits here
	}
	return err
}

func (r *run) sealBlobs() (message, error) {
	m := message{Op: opBlobs}
	all, err := r.Blobs()
	if err != nil {
		return m, err
	}
	for name, data := range all {
		f, err := SealedFile("hermes-wrap-blob", data)
		if err != nil {
			return m, err
		}
		m.Blobs, m.files = append(m.Blobs, name), append(m.files, f)
	}
	return m, nil
}

// serveDoors waits for the sandbox's network and hands it on. Init goes on
// building meanwhile; the agent starts only after Doors has returned.
func (r *run) serveDoors() error {
	m, ok := <-r.messages
	if !ok {
		return io.ErrUnexpectedEOF
	}
	if m.Op == opFailed {
		return m.err()
	}
	if m.Op != opNetwork || m.Status < 0 || m.Status > len(m.files) {
		closeAll(m.files)
		return fmt.Errorf("BUG: init said %q before its network was ready", m.Op)
	}
	r.env = r.Plan.environment(m.Port, r.ProxyUser, r.ProxyToken)
	r.Trace(StepNetwork, time.Since(r.began))
	if m.Found != "" && r.Degraded != nil {
		r.Degraded(Degradation{policy.LayerCapture, "nf_tables with TPROXY", m.Found})
	}
	if r.Doors == nil {
		closeAll(m.files)
		return nil
	}
	if err := r.Doors(m.files[:m.Status], m.files[m.Status:]); err != nil {
		return stepErr(StepProxy, err)
	}
	r.Trace(StepProxy, time.Since(r.began))
	return nil
}

// err rebuilds the error that init reported.
func (m message) err() error {
	var err error = errors.New(m.Error)
	if m.Errno != 0 {
		err = reportedError{m.Error, unix.Errno(m.Errno)}
	}
	return stepErr(Step(m.Step), err)
}

// reportedError keeps the kernel's error of another process comparable.
type reportedError struct {
	text string
	no   unix.Errno
}

func (e reportedError) Error() string { return e.text }
func (e reportedError) Unwrap() error { return e.no }

// withCause adds what the Go runtime of a stage said at its end.
func (r *run) withCause(err error) error {
	if said := r.words.cause(); said != "" {
		return fmt.Errorf("%w%s", err, said)
	}
	return err
}

// whyNot picks the most telling error of a failed start: what init said itself,
// then what the door-keeper said, then libcontainer.
func (r *run) whyNot(startErr, blobsErr, doorsErr error) error {
	// Without the blobs we end the container ourselves, which then says so in two
	// more ways.
	if failed := (*StepError)(nil); errors.As(blobsErr, &failed) {
		return blobsErr
	}
	if err := r.layers.failure(); err != nil {
		return stepErr(StepRoot, err)
	}
	if doorsErr != nil && !errors.Is(doorsErr, io.ErrUnexpectedEOF) {
		return doorsErr
	}
	for m := range r.messages {
		if m.Op == opFailed {
			return m.err()
		}
	}
	if startErr != nil {
		return stepErr(StepContainer, r.withCause(startErr))
	}
	return stepErr(StepContainer, r.withCause(errors.Join(blobsErr, doorsErr)))
}

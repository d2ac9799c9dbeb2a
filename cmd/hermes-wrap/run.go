package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
)

// policyFlags are the flags that choose and overlay a policy.
type policyFlags struct {
	policy string
	given  bool
	layer  policy.Flags
	name   string // of the session; "" makes one
}

// runFlags are the flags of a run.
type runFlags struct {
	policyFlags
	dryRun, trace, json, quiet bool
	// summary is where the summary goes, or "".
	summary string
	// commitOnSuccess says how changes are committed after exit code 0; "": not.
	commitOnSuccess string
	// detach runs in the background, and tty with a terminal there.
	detach, tty bool
	noSupervise bool
}

var (
	errTime   = errors.New("limits.time is over")
	errInside = errors.New("this is inside a sandbox of hermes-wrap, which lets nobody make another")
)

// launch is one run from the policy to the exit code.
type launch struct {
	flags runFlags
	who   caller
	voice voice
	dir   *sandbox.RunDir
	log   *audit.Log
	proxy *proxyClient
	// writerKey gives the key of a writer's chain in the record.
	writerKey func(writer string) audit.ChainKey
	prep      prepared
	keeper    *keeper
	layers    layerStore
	tokens    map[string]string // of what is published, by the name of its entry
	outside   *serviceManager
	began     time.Time
	at        sandbox.Step // of the launch
	dieOf     unix.Signal  // the terminal's signal that ended the command

	uncaptured atomic.Bool // ports are fixed at launch: nf_tables is missing

	reachedEngine atomic.Bool // the launcher connected to the container engine once

	summary *summaryFile // nil: none is asked for
	reason  string       // why hermes-wrap ended the run
	numbers *proxy.Stats // of the proxy, at the end; only for the summary

	session *session.Session
	box     atomic.Pointer[sandbox.Sandbox] // once the command runs
	control *control
	back    *background   // nil: the run is in the foreground
	stop    chan error    // ends the run, and why
	over    chan struct{} // closed when the run has ended
	code    int           // its exit code, once over is closed

	mu    sync.Mutex
	entry session.Record // as it was written last
}

// runCommand wraps a command and gives the exit code of the process.
func runCommand(v voice, f runFlags, argv []string) int {
	l := &launch{flags: f, began: time.Now(), at: sandbox.StepPreflight, stop: make(chan error, 1), over: make(chan struct{})}
	if isBackgroundRole() {
		var err error
		if l.back, err = newBackground(); err != nil {
			return v.fail(err)
		}
		v = voice{w: l.back}
	}
	l.voice = v
	if f.summary != "" && !f.dryRun {
		var err error
		if l.summary, err = openSummary(f.summary); err != nil {
			return v.fail(err)
		}
		defer l.summary.drop()
	}
	code, err := l.run(argv)
	if l.summary != nil {
		err = errors.Join(err, l.summarize(argv, code, err))
	}
	if err != nil {
		return v.fail(remedied(located(l.at, diagnosed(err))))
	}
	if l.dieOf != 0 && l.back == nil {
		sandbox.DieOf(l.dieOf)
	}
	return code
}

func (l *launch) run(argv []string) (int, error) {
	who, err := whoCalls()
	if err != nil {
		return 0, err
	}
	if sandbox.Inside() {
		return 0, &sandbox.StepError{Step: sandbox.StepPreflight, Err: errInside, Hint: "run the command itself: it is confined already, and nothing started here can get more"}
	}
	if err := checkRoom(who.uid, softLimit); err != nil {
		return 0, err
	}
	l.who, l.keeper = who, newKeeper(who.environ)
	base := sandbox.RuntimeBase(os.Getenv)
	l.at = sandbox.StepRuntime
	sandbox.SweepRunDirs(base)
	if l.dir, err = sandbox.NewRunDir(base); err != nil {
		return 0, err
	}
	defer l.dir.Remove()
	who.run, l.at = l.dir.Path, sandbox.StepPlan
	defer func() { sandbox.SweepCgroups(l.prep.host.Limits) }()
	if l.prep, err = who.prepare(l.flags.policyFlags, argv, []string{base}); err != nil {
		return 0, err
	}
	l.trace(sandbox.StepPlan, time.Since(l.began))
	if err := checkAssertions(l.prep); err != nil {
		return 0, err
	}
	if l.summary != nil {
		if err := l.summary.apart(l); err != nil {
			l.summary = nil
			return 0, err
		}
	}
	if l.flags.dryRun {
		return exitOK, explain(os.Stdout, l.prep, l.flags.json)
	}
	return l.start()
}

// start takes the session and runs in it.
func (l *launch) start() (code int, err error) {
	l.at = sandbox.StepRuntime
	if err := l.takeSession(); err != nil {
		return 0, err
	}
	defer func() { l.endSession(code, err) }()
	defer l.farewell()
	if l.code, err = l.enter(); err != nil {
		l.code = codeOf(err)
	}
	return l.code, err
}

// farewellLimit bounds how long those who look at the run have to take in its end.
const farewellLimit = 2 * time.Second

// farewell tells them.
func (l *launch) farewell() {
	close(l.over)
	if l.control != nil {
		l.control.wait(farewellLimit)
	}
}

// enter opens the record, starts the proxy and the sandbox, and waits.
func (l *launch) enter() (int, error) {
	p := l.prep.policy
	if err := l.openAudit(); err != nil {
		return 0, err
	}
	defer func() { _ = l.closeAudit() }()
	l.announce() // what is weaker comes first
	filter, err := sandbox.CompileFilter(l.prep.plan.Filter)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(l.mayCommit(), l.dir.Make(), l.openLayers()); err != nil {
		return 0, err
	}
	token := explicitToken(l.prep.plan)
	values, err := l.takeSecrets()
	if err != nil {
		return 0, err
	}
	pub, err := l.openPublished()
	if err != nil {
		return 0, err
	}
	defer pub.close()
	l.at = sandbox.StepProxy
	px := startProxy(p, func() (proxySecrets, error) { return readSecrets(p, values, l.tokens) }, proxyNeeds{
		setup: proxySetup{
			Run: l.dir.Id, RunDir: l.dir.Path, Launcher: os.Getpid(), Cgroups: sandbox.CgroupDirs(l.prep.host.Limits), Required: p.Audit.Required, Inspect: l.prep.plan.Inspect,
			Token: token,
		},
		log: l.log, key: l.writerKey, record: l.write, say: func(text string) { l.voice.interject().warn(text) },
	})
	defer l.removeContainers() // what was being made when the sandbox ended
	defer px.close()
	l.proxy = px
	go l.rotate(px)
	metrics, err := openMetrics(p.Metrics.Socket.Abs)
	if err != nil {
		return 0, err
	}
	if metrics != nil {
		defer metrics.close()
		px.metrics = metrics.f
	}
	if err := errors.Join(l.record(), l.recordPublished()); err != nil {
		return 0, err
	}
	reloads, err := newReloader(l, px, values)
	if err != nil {
		return 0, err
	}
	out, err := l.openOutput()
	if err != nil {
		return 0, err
	}
	defer out.close()
	if err := l.openControl(reloads, out.screen); err != nil {
		return 0, err
	}
	defer l.control.close()
	go reloads.refreshSecrets()
	go reloads.watchSecrets()
	go relayStops(l.stop, px.events, time.Duration(p.Limits.Time))
	l.at = sandbox.StepExec
	res, err := l.inside(sandbox.Options{
		Plan: l.prep.plan, Filter: filter, Stdio: out.stdio, Dir: l.dir,
		Blobs: l.blobs(px), Doors: px.doors, Trace: l.trace, Stop: l.stop, Grace: time.Duration(p.Process.StopGrace),
		Started: l.started, Docker: l.serveDocker(px),
		Hangup:  reloads.hangup,
		Layered: l.layered,
		Layers:  l.layers.given, LayerDirs: l.moreLayers,
		Progress: l.progress,
		Forwards: pub.toProxy(p.Network.Publish, px), Degraded: l.degraded, ProxyUser: proxy.ExplicitUser, ProxyToken: token,
	})
	defer l.closeLayers(res.Layers)
	l.warnOutside(res.Layers)
	if l.summary != nil {
		l.numbers, _ = px.stats() // a proxy that is gone has none
	}
	if err != nil {
		code := exitFailed
		return 0, errors.Join(err, l.write(audit.Event{Kind: audit.KindExit, ExitCode: &code, Reason: err.Error()}))
	}
	return l.ended(res)
}

// openControl opens the run's control socket.
func (l *launch) openControl(r *reloader, s *screen) (err error) {
	l.control, err = openControl(l.dir.Path, mayControl, (&controller{launch: l, reloads: r, screen: s}).answer)
	return err
}

// started is called once the command runs.
func (l *launch) started(s *sandbox.Sandbox) {
	l.box.Store(s)
	if l.back != nil && l.back.started(l.prep.name) != nil {
		select {
		case l.stop <- errors.New("whoever started it was gone before the command ran"):
		default:
		}
	}
	time.AfterFunc(settleAfter, settle)
}

// settleAfter is how long the command has run by then: a short one ends before a
// collection would pay.
const settleAfter = 250 * time.Millisecond

// settle ends the launch's exception from garbage collection (see main), and
// gives back what only the launch needed.
func settle() {
	unhurried()
	debug.FreeOSMemory()
}

// unhurried is for what takes longer than a launch.
func unhurried() {
	debug.SetGCPercent(100)
	runtime.SetDefaultGOMAXPROCS()
}

// relayStops ends the run when the proxy fails or the time is over.
func relayStops(stop chan<- error, proxy <-chan error, limit time.Duration) {
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case err := <-proxy:
		stop <- err
	case <-over:
		stop <- errTime
	}
}

// announce says what is weaker than asked for: it is the first thing on stderr.
func (l *launch) announce() {
	l.announceExposed()
	l.announceDocker()
	if s := l.prep.plan.Summary(); s != "" {
		l.voice.warn(s)
	}
	for _, d := range l.prep.plan.Degraded {
		if l.prep.plan.Weak == nil || d.Layer != policy.LayerNamespaces && d.Layer != policy.LayerSockets {
			l.sayDegraded(d)
		}
	}
	if l.flags.quiet {
		return
	}
	l.warnLooseKeys()
	for _, w := range l.prep.policy.Warnings {
		l.voice.warn(w.Error())
	}
	for _, w := range l.prep.plan.Warnings {
		l.voice.warn(w)
	}
}

func (l *launch) sayDegraded(d sandbox.Degradation) {
	l.voice.warn(fmt.Sprintf("%s is not enforced (needs %s, found %s); the policy allows that", d.Layer, d.Needs, d.Found))
}

// degraded is told about a layer that only the launch itself showed to be
// missing; it is said and recorded like the others.
func (l *launch) degraded(d sandbox.Degradation) {
	if d.Layer == policy.LayerCapture {
		l.uncaptured.Store(true)
	}
	l.sayDegraded(d)
	_ = l.write(audit.Event{Kind: audit.KindLaunch, Degraded: []string{string(d.Layer)}, Reason: d.Found})
}

func (l *launch) record() error {
	p, plan := l.prep.policy, l.prep.plan
	e := audit.Event{
		Kind: audit.KindLaunch, Policy: p.Name, Digest: p.Digest, Version: version(),
		Command: filepath.Base(plan.Argv[0]), Layers: layersOf(plan), Reason: plan.Summary(),
	}
	if n := len(p.Sources); n > 0 {
		e.Source = p.Sources[n-1].Name
	}
	for _, d := range plan.Degraded {
		e.Degraded = append(e.Degraded, string(d.Layer))
	}
	return l.write(e)
}

// write records an event; without the record the run may only go on when the
// policy does not require it.
func (l *launch) write(e audit.Event) error {
	err := l.log.Write(e)
	if err == nil || l.prep.policy.Audit.Required {
		return err
	}
	l.voice.warn(err.Error())
	return nil
}

func (l *launch) ended(res sandbox.Result) (int, error) {
	code := exitCode(res.Status)
	if sig := res.Status.Signal(); res.Terminal && res.Stopped == nil && (sig == unix.SIGINT || sig == unix.SIGQUIT) {
		// A shell ends its loop only when its child died of the signal.
		l.dieOf = sig
	}
	switch {
	case errors.Is(res.Stopped, errTime):
		l.voice.line("error", "31", fmt.Sprintf("%v (%s); the tree was ended", errTime, time.Duration(l.prep.policy.Limits.Time)))
		code = exitTime
	case errors.Is(res.Stopped, errStopped):
		l.voice.note(errStopped.Error())
	case res.Stopped != nil:
		l.voice.line("error", "31", "the run was ended: "+res.Stopped.Error())
		if h := machineRemedy(res.Stopped); h != "" {
			l.voice.hint(h)
		}
		code = exitFailed
	}
	reason := ""
	switch {
	case res.Stopped != nil:
		reason = res.Stopped.Error()
	case res.Starved > 0:
		reason = fmt.Sprintf("the tree reached limits.memory (%s), and the kernel ended %d of its processes", sized(int64(l.prep.policy.Limits.Memory)), res.Starved)
		l.voice.line("error", "31", reason)
	}
	l.reason = reason
	if err := errors.Join(l.write(audit.Event{Kind: audit.KindExit, ExitCode: &code, Reason: reason}), l.closeAudit()); err != nil {
		return code, err
	}
	return l.handOff(res, code)
}

// exitCode is the command's own code, or 128 and the signal that ended it.
func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return exitSignalled + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (l *launch) trace(s sandbox.Step, d time.Duration) {
	if l.flags.trace {
		l.voice.note(fmt.Sprintf("trace: %-10s %8.2f ms", s, float64(d.Microseconds())/1000))
	}
}

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// restartLimit says how often a proxy is started again.
type restartLimit struct {
	// most restarts within a time; one more ends the run.
	most   int
	within time.Duration
	// pause before the second restart within that time; it doubles.
	pause time.Duration
	// ping is how often a proxy is asked whether it lives; 0: never.
	ping time.Duration
}

var defaultRestarts = restartLimit{most: 5, within: 2 * time.Minute, pause: 500 * time.Millisecond, ping: 5 * time.Second} //nolint:gochecknoglobals // a constant

// restarts remembers those of a run.
type restarts struct {
	limit restartLimit
	past  []time.Time
	total int
}

// next gives how long to wait before another restart; ok is false when there were
// too many.
func (r *restarts) next(now time.Time) (pause time.Duration, ok bool) {
	for len(r.past) > 0 && now.Sub(r.past[0]) >= r.limit.within {
		r.past = r.past[1:]
	}
	n := len(r.past)
	if n >= r.limit.most {
		return 0, false
	}
	r.past, r.total = append(r.past, now), r.total+1
	if n > 0 {
		pause = r.limit.pause << (n - 1)
	}
	return pause, true
}

// tend listens to the proxy and replaces one that ends, until the run ends.
func (p *proxyClient) tend(l *proxyLife) {
	defer close(p.gone)
	r := restarts{limit: p.limit}
	for l != nil {
		done := make(chan struct{})
		go p.watchdog(l, done)
		p.listen(l)
		close(done)
		l = p.replace(l, &r)
	}
}

// listen reads what the proxy says until it ends, and never waits for anybody:
// the proxy can always send.
func (p *proxyClient) listen(l *proxyLife) {
	defer close(l.ended)
	for {
		e, err := l.hear()
		if err != nil {
			return
		}
		switch {
		case e.Done > 0:
			p.deliver(e)
		case e.Refresh != "":
			p.askAgain(e.Refresh)
		case e.Stop != "":
			p.end(errors.New(e.Stop))
		default:
			p.end(errors.New(e.Fatal))
		}
	}
}

// askAgain has the source of a credential read again.
func (p *proxyClient) askAgain(credential string) {
	select {
	case p.refresh <- credential:
	default: // too many wait already
	}
}

// watchdog asks the proxy now and then to do nothing. One that does not answer is
// killed, as after any order.
func (p *proxyClient) watchdog(l *proxyLife, done <-chan struct{}) {
	if p.limit.ping <= 0 {
		return
	}
	tick := time.NewTicker(p.limit.ping)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			_, _ = p.orderOn(l, proxyOrder{Ping: true}, nil, nil)
		}
	}
}

// isOver tells whether nothing is restarted any more.
func (p *proxyClient) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// replace starts another proxy in place of one that ended. Until that serves,
// everything is refused. It gives nil when the run ends.
func (p *proxyClient) replace(l *proxyLife, r *restarts) *proxyLife {
	began := time.Now()
	p.mu.Lock()
	over := p.over
	if !over { // whoever closes the client wants to know who was the last
		p.now, p.back = nil, make(chan struct{})
	}
	p.mu.Unlock()
	if over {
		return p.last(l)
	}
	stop := p.doorway.refuse()
	why := l.bury()
	p.lost(l, fmt.Sprintf("the proxy ended, and until another serves everything is refused: %v", why))
	p.say("the proxy ended and is started again; meanwhile every connection is refused (see: hermes-wrap audit show --kind proxy)")
	for {
		pause, ok := r.next(time.Now())
		if !ok {
			p.end(fmt.Errorf("the proxy ended more than %d times within %v, and without it every connection is refused; the last time: %w", p.limit.most, p.limit.within, why))
		}
		if !ok || !p.wait(pause) {
			<-p.quit // what is left of the run is refused everything
			stop()
			return nil
		}
		next, err := p.another(r.total)
		if err != nil {
			why = err
			p.lost(next, fmt.Sprintf("the proxy could not be started again: %v", err))
			continue
		}
		if p.serves(next) {
			next.endSending()
		}
		stop()
		p.tell(audit.Event{Kind: audit.KindProxy, Reason: fmt.Sprintf("another proxy (%s) serves, %d ms after the last one ended", next.writer, time.Since(began).Milliseconds())})
		return next
	}
}

// last is for a proxy that ended while the run ends. What it served is refused
// for as long as that takes.
func (p *proxyClient) last(l *proxyLife) *proxyLife {
	select {
	case <-p.quit: // as it was told
		if l.reason.Load() != nil {
			p.lost(l, fmt.Sprintf("the proxy was killed at the end of the run: %v", l.bury()))
		}
		return nil
	default:
	}
	stop := p.doorway.refuse()
	defer stop()
	p.lost(l, fmt.Sprintf("the proxy ended while the run was about to end: %v", l.bury()))
	<-p.quit
	return nil
}

// wait gives false when the run ends before a time is over.
func (p *proxyClient) wait(d time.Duration) bool {
	if p.isOver() {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.quit:
		return false
	case <-t.C:
		return !p.isOver()
	}
}

// lost records that a proxy is no more. Its part of the record has no end; how
// long it was is said here.
func (p *proxyClient) lost(l *proxyLife, reason string) {
	e := audit.Event{Kind: audit.KindProxy, Reason: reason}
	if n, err := proxy.LinesIn(p.memory); l != nil && err == nil && n > 0 {
		e.Writers, e.Count = []string{l.writer}, n
	}
	p.tell(e)
}

// tell records; where a record is required the run ends without it.
func (p *proxyClient) tell(e audit.Event) {
	if err := p.record(e); err != nil {
		p.end(err)
	}
}

// another starts the next proxy and gives it the doors. It gives the proxy with
// an error too, once that began.
func (p *proxyClient) another(n int) (*proxyLife, error) {
	l, err := p.open(n)
	if err != nil {
		return nil, err
	}
	defer p.hurry(l, orderLimit)()
	if _, _, err = l.hello(); err == nil {
		err = l.open(p.doorway)
	}
	if err != nil {
		// Its own words say more than a connection that ended.
		if how := l.bury(); errors.Is(err, errProxyEnded) {
			err = how
		}
	}
	return l, err
}

// hurry kills a proxy that does not start in time, or not in time for the end of
// the run. The function that it gives ends that.
func (p *proxyClient) hurry(l *proxyLife, limit time.Duration) (started func()) {
	done := make(chan struct{})
	go func() {
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case <-done:
		case <-p.quit:
			l.condemn(errors.New("the run ends"))
		case <-late.C:
			l.condemn(fmt.Errorf("it did not start within %v", limit))
		}
	}()
	return func() { close(done) }
}

// open starts a proxy, of which n ended before it, and hands it what is in force.
func (p *proxyClient) open(n int) (*proxyLife, error) {
	p.mu.Lock()
	force := p.inForce
	p.mu.Unlock()
	// What network.ca holds is fixed at launch, also when a reload read it again.
	force.secrets.Files = maps.Clone(force.secrets.Files)
	maps.Copy(force.secrets.Files, p.roots)
	setup := p.setup
	setup.Writer, setup.Restarts = audit.Later(proxyWriter, n+1), n
	setup.AuditKey, setup.Authority = p.key(setup.Writer), p.authority != nil
	if err := proxy.NoLines(p.memory); err != nil {
		return nil, err
	}
	files, err := sealed(force.policy, force.secrets)
	if err != nil {
		return nil, err
	}
	defer closeFiles(files)
	handed := append(files[:2:2], p.log.File(), p.memory)
	if p.authority != nil {
		handed = append(handed, p.authority)
	}
	ours, theirs, err := sandbox.NewChannelPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	l := newProxyLife(setup.Writer, ours)
	if err := l.send(setup, handed...); err != nil {
		l.close()
		return nil, fmt.Errorf("instruct the proxy: %w", err)
	}
	words, stderr, err := os.Pipe()
	if err != nil {
		l.close()
		return nil, err
	}
	defer stderr.Close()
	// It knows what to sweep from its first moment on, also when the launcher is
	// killed in the next.
	l.proc, err = sandbox.StartProxy(sandbox.ProxyStart{
		Arg0: sandbox.ProxyArg0, Control: theirs.File(), Stderr: stderr, Reads: proxyReads(), RunDir: setup.RunDir, Cgroups: setup.Cgroups,
	})
	if err != nil {
		words.Close()
		l.close()
		return nil, err
	}
	l.words = hear(words)
	return l, nil
}

// errProxyEnded is the end of a proxy that was to say something.
var errProxyEnded = errors.New("the proxy ended before it was ready")

// hello waits until the proxy has read its policy. A first one also gives the key
// of the run's authority, for the next.
func (l *proxyLife) hello() (h proxyHello, authority *os.File, err error) {
	files, err := l.receive(&h)
	switch {
	case err != nil:
		return h, nil, fmt.Errorf("%w: %w", errProxyEnded, err)
	case h.Error != "":
		closeFiles(files)
		return h, nil, errors.New(h.Error)
	}
	l.begun.Store(true)
	if len(files) > 0 {
		authority = files[0]
		closeFiles(files[1:])
	}
	return h, authority, nil
}

// open hands the doors over and waits until they are served.
func (l *proxyLife) open(d *doors) error {
	listeners, resolvers, metrics, err := d.files()
	all := append(listeners, resolvers...)
	o := proxyDoors{Listeners: len(d.listeners)}
	if err == nil && metrics != nil {
		var statm *os.File
		statm, err = os.Open(fmt.Sprintf("/proc/%d/statm", l.proc.Pid()))
		o.Metrics, all = true, append(all, metrics, statm)
	}
	if err == nil {
		err = l.send(o, all...)
	}
	closeFiles(all)
	if err != nil {
		return fmt.Errorf("hand the sockets to the proxy: %w", err)
	}
	e, err := l.hear()
	if err != nil {
		return fmt.Errorf("%w: %w", errProxyEnded, err)
	}
	if !e.Ready {
		return errors.New(e.Fatal)
	}
	return nil
}

// endSending tells the proxy that the run is over.
func (l *proxyLife) endSending() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != nil {
		_ = l.c.EndSending()
	}
}

// drain reads to the end where nobody listens yet.
func (l *proxyLife) drain() {
	defer close(l.ended)
	for {
		if _, err := l.hear(); err != nil {
			return
		}
	}
}

// memorySize is as much as the caller's limit on the size of files has room for:
// beyond it, names get no address.
func memorySize() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &l) == nil && l.Cur < proxy.MemorySize {
		return int64(l.Cur)
	}
	return proxy.MemorySize
}

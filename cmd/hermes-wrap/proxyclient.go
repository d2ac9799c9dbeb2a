package main

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxyClient is the launcher's end of the proxy, of which a run has one at a
// time. The first is started beside the container, so its own start costs no
// time; whoever needs it waits. One that ends is replaced (proxyrestart.go).
type proxyClient struct {
	proxyNeeds
	events  chan error    // the run must end, and why; the first counts
	refresh chan string   // names of credentials to read again
	started chan struct{} // closed when first or err is set
	ready   chan struct{} // closed when the doors are served for the first time
	gone    chan struct{} // closed when no proxy serves any more, nor ever will
	quit    chan struct{} // closed when the run ends
	limit   restartLimit
	// patience bounds each of the two things that a first proxy is waited for: that it
	// has read its policy, and that it serves.
	patience time.Duration
	metrics  *os.File // a listener for metrics; nil: none
	first    *proxyLife
	err      error
	once     sync.Once
	closing  sync.Once
	doorway  *doors // set before ready
	// What a proxy of the run passes on to the next. The launcher looks into neither.
	memory    *os.File // what was used of budgets, and addresses of names
	authority *os.File // the key of the run's authority, sealed; nil: there is none
	ca        []byte
	roots     map[string][]byte // the files of network.ca

	mu      sync.Mutex
	now     *proxyLife    // nil while none serves
	back    chan struct{} // closed when now is set again
	over    bool          // nothing is restarted any more
	seq     int
	pending map[int]pendingOrder
	inForce inForce
}

// proxyNeeds is what starting a proxy takes.
type proxyNeeds struct {
	setup proxySetup
	log   *audit.Log
	// key gives the key of a writer's chain in the record.
	key func(writer string) audit.ChainKey
	// record and say tell that a proxy ended or took over.
	record func(audit.Event) error
	say    func(string)
}

// inForce is a policy with its secrets that the proxy judges by.
type inForce struct {
	policy  policy.Policy
	secrets proxySecrets
}

// maxRefresh bounds the credentials that wait to be read again. The proxy asks
// once more for what is left out.
const maxRefresh = 64

func newProxyClient(needs proxyNeeds) *proxyClient {
	return &proxyClient{
		proxyNeeds: needs, limit: defaultRestarts, patience: firstLimit,
		events: make(chan error, 1), refresh: make(chan string, maxRefresh), started: make(chan struct{}),
		ready: make(chan struct{}), gone: make(chan struct{}), quit: make(chan struct{}), back: make(chan struct{}),
		pending: map[int]pendingOrder{},
	}
}

// firstLimit is as long as the launcher waits for an init: the machine may be at
// its worst when a run begins.
const firstLimit = 30 * time.Second

// startProxy starts the process and hands it the policy; it returns at once.
func startProxy(p policy.Policy, read func() (proxySecrets, error), needs proxyNeeds) *proxyClient {
	px := newProxyClient(needs)
	go func() {
		defer close(px.started)
		secrets, err := read()
		if err == nil {
			px.memory, err = runMemory()
		}
		if err != nil {
			px.err = err
			return
		}
		px.inForce, px.roots = inForce{p, secrets}, map[string][]byte{}
		for _, f := range p.Network.CA {
			px.roots[f.Abs] = secrets.Files[f.Abs]
		}
		px.first, px.err = px.open(0)
	}()
	return px
}

// proxyReads is all of the file system that the proxy may open.
func proxyReads() []string {
	return []string{
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/var/lib/ca-certificates",
		"/etc/resolv.conf", "/run/systemd/resolve", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols",
		"/etc/localtime", "/usr/share/zoneinfo", "/proc/self", "/dev/null", "/sys/kernel/mm/transparent_hugepage",
	}
}

// hello waits until the first proxy has read its policy, and gives its certificate.
func (p *proxyClient) hello() ([]byte, error) {
	p.once.Do(func() {
		if <-p.started; p.err != nil {
			return
		}
		defer p.hurry(p.first, p.patience)()
		var h proxyHello
		if h, p.authority, p.err = p.first.hello(); p.err == nil {
			p.ca = h.CA
		}
		p.err = p.first.explain(p.err)
	})
	return p.ca, p.err
}

// doors hands over the sockets and waits until they are served.
func (p *proxyClient) doors(listeners, resolvers []*os.File) error {
	kept, err := keepDoors(listeners, resolvers, p.metrics)
	p.doorway = kept
	if err != nil {
		return err
	}
	if _, err := p.hello(); err != nil {
		return err
	}
	defer p.hurry(p.first, p.patience)()
	if err := p.first.open(kept); err != nil {
		return p.first.explain(err)
	}
	p.serves(p.first)
	close(p.ready)
	go p.tend(p.first)
	return nil
}

// serves makes a proxy the one that orders go to. over tells that the run ends.
func (p *proxyClient) serves(l *proxyLife) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = l
	close(p.back)
	return p.over
}

// isReady tells whether the proxy serves, or did so once.
func (p *proxyClient) isReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// end ends the run. Nothing is restarted from then on.
func (p *proxyClient) end(reason error) {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	select {
	case p.events <- reason:
	default:
	}
}

// writers names the parts of the record that proxies ended, or are about to.
func (p *proxyClient) writers() (names []string) {
	p.mu.Lock()
	l := p.now
	p.mu.Unlock()
	if l == nil && !p.isReady() {
		l = p.first
	}
	if l != nil && l.begun.Load() {
		names = append(names, l.writer)
	}
	return names
}

// closeLimit bounds how long the proxy may take to end its record.
const closeLimit = 2 * time.Second

// close ends the proxy and waits until its part of the record is complete. It
// may be called more than once.
func (p *proxyClient) close() {
	p.closing.Do(func() {
		<-p.started
		p.mu.Lock()
		p.over = true
		l := p.now
		p.mu.Unlock()
		close(p.quit)
		if l == nil && !p.isReady() {
			l = p.first
		}
		if l != nil {
			l.endSending()
			if !p.isReady() {
				go l.drain()
			}
			if !l.endsWithin(closeLimit) {
				l.condemn(errors.New("it did not end with the run"))
			}
			if l.endsWithin(closeLimit) { // otherwise somebody reads still
				l.close()
			}
		}
		if p.isReady() {
			select {
			case <-p.gone:
			case <-time.After(closeLimit):
			}
		}
		p.doorway.close()
		for _, f := range []*os.File{p.memory, p.authority} {
			if f != nil {
				f.Close()
			}
		}
	})
}

// runMemory makes what outlives a proxy of the run. A limit on the size of files
// counts for it too.
func runMemory() (*os.File, error) {
	return sandbox.SharedFile("hermes-wrap-memory", memorySize())
}

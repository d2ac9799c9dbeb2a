package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxyClient is the launcher's end of the proxy. The process is started beside
// the container, so its own start costs no time; whoever needs it waits.
type proxyClient struct {
	events  chan error    // the run must end, and why; the first counts
	refresh chan string   // names of credentials to read again
	started chan struct{} // closed when c or err is set
	ready   chan struct{} // closed when the doors are served
	gone    chan struct{} // closed when the proxy ended
	c       *sandbox.Channel
	pid     int      // of the proxy, once it said hello
	metrics *os.File // a listener for metrics; nil: none
	err     error
	once    sync.Once
	ca      []byte
	opened  atomic.Bool // the proxy has begun its part of the record
	closing sync.Once

	mu   sync.Mutex
	seq  int
	done map[int]chan proxyEvent // who waits for which order
}

// maxRefresh bounds the credentials that wait to be read again. The proxy asks
// once more for what is left out.
const maxRefresh = 64

func newProxyClient() *proxyClient {
	return &proxyClient{
		events: make(chan error, 1), refresh: make(chan string, maxRefresh), started: make(chan struct{}),
		ready: make(chan struct{}), gone: make(chan struct{}), done: map[int]chan proxyEvent{},
	}
}

// startProxy starts the process and hands it the policy; it returns at once.
func startProxy(p policy.Policy, values map[string]credential.Values, setup proxySetup, log *audit.Log) *proxyClient {
	px := newProxyClient()
	go func() {
		defer close(px.started)
		px.c, px.err = openProxy(p, values, setup, log)
	}()
	return px
}

func openProxy(p policy.Policy, values map[string]credential.Values, setup proxySetup, log *audit.Log) (*sandbox.Channel, error) {
	ours, theirs, err := sandbox.NewChannelPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	secrets, err := readSecrets(p, values)
	if err != nil {
		ours.Close()
		return nil, err
	}
	files, err := sealed(p, secrets)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer closeFiles(files)
	if err := ours.Send(setup, append(files[:2:2], log.File())...); err != nil {
		ours.Close()
		return nil, fmt.Errorf("instruct the proxy: %w", err)
	}
	// It knows what to sweep from its first moment on, also when the launcher is
	// killed in the next.
	if err := sandbox.StartProxy(proxyArg0, theirs.File(), proxyReads(), setup.RunDir, setup.Cgroups); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// proxyReads is all of the file system that the proxy may open.
func proxyReads() []string {
	return []string{
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/var/lib/ca-certificates",
		"/etc/resolv.conf", "/run/systemd/resolve", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols",
		"/etc/localtime", "/usr/share/zoneinfo", "/proc/self", "/dev/null", "/sys/kernel/mm/transparent_hugepage",
	}
}

// hello waits until the proxy has read its policy, and gives its certificate.
func (p *proxyClient) hello() ([]byte, error) {
	p.once.Do(func() {
		if <-p.started; p.err != nil {
			return
		}
		var h proxyHello
		if _, err := p.c.Receive(&h); err != nil {
			p.err = fmt.Errorf("the proxy ended before it was ready: %w", err)
		} else if h.Error != "" {
			p.err = errors.New(h.Error)
		}
		p.ca, p.pid = h.CA, h.Pid
		p.opened.Store(p.err == nil)
	})
	return p.ca, p.err
}

// doors hands over the sockets and waits until they are served.
func (p *proxyClient) doors(listeners, resolvers []*os.File) error {
	all := append(append([]*os.File{}, listeners...), resolvers...)
	_, err := p.hello()
	o := proxyDoors{Listeners: len(listeners)}
	if err == nil && p.metrics != nil {
		var statm *os.File
		statm, err = os.Open(fmt.Sprintf("/proc/%d/statm", p.pid))
		o.Metrics, all = true, append(all, p.metrics, statm)
	}
	if err == nil {
		err = p.c.Send(o, all...)
	}
	for _, f := range all {
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("hand the sockets to the proxy: %w", err)
	}
	var e proxyEvent
	if _, err := p.c.Receive(&e); err != nil {
		return fmt.Errorf("the proxy ended while it opened: %w", err)
	}
	if !e.Ready {
		return errors.New(e.Fatal)
	}
	close(p.ready)
	go p.watch()
	return nil
}

// watch reads what the proxy says, and never waits for anybody: the proxy can
// always send. The end of the proxy is the end of the run.
func (p *proxyClient) watch() {
	defer close(p.gone)
	for {
		var e proxyEvent
		if _, err := p.c.Receive(&e); err != nil {
			p.end(errors.New("the proxy ended; without it every connection is refused"))
			return
		}
		switch {
		case e.Done > 0:
			p.deliver(e)
		case e.Refresh != "":
			select {
			case p.refresh <- e.Refresh:
			default:
			}
		case e.Stop != "":
			p.end(errors.New(e.Stop))
		default:
			p.end(errors.New(e.Fatal))
		}
	}
}

// isReady tells whether the proxy serves.
func (p *proxyClient) isReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

func (p *proxyClient) end(reason error) {
	select {
	case p.events <- reason:
	default:
	}
}

func (p *proxyClient) deliver(e proxyEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, ok := p.done[e.Done]; ok {
		answer <- e // has room for one
		delete(p.done, e.Done)
	}
}

// orderLimit bounds how long the proxy may take to swap its rules.
const orderLimit = 10 * time.Second

// update has the proxy judge by another policy, and returns when it does. After
// an error the old one is in force.
func (p *proxyClient) update(pol policy.Policy, secrets proxySecrets) (closed int, err error) {
	files, err := sealed(pol, secrets)
	if err != nil {
		return 0, err
	}
	defer closeFiles(files)
	return p.order(proxyOrder{}, files)
}

// order has the proxy do something, and waits until it is done.
func (p *proxyClient) order(o proxyOrder, files []*os.File) (closed int, err error) {
	e, err := p.ask(o, files)
	return e.Closed, err
}

// stats asks the proxy for its numbers.
func (p *proxyClient) stats() (*proxy.Stats, error) {
	if !p.isReady() {
		return nil, errStarting
	}
	e, err := p.ask(proxyOrder{Stats: true}, nil)
	if err == nil && e.Stats == nil {
		err = errors.New("BUG: the proxy gave no numbers")
	}
	return e.Stats, err
}

// ask sends an order and gives its answer.
func (p *proxyClient) ask(o proxyOrder, files []*os.File) (e proxyEvent, err error) {
	answer := make(chan proxyEvent, 1)
	p.mu.Lock()
	p.seq++
	o.Seq = p.seq
	p.done[o.Seq] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.done, o.Seq)
	}()
	if err := p.c.Send(o, files...); err != nil {
		return e, fmt.Errorf("instruct the proxy: %w", err)
	}
	late := time.NewTimer(orderLimit)
	defer late.Stop()
	select {
	case e := <-answer:
		if e.Error != "" {
			return e, errors.New(e.Error)
		}
		return e, nil
	case <-p.gone:
		return e, errors.New("the proxy ended")
	case <-late.C:
		if o.Stats { // nothing depends on it
			return e, fmt.Errorf("the proxy gave no numbers within %v", orderLimit)
		}
		// Which rules it uses is not known: without that nothing may go on.
		err := fmt.Errorf("the proxy did not carry out an order within %v", orderLimit)
		p.end(err)
		return e, err
	}
}

// closeLimit bounds how long the proxy may take to end its record.
const closeLimit = 2 * time.Second

// close ends the proxy and waits until its part of the record is complete. It
// may be called more than once.
func (p *proxyClient) close() {
	p.closing.Do(func() {
		if <-p.started; p.c == nil {
			return
		}
		_ = p.c.EndSending()
		ended := make(chan struct{})
		go p.awaitEnd(ended)
		select {
		case <-ended:
		case <-time.After(closeLimit):
		}
		_ = p.c.Close()
	})
}

// awaitEnd returns when the proxy has closed its end. Where nobody reads yet it
// reads itself.
func (p *proxyClient) awaitEnd(ended chan<- struct{}) {
	defer close(ended)
	select {
	case <-p.ready:
		<-p.gone
	default:
		for {
			var e proxyEvent
			if _, err := p.c.Receive(&e); err != nil {
				return
			}
		}
	}
}

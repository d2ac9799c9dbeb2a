package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxyClient is the launcher's end of the proxy. The process is started beside
// the container, so its own start costs no time; whoever needs it waits.
type proxyClient struct {
	events  chan error
	started chan struct{} // closed when c or err is set
	c       *sandbox.Channel
	err     error
	once    sync.Once
	ca      []byte
}

// startProxy starts the process and hands it the policy; it returns at once.
func startProxy(p policy.Policy, setup proxySetup, log *audit.Log) *proxyClient {
	px := &proxyClient{events: make(chan error, 1), started: make(chan struct{})}
	go func() {
		defer close(px.started)
		px.c, px.err = openProxy(p, setup, log)
	}()
	return px
}

func openProxy(p policy.Policy, setup proxySetup, log *audit.Log) (*sandbox.Channel, error) {
	ours, theirs, err := sandbox.NewChannelPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	sealed, err := sandbox.SealedFile("hermes-wrap-policy", p.JSON())
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer sealed.Close()
	if err := ours.Send(setup, sealed, log.File()); err != nil {
		ours.Close()
		return nil, fmt.Errorf("instruct the proxy: %w", err)
	}
	// It knows what to sweep from its first moment on, also when the launcher is
	// killed in the next.
	if err := sandbox.StartProxy(proxyArg0, theirs.File(), proxyReads(p), setup.RunDir, setup.Cgroups); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

// proxyReads is all of the file system that the proxy may open.
func proxyReads(p policy.Policy) []string {
	paths := []string{
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/var/lib/ca-certificates",
		"/etc/resolv.conf", "/run/systemd/resolve", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols",
		"/etc/localtime", "/usr/share/zoneinfo", "/proc/self", "/dev/null", "/sys/kernel/mm/transparent_hugepage",
	}
	for _, ca := range p.Network.CA {
		paths = append(paths, ca.Abs)
	}
	return paths
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
		p.ca = h.CA
	})
	return p.ca, p.err
}

// doors hands over the sockets and waits until they are served.
func (p *proxyClient) doors(listeners, resolvers []*os.File) error {
	all := append(append([]*os.File{}, listeners...), resolvers...)
	_, err := p.hello()
	if err == nil {
		err = p.c.Send(proxyDoors{Listeners: len(listeners)}, all...)
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
	go p.watch()
	return nil
}

// watch turns the proxy's end or its failure into an event: without it
// everything is refused, and the run ends.
func (p *proxyClient) watch() {
	var e proxyEvent
	if _, err := p.c.Receive(&e); err != nil {
		p.events <- errors.New("the proxy ended; without it every connection is refused")
		return
	}
	p.events <- errors.New(e.Fatal)
}

func (p *proxyClient) close() {
	if <-p.started; p.c != nil {
		_ = p.c.Close()
	}
}

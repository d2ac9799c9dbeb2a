package proxy

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// outlet is the connections to servers that were dialled under one set of
// rules. Requests of other rules never get one of them. Once other rules are in
// force and its last request is over, all of its connections are closed.
type outlet struct {
	h1, h2 *http.Transport // by what the client speaks
	// narrow is h2 for requests beyond the first wideRequests: what a server sent
	// and the client does not fetch waits in the proxy, for each of them.
	narrow  *http.Transport
	metrics *metrics
	flows   atomic.Int64
	retired atomic.Bool

	mu    sync.Mutex
	conns map[*outletConn]struct{}
}

func (s *Server) newOutlet(perHost int) *outlet {
	o := &outlet{metrics: &s.metrics, conns: map[*outletConn]struct{}{}}
	o.h1, o.h2, o.narrow = s.newTransport(0, o), s.newTransport(wideWindow, o), s.newTransport(narrowWindow, o)
	for _, t := range []*http.Transport{o.h1, o.h2, o.narrow} {
		t.MaxIdleConnsPerHost, t.MaxIdleConns = perHost, max(perHost, t.MaxIdleConns)
	}
	return o
}

// How much of an answer in HTTP/2 may wait for its client. The wide window is what
// one download over a long way needs.
const (
	wideWindow   = 1 << 20
	narrowWindow = 64 << 10
	wideRequests = 64
)

// transport is the way out for a request of a client that speaks HTTP/2, or not.
func (o *outlet) transport(h2 bool, requests int64) *http.Transport {
	switch {
	case !h2:
		return o.h1
	case requests > wideRequests:
		return o.narrow
	}
	return o.h2
}

// enter is called before a request uses the outlet, leave when it is over.
func (o *outlet) enter() { o.flows.Add(1) }

func (o *outlet) leave() {
	if o.flows.Add(-1) == 0 && o.retired.Load() {
		o.close()
	}
}

// retire closes what no request uses. A request that still enters, since it was
// judged just before, closes the rest as it leaves.
func (o *outlet) retire() {
	o.retired.Store(true)
	o.h1.CloseIdleConnections()
	o.h2.CloseIdleConnections()
	o.narrow.CloseIdleConnections()
	if o.flows.Load() == 0 {
		o.close()
	}
}

// close ends every connection.
func (o *outlet) close() {
	o.mu.Lock()
	all := make([]*outletConn, 0, len(o.conns))
	for c := range o.conns {
		all = append(all, c)
	}
	o.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// hold keeps a connection until it is closed. A transport also dials on its own
// behalf; one that was dialled for nobody any more is closed at once.
func (o *outlet) hold(c net.Conn) net.Conn {
	held := &outletConn{Conn: c, o: o}
	o.mu.Lock()
	o.conns[held] = struct{}{}
	o.mu.Unlock()
	if o.retired.Load() && o.flows.Load() == 0 {
		_ = held.Close()
	}
	return held
}

// outletConn counts what comes in, and takes itself off its outlet.
type outletConn struct {
	net.Conn
	o *outlet
}

func (c *outletConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.o.metrics.received.Add(int64(n))
	return n, err
}

// Close may be called more than once.
func (c *outletConn) Close() error {
	c.o.mu.Lock()
	delete(c.o.conns, c)
	c.o.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite keeps half-closing possible.
func (c *outletConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}

package proxy

import (
	"net/http"
	"sync/atomic"
)

// outlet is the connections to servers that were dialled under one set of
// rules. Requests of other rules never get one of them. Once other rules are in
// force and its last request is over, all of its connections are closed.
type outlet struct {
	h1, h2  *http.Transport // by what the client speaks
	flows   atomic.Int64
	retired atomic.Bool
}

func (s *Server) newOutlet() *outlet {
	return &outlet{h1: s.newTransport(false), h2: s.newTransport(true)}
}

// enter is called before a request uses the outlet, leave when it is over.
func (o *outlet) enter() { o.flows.Add(1) }

func (o *outlet) leave() {
	if o.flows.Add(-1) == 0 && o.retired.Load() {
		o.retire()
	}
}

// retire closes what no request uses. A request that still enters, since it was
// judged just before, closes the rest as it leaves.
func (o *outlet) retire() {
	o.retired.Store(true)
	o.h1.CloseIdleConnections()
	o.h2.CloseIdleConnections()
}

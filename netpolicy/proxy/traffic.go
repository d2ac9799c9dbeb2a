package proxy

import (
	"fmt"
	"net"
	"sync"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// maxCountedHosts bounds what counting hosts can take of memory.
const maxCountedHosts = 1 << 17

// Traffic is what a run has sent so far.
type Traffic struct {
	// BytesOut is what was written to servers: inspected connections with their
	// TLS, and the bytes of tunnels.
	BytesOut int64
	// Hosts is the number of different hosts that were looked up or dialled.
	Hosts int
}

// traffic counts it. It goes on counting when the rules change.
type traffic struct {
	own counters // without a Memory

	mu     sync.Mutex
	hosts  map[netpolicy.Host]struct{}
	warned map[string]int64 // the budget whose 80 % or end was recorded, by what is recorded
}

// counters are the numbers of the run.
func (s *Server) counters() *counters {
	if s.Memory != nil {
		return &s.Memory.traffic
	}
	return &s.traffic.own
}

// lockedTake counts a host.
func (t *traffic) lockedTake(h netpolicy.Host) {
	if t.hosts == nil {
		t.hosts = map[netpolicy.Host]struct{}{}
	}
	t.hosts[h] = struct{}{}
}

// Traffic gives the numbers of the moment.
func (s *Server) Traffic() Traffic {
	s.traffic.mu.Lock()
	defer s.traffic.mu.Unlock()
	return Traffic{BytesOut: s.counters().bytes.Load(), Hosts: len(s.traffic.hosts)}
}

// spentBudget is the error when a budget is used up.
type spentBudget struct{ reason string }

func (e *spentBudget) Error() string { return e.reason }

// withinTraffic refuses a request when a budget of all traffic is used up. What
// it sends is counted as it is written.
func (fl *flow) withinTraffic() *refusal {
	s, h := fl.s, fl.f.host
	if fl.out.URL.Hostname() != h.String() { // a provider of models
		var err error
		if h, _, err = netpolicy.ParseHostPort(fl.out.URL.Host, 0); err != nil {
			return forbidden(fl.f.host, "BUG: the request goes to no host")
		}
	}
	err := s.admit(h)
	if err == nil {
		err = s.mayWrite()
	}
	if err != nil {
		return overBudget(fl.f.host, err)
	}
	return nil
}

func overBudget(h netpolicy.Host, err error) *refusal {
	refused := forbidden(h, err.Error())
	refused.Hint = "the budget is for the whole run; nothing but a larger one in the policy changes this"
	return refused
}

// admit counts a host, or refuses one more than the budget has.
func (s *Server) admit(h netpolicy.Host) error {
	t, limit := &s.traffic, int64(s.rules().Traffic.Hosts)
	t.mu.Lock()
	_, known := t.hosts[h]
	n := int64(len(t.hosts))
	refused := !known && limit > 0 && n >= limit
	if !known && !refused && n < maxCountedHosts {
		if s.Memory.note(entryHost, h) {
			t.lockedTake(h)
			n++
		} else {
			refused = limit > 0
		}
	}
	t.mu.Unlock()
	if refused {
		s.warnOnce("hosts, all", limit, fmt.Sprintf("network.budget.hosts is used up: %d hosts were reached", limit))
		return &spentBudget{fmt.Sprintf("network.budget.hosts is used up: %d hosts were reached, and this is another", limit)}
	}
	if !known && limit > 0 && n*10 >= limit*8 {
		s.warnOnce("hosts", limit, fmt.Sprintf("80 %% of network.budget.hosts is used: %d of %d", n, limit))
	}
	return nil
}

// mayWrite tells whether anything may still be sent.
func (s *Server) mayWrite() error {
	limit := int64(s.rules().Traffic.BytesOut)
	if limit > 0 && (s.counters().spent.Load() == limit || s.counters().bytes.Load() >= limit) {
		return s.bytesSpent(limit)
	}
	return nil
}

// spend counts n bytes before they are written. What does not fit is not
// counted, and must not be written.
func (s *Server) spend(n int64) error {
	limit := int64(s.rules().Traffic.BytesOut)
	if limit <= 0 {
		s.counters().bytes.Add(n)
		return nil
	}
	if s.counters().spent.Load() == limit {
		return s.bytesSpent(limit)
	}
	total := s.counters().bytes.Add(n)
	if total > limit {
		s.counters().bytes.Add(-n)
		return s.bytesSpent(limit)
	}
	s.warnBytes(total, limit)
	return nil
}

// spentAlready counts bytes that the kernel has moved.
func (s *Server) spentAlready(n int64) {
	total := s.counters().bytes.Add(n)
	if limit := int64(s.rules().Traffic.BytesOut); limit > 0 {
		s.warnBytes(total, limit)
	}
}

func (s *Server) warnBytes(total, limit int64) {
	if total >= limit/10*8+limit%10*8/10 {
		s.warnOnce("bytes", limit, fmt.Sprintf("80 %% of network.budget.bytes_out is used: %d of %d bytes", total, limit))
	}
}

func (s *Server) bytesSpent(limit int64) error {
	s.counters().spent.Store(limit)
	s.warnOnce("bytes, all", limit, fmt.Sprintf("network.budget.bytes_out is used up: %d bytes", limit))
	return &spentBudget{fmt.Sprintf("network.budget.bytes_out is used up: the run may send %d bytes", limit)}
}

// warnOnce records that a budget is nearly or wholly used up, once for each
// value that the budget has had.
func (s *Server) warnOnce(what string, limit int64, reason string) {
	t := &s.traffic
	t.mu.Lock()
	said := t.warned[what] == limit
	if !said {
		if t.warned == nil {
			t.warned = map[string]int64{}
		}
		t.warned[what] = limit
	}
	t.mu.Unlock()
	if !said {
		s.record(audit.Event{Kind: audit.KindBudget, Reason: reason})
	}
}

// countedConn counts what is written to a server.
type countedConn struct {
	net.Conn
	s *Server
}

// Write writes all or, where the budget does not have room for it, nothing.
func (c *countedConn) Write(p []byte) (int, error) {
	if err := c.s.spend(int64(len(p))); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite keeps half-closing possible.
func (c *countedConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}

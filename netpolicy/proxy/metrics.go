package proxy

import (
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// metrics counts what the Server does. Nothing in it depends on a text that the
// sandbox or a server chose. The zero value is ready for use.
type metrics struct {
	events    [len(countedKinds)][3]atomic.Int64 // by kind and verdict
	recorded  atomic.Int64                       // events that were written
	unwritten atomic.Int64                       // events that could not be
	queries   atomic.Int64                       // DNS
	received  atomic.Int64                       // bytes from servers
	reloads   atomic.Int64
	inbound   atomic.Int64 // connections of clients outside
	began     time.Time    // of the Server
	decision  histogram    // what judging a request's head takes
	upstream  histogram    // from sending a request to the head of its answer
}

// countedKinds are the events that the Server makes. Any other is not counted
// by kind.
var countedKinds = [...]audit.Kind{
	audit.KindConnection, audit.KindRequest, audit.KindAddress, audit.KindName,
	audit.KindUpstream, audit.KindFault, audit.KindSecret, audit.KindInference, audit.KindBudget,
	audit.KindInbound,
}

// The columns of metrics.events.
const (
	columnNone = iota
	columnDeny
	columnAllow
)

// count takes note of an event and of whether it is on record.
func (m *metrics) count(e audit.Event, err error) {
	if err != nil {
		m.unwritten.Add(1)
	} else {
		m.recorded.Add(1)
	}
	column := columnNone
	switch e.Verdict {
	case audit.Deny:
		column = columnDeny
	case audit.Allow:
		column = columnAllow
	}
	for i, k := range countedKinds {
		if k == e.Kind {
			m.events[i][column].Add(1)
		}
	}
}

// of gives the number of events of a kind with a verdict.
func (m *metrics) of(k audit.Kind, column int) int64 {
	for i := range countedKinds {
		if countedKinds[i] == k {
			return m.events[i][column].Load()
		}
	}
	return 0
}

// total gives the number of events of a kind.
func (m *metrics) total(k audit.Kind) int64 {
	return m.of(k, columnNone) + m.of(k, columnDeny) + m.of(k, columnAllow)
}

// histogram counts durations in buckets.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// bounds are the upper ends of the buckets: decisions take microseconds, models
// minutes.
var bounds = [...]time.Duration{
	time.Microsecond, 2 * time.Microsecond, 5 * time.Microsecond, 10 * time.Microsecond, 25 * time.Microsecond, 100 * time.Microsecond,
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute,
}

// since adds what passed from a moment on.
func (h *histogram) since(began time.Time) {
	d := time.Since(began)
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// Tunnels gives the number of open tunnels and WebSockets.
func (s *Server) openTunnels() int {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	return len(s.held.held)
}

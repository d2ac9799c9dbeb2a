package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// Where there is a budget of bytes, a tunnel is carried in slices and looked at
// each period: the kernel moves the bytes, and says how many only afterwards.
const (
	meterSlice  = 1 << 20
	meterPeriod = time.Second
)

// tunnelMeter counts what a tunnel sends to its server.
type tunnelMeter struct {
	s        *Server
	c        *capture
	d        netpolicy.Decision
	protocol string
	sent     int64
}

// copyPeriod copies until the end of src or of the period.
func (m *tunnelMeter) copyPeriod(dst, src net.Conn, end time.Time, moved *atomic.Int64) error {
	for {
		// In this order: whoever loads other rules ends the deadline, and is either
		// seen here or ends this one.
		deadline := end
		if soon := time.Now().Add(meterPeriod); m.limited() && soon.Before(end) {
			deadline = soon
		}
		if err := src.SetReadDeadline(deadline); err != nil {
			return err
		}
		slice, limited, err := m.slice()
		if err != nil {
			m.record(err)
			return err
		}
		var from io.Reader = src
		if limited {
			from = io.LimitReader(src, slice)
		}
		n, err := m.copy(dst, from, slice)
		moved.Add(n)
		m.sent += n
		more := err == nil && limited && n == slice || errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end)
		if !more {
			return err
		}
	}
}

// copy copies and counts. A slice is set aside meanwhile: if this process is
// killed in between, the next one counts all of it.
func (m *tunnelMeter) copy(dst net.Conn, from io.Reader, slice int64) (int64, error) {
	c := m.s.counters()
	c.slices.Add(slice)
	n, err := io.Copy(dst, from)
	m.s.spentAlready(n) // before the slice is given back: rather twice than never
	c.slices.Add(-slice)
	return n, err
}

func (m *tunnelMeter) limited() bool { return m.s.rules().Traffic.BytesOut > 0 }

// slice gives how much may be sent now.
func (m *tunnelMeter) slice() (n int64, limited bool, err error) {
	limit := int64(m.s.rules().Traffic.BytesOut)
	if limit <= 0 {
		return 0, false, nil
	}
	if err := m.s.mayWrite(); err != nil {
		return 0, true, err
	}
	return max(1, min(meterSlice, limit-m.s.counters().bytes.Load())), true, nil
}

// record says that the budget ended the tunnel.
func (m *tunnelMeter) record(err error) {
	m.s.record(audit.Event{
		Kind: audit.KindConnection, Verdict: audit.Deny, Host: m.c.host.String(), Port: m.c.port, Protocol: m.protocol,
		Rule: m.d.Rule, Pos: m.d.Pos.String(), Reason: err.Error(),
	})
}

// wakes makes a tunnel look at its budget whenever it is judged again: it may
// have had none.
func (m *tunnelMeter) wakes(judge func(*Rules) bool) func(*Rules) bool {
	return func(r *Rules) bool {
		ok := judge(r)
		if ok {
			_ = m.c.Conn.SetReadDeadline(time.Unix(1, 0))
		}
		return ok
	}
}

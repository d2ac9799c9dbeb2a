package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// tunnel dials and carries bytes both ways.
func (s *Server) tunnel(ctx context.Context, c *capture, d netpolicy.Decision, protocol string) {
	first := s.rules()
	release, err := s.slots.take(ctx, c.host.String(), first.Upstream.perHost(), s.limits.Dial)
	if err != nil {
		s.tunnelFailed(c, d, protocol, err)
		return
	}
	defer release()
	var up net.Conn
	// Dialling and recording need a deep stack, carrying a shallow one. Done on
	// a goroutine of their own they give it back, for as long as the tunnel lasts.
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		defer s.recovered("tunnel")
		up = s.openTunnel(ctx, first, c, d, protocol)
	}()
	<-opened
	if up == nil {
		return
	}
	stop, err := s.track(ctx, up)
	if err != nil {
		return
	}
	defer stop()
	meter := &tunnelMeter{s: s, c: c, d: d, protocol: protocol}
	defer s.hold(meter.wakes(rejudgeTunnel(first, c, up, d)), func() {
		s.record(audit.Event{
			Kind: audit.KindConnection, Verdict: audit.Deny, Host: c.host.String(), Port: c.port, Protocol: protocol,
			Reason: loadedSince,
		})
		reset(up)
		reset(c.Conn)
	})()
	moved := splice(c.Conn, up, s.limits.Idle, meter)
	s.metrics.received.Add(moved - meter.sent)
}

// loadedSince is why a tunnel ends that other rules do not allow.
const loadedSince = "the policy that was loaded since no longer allows this connection"

// sameMode tells whether rules allow a connection to be carried as d says.
func sameMode(r *Rules, c *capture, d netpolicy.Decision) bool {
	now := r.Engine.Connection(c.host, c.port)
	return now.Verdict == netpolicy.Allow && now.Mode == d.Mode
}

// rejudgeTunnel tells whether other rules allow the same: the host in the same
// mode, and the address. Where the first rules say nothing of the address, it
// is not the host's (an upstream proxy's) and the later ones need not either.
func rejudgeTunnel(first *Rules, c *capture, up net.Conn, d netpolicy.Decision) func(*Rules) bool {
	to, err := netip.ParseAddrPort(up.RemoteAddr().String())
	direct := err == nil && first.Engine.Address(to.Addr(), to.Port()).Verdict == netpolicy.Allow
	return func(r *Rules) bool {
		if !sameMode(r, c, d) {
			return false
		}
		return !direct || r.Engine.Address(to.Addr(), to.Port()).Verdict == netpolicy.Allow
	}
}

// openTunnel dials, records, and sends what was read ahead. It gives nil when
// the connection is over.
func (s *Server) openTunnel(ctx context.Context, first *Rules, c *capture, d netpolicy.Decision, protocol string) net.Conn {
	// The client may have taken its time before its first bytes, and the server
	// before it answered.
	if !sameMode(first, c, d) {
		s.drop(c, netpolicy.Decision{Reason: loadedSince}, protocol)
		return nil
	}
	up, err := s.dialHost(ctx, c.host, c.port, schemeHTTPS)
	if err != nil {
		s.tunnelFailed(c, d, protocol, err)
		return nil
	}
	if !rejudgeTunnel(first, c, up, d)(s.rules()) {
		_ = up.Close()
		s.drop(c, netpolicy.Decision{Reason: loadedSince}, protocol)
		return nil
	}
	if !s.record(audit.Event{
		Kind: audit.KindConnection, Verdict: audit.Allow, Host: c.host.String(), Port: c.port,
		Addr: up.RemoteAddr().String(), Protocol: protocol, Rule: d.Rule, Pos: d.Pos.String(), Reason: d.Reason,
	}) {
		_ = up.Close()
		reset(c.Conn)
		return nil
	}
	if err = s.spend(int64(len(c.ahead))); err == nil {
		err = sendAhead(c, up, s.limits.Handshake)
	}
	if err != nil {
		_ = up.Close()
		s.tunnelFailed(c, d, protocol, err)
		return nil
	}
	return up
}

// sendAhead sends what was read ahead of the client.
func sendAhead(c *capture, up net.Conn, patience time.Duration) error {
	if len(c.ahead) == 0 {
		return nil
	}
	if err := up.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := up.Write(c.ahead); err != nil {
		return err
	}
	c.ahead = nil
	return up.SetWriteDeadline(time.Time{})
}

func (s *Server) tunnelFailed(c *capture, d netpolicy.Decision, protocol string, err error) {
	var refused *refusedAddress
	if errors.As(err, &refused) {
		// The address itself is on record already.
		s.drop(c, netpolicy.Decision{
			Rule: refused.decision.Rule, Pos: refused.decision.Pos,
			Reason: "address " + refused.addr.String() + ": " + refused.decision.Reason,
		}, protocol)
		return
	}
	var spent *spentBudget
	if errors.As(err, &spent) || errors.Is(err, errHostBusy) {
		s.drop(c, netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: err.Error()}, protocol)
		return
	}
	s.record(audit.Event{
		Kind: audit.KindUpstream, Host: c.host.String(), Port: c.port, Protocol: protocol,
		Rule: d.Rule, Pos: d.Pos.String(), Reason: err.Error(),
	})
	reset(c.Conn)
}

// splice carries bytes between a client and a server until both directions have
// ended, one of them fails, or neither moved for idle. An end of file is
// passed on as such, so that half-closed protocols work. Between two TCP
// connections the kernel moves the bytes (splice(2)). Those to the server are
// counted, unless meter is nil. It gives the number of all bytes.
func splice(client, server net.Conn, idle time.Duration, meter *tunnelMeter) int64 {
	var moved atomic.Int64
	var wg sync.WaitGroup
	carry := func(dst, src net.Conn, m *tunnelMeter) {
		defer wg.Done()
		if err := copyIdle(dst, src, idle, &moved, m); err != nil {
			// The other side must not take a broken stream for a whole one.
			reset(dst)
			reset(src)
			return
		}
		closeWrite(dst)
	}
	wg.Add(2)
	go carry(client, server, nil)
	carry(server, client, meter)
	wg.Wait()
	return moved.Load()
}

// copyIdle copies to the end of src. A pause is an error only if moved, which
// both directions add to, stood still for two whole periods: the other
// direction adds its bytes only as its own period ends.
func copyIdle(dst, src net.Conn, idle time.Duration, moved *atomic.Int64, meter *tunnelMeter) error {
	for quiet := 0; ; {
		before := moved.Load()
		err := copyPeriod(dst, src, time.Now().Add(idle/2), moved, meter)
		if moved.Load() != before {
			quiet = -1
		}
		if quiet++; !errors.Is(err, os.ErrDeadlineExceeded) || quiet == 2 {
			return err
		}
	}
}

// copyPeriod copies until the end of src or of the period.
func copyPeriod(dst, src net.Conn, end time.Time, moved *atomic.Int64, meter *tunnelMeter) error {
	if meter != nil {
		return meter.copyPeriod(dst, src, end, moved)
	}
	if err := src.SetReadDeadline(end); err != nil {
		return err
	}
	n, err := io.Copy(dst, src)
	moved.Add(n)
	return err
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
		return
	}
	_ = c.Close()
}

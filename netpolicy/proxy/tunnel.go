package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// tunnel dials and carries bytes both ways.
func (s *Server) tunnel(ctx context.Context, c *capture, d netpolicy.Decision, protocol string) {
	up, err := s.dialHost(ctx, c.host, c.port)
	if err != nil {
		s.tunnelFailed(c, d, protocol, err)
		return
	}
	stop, err := s.track(ctx, up)
	if err != nil {
		return
	}
	defer stop()
	if !s.record(audit.Event{
		Kind: audit.KindConnection, Verdict: audit.Allow, Host: c.host.String(), Port: c.port,
		Addr: up.RemoteAddr().String(), Protocol: protocol, Rule: d.Rule, Pos: d.Pos.String(), Reason: d.Reason,
	}) {
		reset(c.Conn)
		return
	}
	if len(c.ahead) > 0 {
		if err := up.SetWriteDeadline(time.Now().Add(s.limits.Handshake)); err != nil {
			return
		}
		if _, err := up.Write(c.ahead); err != nil {
			reset(c.Conn)
			return
		}
		c.ahead = nil
		if err := up.SetWriteDeadline(time.Time{}); err != nil {
			return
		}
	}
	splice(c.Conn, up, s.limits.Idle)
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
	s.record(audit.Event{
		Kind: audit.KindUpstream, Host: c.host.String(), Port: c.port, Protocol: protocol,
		Rule: d.Rule, Pos: d.Pos.String(), Reason: err.Error(),
	})
	reset(c.Conn)
}

// splice carries bytes between two connections until both directions have
// ended, one of them fails, or neither moved for idle. An end of file is
// passed on as such, so that half-closed protocols work. Between two TCP
// connections the kernel moves the bytes (splice(2)).
func splice(a, b net.Conn, idle time.Duration) {
	var moved atomic.Int64
	var wg sync.WaitGroup
	carry := func(dst, src net.Conn) {
		defer wg.Done()
		if err := copyIdle(dst, src, idle, &moved); err != nil {
			// The other side must not take a broken stream for a whole one.
			reset(dst)
			reset(src)
			return
		}
		closeWrite(dst)
	}
	wg.Add(2)
	go carry(a, b)
	carry(b, a)
	wg.Wait()
}

// copyIdle copies to the end of src. A pause is an error only if moved, which
// both directions add to, stood still for two whole periods: the other
// direction adds its bytes only as its own period ends.
func copyIdle(dst, src net.Conn, idle time.Duration, moved *atomic.Int64) error {
	for quiet := 0; ; {
		before := moved.Load()
		if err := src.SetReadDeadline(time.Now().Add(idle / 2)); err != nil {
			return err
		}
		n, err := io.Copy(dst, src)
		if moved.Add(n) != before {
			quiet = -1
		}
		if quiet++; !errors.Is(err, os.ErrDeadlineExceeded) || quiet == 2 {
			return err
		}
	}
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
		return
	}
	_ = c.Close()
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// front is what is known of a connection before its first request: all of its
// requests must be for this host.
type front struct {
	host netpolicy.Host
	port uint16
	tls  bool
	h2   bool

	// inbound is set for a client outside.
	inbound *inbound
	// engine is set for a connection to the container engine.
	engine *engineWay

	resets atomic.Int64 // see maxResets
	cut    func()       // ends the connection; set when it speaks HTTP/2

	mu sync.Mutex
	// refusal answers every request of a connection that is denied as a whole.
	refusal *refusal
	// by are the rules that made it; nil when no rules can change it.
	by *Rules
}

// malformed is the refusal of a head that cannot be read.
func (f *front) malformed(e *headError) *refusal {
	if f.inbound != nil { // the advice is for an agent
		return guestRefusal(e.status, errRequest, strings.TrimSuffix(e.reason, ": "+hintCaptured))
	}
	return malformed(e.status, e.reason)
}

func (f *front) protocol() string {
	switch {
	case f.h2:
		return "h2"
	case f.tls:
		return "https"
	}
	return "http"
}

// handle takes one captured connection from its first byte to its last.
func (s *Server) handle(ctx context.Context, conn net.Conn) {
	c, to, ok := s.newCapture(conn)
	defer func() { _ = c.Close() }()
	if !ok {
		s.record(audit.Event{
			Kind: audit.KindConnection, Verdict: audit.Deny, Addr: to.Addr().String(), Port: to.Port(),
			Protocol: "tcp", Reason: "address was never given to a name",
		})
		reset(conn)
		return
	}
	if to.Port() == 53 && !synthetic.Contains(to.Addr()) {
		s.serveDNSOverTCP(c)
		return
	}
	rules := s.rules()
	s.carryJudged(ctx, c, rules, rules.Engine.Connection(c.host, c.port))
}

// carryJudged does with a connection what the rules decided about it.
func (s *Server) carryJudged(ctx context.Context, c *capture, rules *Rules, d netpolicy.Decision) {
	if d.Verdict != netpolicy.Allow {
		s.refuse(ctx, c, rules, d)
		return
	}
	switch d.Mode {
	case netpolicy.ModeTCP:
		s.tunnel(ctx, c, d, "tcp")
	case netpolicy.ModePass, netpolicy.ModeInspect:
		s.carry(ctx, c, d)
	default:
		s.refuse(ctx, c, nil, netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: "BUG: allowed, but no way to carry it"})
	}
}

// carry handles a connection that must be TLS or HTTP.
func (s *Server) carry(ctx context.Context, c *capture, d netpolicy.Decision) {
	w, err := c.sniff(s.limits.Sniff)
	f := &front{host: c.host, port: c.port}
	switch {
	case err != nil && len(c.ahead) == 0:
		return // nothing was sent: a port scan or a connection opened early
	case w == wireHTTP:
		s.serveHTTP1(ctx, c, c, f)
	case w == wireTLS && d.Mode == netpolicy.ModePass:
		s.pass(ctx, c, d)
	case w == wireTLS && s.tls != nil:
		s.terminate(ctx, c, f)
	default:
		reason := "neither TLS nor HTTP; a rule with protocol: tcp is needed"
		if w == wireTLS {
			reason = "BUG: must be inspected, but there is no authority"
		}
		s.drop(c, netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: reason}, "tcp")
	}
}

// pass carries TLS unread once its server name is the host's.
func (s *Server) pass(ctx context.Context, c *capture, d netpolicy.Decision) {
	name, err := c.clientHello(ctx, s.limits.Handshake)
	if err != nil {
		s.drop(c, netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: "malformed TLS ClientHello"}, "tls")
		return
	}
	if reason := checkServerName(c.host, name); reason != "" {
		refused := netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: reason}
		if s.tls == nil {
			s.drop(c, refused, "tls")
			return
		}
		f := &front{host: c.host, port: c.port, refusal: denied(c.host, refused)}
		s.record(f.refusal.event(audit.KindConnection, f))
		s.terminate(ctx, c, f)
		return
	}
	s.tunnel(ctx, c, d, "tls")
}

// checkServerName compares the server name of a ClientHello with the host of
// the connection, and says what is wrong. A connection to a bare address needs
// no server name (RFC 6066 forbids one).
func checkServerName(h netpolicy.Host, name string) string {
	if name == "" {
		if h.IsAddr() {
			return ""
		}
		return "TLS without a server name"
	}
	sni, err := netpolicy.ParseHost(name)
	if err != nil {
		return "malformed TLS server name"
	}
	if sni != h {
		return "TLS server name " + sni.String() + " is not the host of the connection"
	}
	return ""
}

// terminate ends TLS with a certificate of ours and serves HTTP on it.
func (s *Server) terminate(ctx context.Context, c *capture, f *front) {
	f.tls = true
	c.front = f
	t := tls.Server(c, s.tls)
	if err := t.SetDeadline(time.Now().Add(s.limits.Handshake)); err != nil {
		return
	}
	if err := t.HandshakeContext(ctx); err != nil {
		s.handshakeFailed(f, err)
		return
	}
	if err := t.SetDeadline(time.Time{}); err != nil {
		return
	}
	state := t.ConnectionState()
	if reason := checkServerName(c.host, state.ServerName); reason != "" {
		f.by = nil
		if f.refusal == nil {
			f.refusal = forbidden(c.host, reason)
			s.record(f.refusal.event(audit.KindConnection, f))
		}
	}
	if state.NegotiatedProtocol == "h2" {
		f.h2, f.cut = true, func() { reset(c.Conn) }
		s.h2.serve(t)
		<-c.closed
		return
	}
	s.serveHTTP1(ctx, c, t, f)
}

// handshakeFailed records what keeps an allowed connection from being
// inspected: most often a client that does not know the run's authority.
func (s *Server) handshakeFailed(f *front, err error) {
	if f.refusal != nil {
		return // the denial is on record already
	}
	reason := "TLS handshake with the client failed: " + err.Error()
	var alert tls.AlertError
	if errors.As(err, &alert) {
		reason = "the client refused the certificate of the sandbox: " + alert.Error()
	}
	s.record(audit.Event{Kind: audit.KindConnection, Verdict: audit.Deny, Host: f.host.String(), Port: f.port, Protocol: "tls", Reason: reason})
}

// newTLSConfig is what clients inside see. One config for all connections, so
// that its session tickets work.
func (s *Server) newTLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		Time:       s.Now,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, ok := hello.Conn.(*capture)
			if !ok {
				return nil, errors.New("BUG: handshake on a connection that was not captured")
			}
			// A client that names another host gets that host's certificate,
			// so that it can read the refusal.
			if h, err := netpolicy.ParseHost(hello.ServerName); err == nil {
				return s.Authority.leafFor(h)
			}
			return s.Authority.leafFor(c.host)
		},
	}
}

// refuse ends a connection that is denied as a whole: in HTTP where the client
// speaks it, otherwise with a reset.
func (s *Server) refuse(ctx context.Context, c *capture, rules *Rules, d netpolicy.Decision) {
	f := &front{host: c.host, port: c.port, refusal: denied(c.host, d), by: rules}
	if d.Mode == netpolicy.ModeRefuse {
		s.drop(c, d, "tcp")
		return
	}
	w, _ := c.sniff(s.limits.Refuse)
	switch {
	case w == wireHTTP:
		s.record(f.refusal.event(audit.KindConnection, f))
		s.serveHTTP1(ctx, c, c, f)
	case w == wireTLS && s.tls != nil:
		f.tls = true
		s.record(f.refusal.event(audit.KindConnection, f))
		s.terminate(ctx, c, f)
	default:
		s.drop(c, d, "tcp")
	}
}

// drop resets a connection and records why.
func (s *Server) drop(c *capture, d netpolicy.Decision, protocol string) {
	e := denied(c.host, d).event(audit.KindConnection, &front{host: c.host, port: c.port})
	e.Protocol, e.Status = protocol, 0
	s.record(e)
	reset(c.Conn)
}

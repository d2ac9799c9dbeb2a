package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// Inbound is how one entry of network.publish is served: what is asked of clients
// outside before anything of them reaches the sandbox.
type Inbound struct {
	// Name and Pos are the entry's.
	Name, Pos string
	// Host and Port are where the host listens; both are zero for a Unix socket.
	Host string
	Port uint16
	// TLS ends TLS; nil: clients speak in the clear.
	TLS *tls.Config
	// Token is the SHA-256 of what each request must show as its bearer token. Nil:
	// what clients send is carried unread.
	Token *[sha256.Size]byte
}

// InboundProtocols are what is offered in a TLS handshake: HTTP where it is
// parsed, and nothing where bytes are carried.
func InboundProtocols(parsed bool) []string {
	if parsed {
		return []string{"h2", "http/1.1"}
	}
	return nil
}

// inbound is one connection from outside.
type inbound struct {
	Inbound
	client string // its address, without the port
	dial   func(context.Context) (net.Conn, error)
	// inner carries requests. Each gets a connection of its own: none can be
	// mistaken for a part of another, and a service that was started again is
	// found again.
	inner *http.Transport
}

// guestLimits are the limits of clients outside. They have a budget of their own,
// so that they cannot use up the sandbox's.
func (s *Server) guestLimits() Limits {
	return Limits{
		KeepAlive: time.Minute, Streams: 100, Requests: 256, Uploads: 64, HeadsHeld: 16 << 20,
		Sniff: s.Limits.Sniff, Handshake: s.Limits.Handshake, Head: s.Limits.Head, Idle: s.Limits.Idle, Linger: s.Limits.Linger,
	}
}

// guests is the server of clients outside. It has no rules: what it does not
// carry to a published port it denies.
func (s *Server) guests() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guest == nil && !s.closed {
		s.guest = &Server{Audit: s.Audit, Fatal: s.Fatal, Limits: s.guestLimits(), guestOf: s}
	}
	return s.guest
}

// anyGuests gives nil when there were none yet.
func (s *Server) anyGuests() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest
}

// openInbound is the number of connections from outside.
func (s *Server) openInbound() int64 {
	if g := s.anyGuests(); g != nil {
		return g.open.Load()
	}
	return 0
}

// ServeInbound carries one connection of a client outside to the published port
// of that name, and returns when it is over. dial connects to the port inside; it
// is called once for each request, after the request was admitted.
func (s *Server) ServeInbound(ctx context.Context, name string, conn net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer func() { _ = conn.Close() }()
	settings, ok := s.rules().Inbound[name]
	g := s.guests()
	if !ok || g == nil {
		reset(conn)
		return
	}
	g.wg.Add(1)
	defer g.wg.Done()
	stop, err := g.track(ctx, conn)
	if err != nil {
		return
	}
	defer stop()
	defer g.recovered("inbound connection")
	g.open.Add(1)
	defer g.leave()
	s.metrics.inbound.Add(1)
	in := &inbound{Inbound: settings, dial: dial}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		in.client = tcp.AddrPort().Addr().Unmap().String()
	}
	in.inner = g.newInner(in)
	g.serveInbound(ctx, conn, in)
}

func (s *Server) serveInbound(ctx context.Context, conn net.Conn, in *inbound) {
	c := &capture{Conn: conn, closed: make(chan struct{})}
	defer func() { _ = c.Close() }()
	f := &front{inbound: in, port: in.Port}
	c.front = f
	if in.TLS == nil {
		s.serveHTTP1(ctx, c, c, f)
		return
	}
	f.tls = true
	t := tls.Server(c, in.TLS)
	if t.SetDeadline(time.Now().Add(s.limits.Handshake)) != nil {
		return
	}
	if err := t.HandshakeContext(ctx); err != nil {
		s.record(in.event(audit.Deny, "the TLS handshake failed: "+err.Error()))
		return
	}
	if t.SetDeadline(time.Time{}) != nil {
		return
	}
	switch {
	case in.Token == nil:
		s.carryInbound(ctx, c, t, in)
	case t.ConnectionState().NegotiatedProtocol == "h2":
		f.h2, f.cut = true, func() { reset(c.Conn) }
		s.h2.serve(t)
		<-c.closed
	default:
		s.serveHTTP1(ctx, c, t, f)
	}
}

// carryInbound carries bytes, once TLS was ended.
func (s *Server) carryInbound(ctx context.Context, c *capture, t *tls.Conn, in *inbound) {
	inner, err := in.dial(ctx)
	if err != nil {
		reset(c.Conn)
		return
	}
	stop, err := s.track(ctx, inner)
	if err != nil {
		return
	}
	defer stop()
	splice(t, inner, s.limits.Idle, nil)
}

// event is a line of the record about the entry.
func (in *inbound) event(v audit.Verdict, reason string) audit.Event {
	return audit.Event{
		Kind: audit.KindInbound, Verdict: v, Rule: in.Name, Pos: in.Pos, Host: in.Host, Port: in.Port, Addr: in.client, Reason: reason,
	}
}

// innerError is why the port inside could not be reached.
type innerError struct{ err error }

func (e *innerError) Error() string { return "connect to the port inside: " + e.err.Error() }
func (e *innerError) Unwrap() error { return e.err }

func (s *Server) newInner(in *inbound) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			defer s.recoveredTo("dial", &err)
			ctx, cancel := context.WithTimeout(ctx, s.limits.Dial)
			defer cancel()
			if c, err = in.dial(ctx); err != nil {
				return nil, &innerError{err}
			}
			return c, nil
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

const noteInbound = "A sandbox of hermes-wrap publishes this port."

// guestRefusal is a refusal to a client outside.
func guestRefusal(status int, kind, reason string) *refusal {
	return newRefusal(status, kind, noteInbound, reason)
}

// admit judges a request of a client outside and writes it anew.
func (in *inbound) admit(fl *flow, r *request) *refusal {
	if refused := in.checkToken(r.header); refused != nil {
		return refused
	}
	if _, _, err := netpolicy.ParseHostPort(r.authority, 80); err != nil {
		return malformed(http.StatusBadRequest, "malformed host: "+err.Error())
	}
	switch {
	case r.upgrade && !r.websocket:
		return guestRefusal(http.StatusNotImplemented, errRequest, "no upgrade is carried but the one to WebSocket")
	case r.websocket && (r.method != http.MethodGet || r.length != 0):
		return malformed(http.StatusBadRequest, "a WebSocket is asked for with GET and without a body")
	}
	path, query := "*", ""
	if r.target != "*" {
		var err error
		if path, query, err = netpolicy.SplitTarget(r.target); err != nil {
			return malformed(http.StatusBadRequest, err.Error())
		}
	}
	delete(r.header, "Authorization")
	dropMisleading(r.header)
	in.introduce(r.header, fl.f.tls)
	if r.websocket {
		r.header["Connection"], r.header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	if r.websocket {
		fl.upgrades = "websocket"
	}
	fl.out = fl.f.outgoing(r, path, query)
	fl.out.URL, fl.out.Host = &url.URL{Scheme: "http", Host: "inside", Opaque: path, RawQuery: query}, r.authority
	return nil
}

// introduce tells the service inside who its client is. What the client itself
// said of that was dropped.
func (in *inbound) introduce(h http.Header, encrypted bool) {
	proto := "http"
	if encrypted {
		proto = "https"
	}
	h["X-Forwarded-Proto"] = []string{proto}
	if in.client != "" {
		h["X-Forwarded-For"] = []string{in.client}
	}
}

// errToken is the value of "error" when a token is missing or wrong.
const errToken = "unauthorized"

// checkToken compares the token in constant time, whatever its length.
func (in *inbound) checkToken(h http.Header) *refusal {
	sent := h["Authorization"]
	reason := ""
	switch len(sent) {
	case 0:
		reason = "the request shows no token: Authorization: Bearer TOKEN"
	case 1:
		scheme, token, _ := strings.Cut(sent[0], " ")
		sum := sha256.Sum256([]byte(strings.TrimLeft(token, " ")))
		if in.Token != nil && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], in.Token[:]) == 1 {
			return nil
		}
		reason = "the token is wrong"
	default:
		reason = "more than one Authorization field"
	}
	return guestRefusal(http.StatusUnauthorized, errToken, reason)
}

// judgeInbound does for a client outside what judge does for one inside. What is
// refused is on record; what is carried is not, request by request.
func (s *Server) judgeInbound(ctx context.Context, f *front, r *request) (*flow, *refusal) {
	fl := &flow{s: s, f: f, rules: s.rules(), due: r.due}
	fl.rules.out.enter()
	if refused := f.inbound.admit(fl, r); refused != nil {
		fl.close()
		if !s.record(fl.denial(refused, r)) {
			return nil, unrecorded(f.host)
		}
		return nil, refused
	}
	fl.out = fl.out.WithContext(ctx)
	return fl, nil
}

// failedInside turns what went wrong on the way to the service into an answer.
func failedInside(r *refusal, err error) *refusal {
	if r.Error != errUpstream {
		return r
	}
	reason, status := "the service inside did not answer as it should", r.status
	if unreached := (*innerError)(nil); errors.As(err, &unreached) {
		reason, status = "nothing listens on the port inside", http.StatusServiceUnavailable
	}
	refused := guestRefusal(status, errUpstream, reason)
	refused.detail = r.detail
	return refused
}

// acceptUpgrade checks the service's 101. It gives what is wrong, or "".
func (fl *flow) acceptUpgrade(resp *http.Response) string {
	server, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !offersOnly(resp.Header["Upgrade"], fl.upgrades) {
		return "the service switched to something else than " + fl.upgrades
	}
	fl.upgraded, resp.Body = server, http.NoBody
	fl.ends = append(fl.ends, func() { _ = server.Close() })
	return ""
}

// carryUpgraded answers with 101 and carries bytes until both sides are done. The
// token was checked with the request, and nothing that follows can be another.
func (h *http1) carryUpgraded(fl *flow, resp *http.Response) {
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{fl.upgrades}
	if h.writeHead(resp.StatusCode, resp.Header, false) != nil || h.out.Flush() != nil || h.conn.SetDeadline(time.Time{}) != nil {
		return
	}
	patience := h.s.limits.Idle
	idle := time.AfterFunc(patience, h.cut)
	defer idle.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer h.s.recovered("upgraded connection")
		_, _ = io.Copy(fl.upgraded, &stirring{h.in, idle, patience})
		if half, ok := fl.upgraded.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			_ = fl.upgraded.Close()
		}
	}()
	_, _ = io.Copy(h.conn, &stirring{fl.upgraded, idle, patience})
	closeWrite(h.conn)
	idle.Reset(min(patience, wsGrace))
	<-ended
}

// stirring puts the end for idleness off with each piece.
type stirring struct {
	r        io.Reader
	idle     *time.Timer
	patience time.Duration
}

// Read reads the next piece.
func (s *stirring) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.idle.Reset(s.patience)
	}
	return n, err
}

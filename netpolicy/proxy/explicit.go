package proxy

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// ExplicitUser is the user name that goes with the token of ServeExplicit.
const ExplicitUser = "sandbox"

// ServeExplicit accepts connections of clients that know that they speak to a
// proxy: CONNECT, and requests with an absolute target. It is for a sandbox
// without a network namespace, where nothing can be captured. What is judged,
// and how, is what ServeTCP does with a captured connection.
//
// The listener is on the host's loopback, where every user can connect, so
// each client proves by Basic authentication (ExplicitUser, token) that it
// belongs to the run. An empty token refuses everybody.
func (s *Server) ServeExplicit(ctx context.Context, l net.Listener, token string) error {
	key := newDoorKey(token)
	s.own.add(l.Addr())
	return s.serve(ctx, l, func(ctx context.Context, c net.Conn) { s.handleExplicit(ctx, c, key) })
}

// doorKey is what a client of an explicit proxy must send.
type doorKey struct{ basic string }

func newDoorKey(token string) *doorKey {
	if token == "" {
		return &doorKey{}
	}
	return &doorKey{base64.StdEncoding.EncodeToString([]byte(ExplicitUser + ":" + token))}
}

// opens compares in constant time.
func (k *doorKey) opens(fields http.Header) bool {
	sent := fields["Proxy-Authorization"]
	if len(sent) != 1 || k.basic == "" {
		return false
	}
	scheme, value, _ := strings.Cut(sent[0], " ")
	return strings.EqualFold(scheme, "Basic") && subtle.ConstantTimeCompare([]byte(strings.TrimLeft(value, " ")), []byte(k.basic)) == 1
}

var errNoKey = &headError{http.StatusProxyAuthRequired, "this proxy belongs to one sandbox: the token in HTTPS_PROXY is missing or wrong"}

const connectMethod = "CONNECT "

// handleExplicit serves requests until the client goes or asks for a tunnel.
func (s *Server) handleExplicit(ctx context.Context, conn net.Conn, key *doorKey) {
	c := &capture{Conn: conn, closed: make(chan struct{})}
	defer func() { _ = c.Close() }()
	h := &http1{s: s, c: c, conn: c, f: &front{}, in: bufio.NewReader(c), out: bufio.NewWriter(c), key: key}
	for patience := s.limits.Head; ; patience = s.limits.KeepAlive {
		if c.SetReadDeadline(time.Now().Add(patience)) != nil {
			return
		}
		first, err := h.in.Peek(len(connectMethod))
		if err != nil {
			return
		}
		if string(first) == connectMethod {
			h.connect(ctx)
			return
		}
		if !h.next(ctx, s.limits.Head) {
			return
		}
	}
}

// connect answers one CONNECT and turns the connection into what a captured
// one is.
func (h *http1) connect(ctx context.Context) {
	if h.c.SetReadDeadline(time.Now().Add(h.s.limits.Head)) != nil {
		return
	}
	host, port, err := h.readConnect()
	if err != nil {
		h.badHead(err)
		return
	}
	h.c.host, h.c.port = host, port
	h.f = &front{host: host, port: port}
	rules := h.s.rules()
	d := rules.Engine.Connection(host, port)
	if d.Verdict != netpolicy.Allow && h.s.tls == nil {
		// Without an authority the refusal can be read nowhere but here.
		h.f.refusal = denied(host, d)
		h.s.record(h.f.refusal.event(audit.KindConnection, h.f))
		h.refuse(&head{method: http.MethodConnect, minor: 1}, h.f.refusal)
		return
	}
	if h.c.SetDeadline(time.Time{}) != nil {
		return
	}
	if _, err := io.WriteString(h.c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	h.s.carryJudged(ctx, h.c, rules, d)
}

// readConnect reads the head of a CONNECT. Bytes that follow it before our
// answer are refused: they would be lost or read twice.
func (h *http1) readConnect() (host netpolicy.Host, port uint16, err error) {
	defer h.dropHead()
	raw, err := readHead(h.in, nil, h.s.limits.HeadBytes, h.holdHead)
	if err != nil {
		return host, 0, err
	}
	line, rest, _ := strings.Cut(string(raw), "\r\n")
	target, version, _ := strings.Cut(strings.TrimPrefix(line, connectMethod), " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return host, 0, badHead("version is neither HTTP/1.1 nor HTTP/1.0")
	}
	fields, err := parseFields(rest, h.s.limits.Headers)
	switch {
	case err != nil:
		return host, 0, err
	case !h.key.opens(fields):
		return host, 0, errNoKey
	case len(fields["Content-Length"]) > 0 || len(fields["Transfer-Encoding"]) > 0 || h.in.Buffered() > 0:
		return host, 0, badHead("CONNECT with a body")
	}
	host, port, err = netpolicy.ParseHostPort(target, 0)
	if err != nil || port == 0 {
		return host, 0, badHead("CONNECT target is not host:port")
	}
	return host, port, nil
}

// readExplicit reads a request with an absolute target. Each request of a
// connection may name another host, so the front is made anew.
func (h *http1) readExplicit() (*head, error) {
	raw, err := readHead(h.in, h.head, h.s.limits.HeadBytes, h.holdHead)
	if err != nil {
		return nil, err
	}
	h.keepHead(raw)
	h.f = &front{}
	hd, err := parseHead(raw, h.s.limits.Headers)
	if err != nil {
		return nil, err
	}
	// parseHead has removed the field, which must never be forwarded.
	_, rest, _ := strings.Cut(string(raw), "\r\n")
	fields, err := parseFields(rest, h.s.limits.Headers)
	switch {
	case err != nil:
		return nil, err
	case !h.key.opens(fields):
		return nil, errNoKey
	case hd.absolute == "":
		return nil, badHead("this is a proxy: the request target must be an http URL")
	case hd.absolute != hd.host:
		return nil, badHead("request target and Host name different hosts")
	case hd.scheme != "http":
		return nil, badHead("https goes through CONNECT")
	}
	return hd, h.frontFor(hd)
}

// frontFor judges the connection that a client without a proxy would make.
func (h *http1) frontFor(hd *head) error {
	host, port, err := netpolicy.ParseHostPort(hd.absolute, 80)
	if err != nil {
		return badHead("malformed host in the request target")
	}
	h.f = &front{host: host, port: port}
	d := h.s.engine().Connection(host, port)
	if d.Verdict == netpolicy.Allow && (d.Mode == netpolicy.ModePass || d.Mode == netpolicy.ModeInspect) {
		return nil
	}
	if d.Verdict == netpolicy.Allow {
		d = netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: "the rule allows raw bytes, which go through CONNECT"}
	}
	h.f.refusal = denied(host, d)
	h.s.record(h.f.refusal.event(audit.KindConnection, h.f))
	return nil
}

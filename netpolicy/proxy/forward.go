package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// request is one request of a client, of either HTTP version, not yet judged.
type request struct {
	method    string
	target    string // "/path?query" or "*"
	authority string // Host or :authority, as sent
	header    http.Header
	body      io.ReadCloser
	length    int64 // -1 when not known
	trailer   http.Header
	upgrade   bool
	websocket bool            // the upgrade is one to WebSocket, and nothing else
	due       func(time.Time) // bounds reading the body; nil without one
}

// judge decides a request and writes it anew. Exactly one result is non-nil.
// The decision is on record when it returns.
func (s *Server) judge(ctx context.Context, f *front, r *request) (*flow, *refusal) {
	if f.inbound != nil {
		return s.judgeInbound(ctx, f, r)
	}
	if f.engine != nil {
		return s.judgeDocker(ctx, f, r)
	}
	rules := s.rules()
	if refused := s.standing(f, rules); refused != nil {
		return nil, refused
	}
	fl := &flow{s: s, f: f, rules: rules}
	rules.out.enter()
	fl.due = r.due
	began := time.Now()
	refused := fl.decide(r)
	s.metrics.decision.since(began)
	if refused == nil {
		fl.out = fl.out.WithContext(ctx)
		refused = fl.prepare()
	}
	if refused != nil {
		fl.close()
		fl.dress(refused)
		s.record(fl.denial(refused, r))
		return nil, refused
	}
	if !s.record(fl.permit(r)) {
		fl.close()
		return nil, unrecorded(f.host)
	}
	return fl, nil
}

// decide asks the engine about the head. It does no I/O.
func (fl *flow) decide(r *request) *refusal {
	f := fl.f
	h, port, err := netpolicy.ParseHostPort(r.authority, f.port)
	switch {
	case err != nil:
		return malformed(http.StatusBadRequest, "malformed host: "+err.Error())
	case h != f.host || port != f.port:
		refused := forbidden(f.host, "the request names another host than the connection: "+h.String()+":"+strconv.Itoa(int(port)))
		refused.Hint = hintCaptured
		return refused
	case r.upgrade && !r.websocket:
		return forbidden(h, "no rule can allow a protocol upgrade but the one to WebSocket")
	case r.method == http.MethodTrace || r.method == "TRACK":
		return forbidden(h, "TRACE is never allowed: it shows what the proxy adds")
	}
	path, query := "*", ""
	if r.target != "*" {
		if path, query, err = netpolicy.SplitTarget(r.target); err != nil {
			return malformed(http.StatusBadRequest, err.Error())
		}
	}
	dropMisleading(r.header) // what is judged is what goes out
	if refused := fl.decideMethods(r, path, query); refused != nil {
		return refused
	}
	if d := fl.decision; r.websocket && (d.Claim == nil || d.Claim.Protocol != policy.ProtocolWebSocket) {
		return forbidden(h, "no rule allows a protocol upgrade (WebSocket)")
	}
	fl.out = f.outgoing(r, path, query)
	return fl.limitBody()
}

// decideMethods judges the request's method and, where a field or a parameter
// asks the server to take another one, that one too.
func (fl *flow) decideMethods(r *request, path, query string) *refusal {
	f := fl.f
	judged := netpolicy.Request{
		Host: f.host, Port: f.port, TLS: f.tls, Method: r.method, Path: path,
		Header: r.header, Length: r.length, WebSocket: r.websocket,
	}
	if path == "*" {
		judged.Path = "/"
	}
	var err error
	if judged.Query, err = netpolicy.ParseQuery(query); err != nil {
		return malformed(http.StatusBadRequest, err.Error())
	}
	fl.judged = judged
	fl.decision = fl.rules.Engine.Request(judged)
	if fl.decision.Verdict != netpolicy.Allow {
		return denied(f.host, fl.decision)
	}
	for name, methods := range r.header {
		if isAmong(name, methodOverrides) {
			if refused := fl.decideAs(judged, "field "+name, methods); refused != nil {
				return refused
			}
		}
	}
	for name, methods := range judged.Query {
		if netpolicy.IsParameter(name, methodParameter) {
			if refused := fl.decideAs(judged, "parameter "+methodParameter, methods); refused != nil {
				return refused
			}
		}
	}
	return nil
}

// decideAs judges the request as if it had the methods that something in it asks
// the server to take.
func (fl *flow) decideAs(judged netpolicy.Request, where string, methods []string) *refusal {
	for _, method := range methods {
		judged.Method = strings.ToUpper(method)
		if !isTokenString(judged.Method) {
			return malformed(http.StatusBadRequest, "malformed "+where)
		}
		if o := fl.rules.Engine.Request(judged); o.Verdict != netpolicy.Allow {
			refused := denied(fl.f.host, o)
			refused.Reason = "by " + where + ": " + refused.Reason
			return refused
		}
	}
	return nil
}

// outgoing writes the judged request anew: nothing of the original but what
// was judged or cannot mislead goes out.
func (f *front) outgoing(r *request, path, query string) *http.Request {
	scheme, standard := "http", uint16(80)
	if f.tls {
		scheme, standard = "https", 443
	}
	dial := net.JoinHostPort(f.host.String(), strconv.Itoa(int(f.port)))
	authority := dial
	if f.port == standard {
		authority = strings.TrimSuffix(dial, ":"+strconv.Itoa(int(f.port)))
	}
	h := r.header
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // keeps net/http from adding its own
	}
	out := &http.Request{
		Method:        r.method,
		URL:           &url.URL{Scheme: scheme, Host: dial, Opaque: path, RawQuery: query},
		Host:          authority,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		Body:          r.body,
		ContentLength: r.length,
		Trailer:       r.trailer,
	}
	if r.length == 0 || r.body == nil {
		out.Body, out.ContentLength = http.NoBody, 0
	}
	return out
}

// exchange sends a judged request and gives the answer's head, cleaned. Whoever
// has a say in the answer has had it.
func (fl *flow) exchange() (*http.Response, *refusal) {
	resp, refused := fl.send()
	if refused != nil {
		return nil, refused
	}
	if refused = fl.receive(resp); refused != nil {
		_ = resp.Body.Close()
		fl.dress(refused)
		fl.record(refused)
		return nil, refused
	}
	return resp, nil
}

// roundTrip sends a request and checks the answer's head.
func (fl *flow) roundTrip() (*http.Response, *refusal) {
	s, f := fl.s, fl.f
	transport, err := fl.way()
	if err != nil {
		return nil, s.failed(fl, err)
	}
	if fl.out.Body != http.NoBody {
		fl.out.Body = &guardedBody{fl.out.Body, s}
	}
	began := time.Now()
	resp, err := transport.RoundTrip(fl.out)
	s.metrics.upstream.since(began)
	if err != nil {
		if refused := fl.cutBody(); refused != nil {
			return nil, refused
		}
		return nil, s.failed(fl, err)
	}
	reason := ""
	if resp.StatusCode == http.StatusSwitchingProtocols && fl.socket != nil {
		reason = fl.socket.accept(resp)
	} else if resp.StatusCode == http.StatusSwitchingProtocols && fl.upgrades != "" {
		reason = fl.acceptUpgrade(resp)
	} else if resp.StatusCode < 200 || resp.StatusCode > 599 {
		reason = "the server answered with status " + strconv.Itoa(resp.StatusCode) + ", which nobody asked for"
	} else if bad := badFields(resp.Header); bad != "" {
		reason = "the server's answer has a malformed field " + bad
	}
	if reason != "" {
		_ = resp.Body.Close()
		refused := unreachable(f.host, http.StatusBadGateway, reason)
		s.record(refused.event(audit.KindUpstream, f))
		return nil, refused
	}
	if resp.Body != http.NoBody {
		resp.Body = &answerBody{ReadCloser: resp.Body, fl: fl}
	}
	dropHopByHop(resp.Header)
	delete(resp.Header, "Te")
	delete(resp.Header, decisionHeader)
	// HTTP/3 has no way out; advertising it costs every client a timeout.
	delete(resp.Header, "Alt-Svc")
	return resp, nil
}

// way gives the connections that a request goes out on, once there is room.
func (fl *flow) way() (*http.Transport, error) {
	s, f := fl.s, fl.f
	if f.inbound != nil {
		return f.inbound.inner, nil
	}
	if f.engine != nil {
		return f.engine.inner, nil
	}
	transport := fl.rules.out.transport(f.h2, s.streams.Load())
	release, err := s.slots.take(fl.out.Context(), fl.out.URL.Hostname(), fl.rules.Upstream.perHost(), s.limits.Dial)
	if err != nil {
		return nil, err
	}
	fl.ends = append(fl.ends, release)
	return transport, nil
}

// failed records what went wrong outside and gives the answer for it.
func (s *Server) failed(fl *flow, err error) *refusal {
	var spent *spentBudget
	if over := s.mayWrite(); over != nil && !errors.As(err, &spent) {
		err = over // a connection that others share was cut by it
	}
	refused := s.explain(fl.f.host, err)
	if fl.f.inbound != nil {
		refused = failedInside(refused, err)
	}
	if fl.f.engine != nil {
		refused = failedEngine(refused)
	}
	e := refused.event(audit.KindRequest, fl.f) // or upstream, by what it says
	e.Method, e.Path = fl.out.Method, audit.Redact(fl.out.URL.RequestURI())
	s.record(e)
	return refused
}

// explain turns what went wrong outside into an answer.
func (s *Server) explain(h netpolicy.Host, err error) *refusal {
	var refused *refusedAddress
	var lookup *lookupError
	var certificate *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var network net.Error
	var spent *spentBudget
	var house *houseProxyError
	r := unreachable(h, http.StatusBadGateway, "the connection to the server failed")
	switch {
	case errors.Is(err, errBody):
		return malformed(http.StatusBadRequest, "malformed request body")
	case errors.Is(err, credential.ErrHidden):
		return forbidden(h, "the body has more escapes or line ends than can be searched for credentials")
	case errors.Is(err, errIdle):
		r.Reason, r.status = "the server did not answer in time", http.StatusGatewayTimeout
	case errors.As(err, &refused):
		r := denied(h, refused.decision)
		r.Reason = "the name points to " + refused.addr.String() + ": " + r.Reason
		return r
	case errors.As(err, &spent):
		return overBudget(h, spent)
	case errors.Is(err, errHostBusy):
		return tooMany(h, "connections to the host")
	case errors.As(err, &house):
		r.Reason = house.reason
	case errors.As(err, &lookup):
		r.Reason = "the name cannot be resolved"
	case errors.As(err, &certificate), errors.As(err, &invalid):
		r.Reason = "the server's certificate is not valid"
	case wantsCertificate(err):
		r.Reason = "the server asks for a client certificate, and the policy has none for it (network.upstream.certificates)"
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Reason = "the server refuses connections"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		r.Reason = "this machine has no way to the server's addresses"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		r.Reason, r.status = "the server did not answer in time", http.StatusGatewayTimeout
	}
	r.detail = err.Error()
	return r
}

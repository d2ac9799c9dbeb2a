package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Upstream is the way from the proxy to the servers. The zero value dials them
// itself and shows no certificate.
type Upstream struct {
	// House is the house's own proxy. Nil: servers are dialled directly.
	House *HouseProxy
	// Certificates are shown to servers that ask for one, and to no others.
	Certificates []ClientCertificate
	// PerHost is the number of exchanges and tunnels with one host at a time.
	// 0: 128.
	PerHost int
}

// ClientCertificate is a certificate with its key, for the servers it names.
type ClientCertificate struct {
	hosts netpolicy.Hosts
	pair  tls.Certificate
}

// NewClientCertificate reads a certificate with its chain and its key (PEM), for
// the hosts that the patterns match. The error holds nothing of the key.
func NewClientCertificate(hosts []policy.Name, cert, key []byte) (ClientCertificate, error) {
	set, err := netpolicy.ParseHosts(hosts)
	if err != nil {
		return ClientCertificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return ClientCertificate{}, fmt.Errorf("read client certificate: %w", err)
	}
	return ClientCertificate{hosts: set, pair: pair}, nil
}

// certificateFor gives the first certificate for a host, or nil.
func (u *Upstream) certificateFor(h netpolicy.Host) *tls.Certificate {
	for i := range u.Certificates {
		if u.Certificates[i].hosts.Match(h) {
			return &u.Certificates[i].pair
		}
	}
	return nil
}

func (u *Upstream) perHost() int { return cmp.Or(u.PerHost, defaultPerHost) }

// scheme says what will be spoken on a connection. The house's proxy can be
// another for each.
type scheme string

const (
	schemeHTTP  scheme = "http"
	schemeHTTPS scheme = "https" // also for bytes that nobody reads
)

// newTransport is the way out for inspected requests. It dials through the
// engine, follows nothing, adds nothing and knows no proxy. It speaks HTTP/2
// only where the client does: the server then sees what it would have seen,
// and HTTP/1 requests do not queue up behind one connection.
//
// A window of 0 means no HTTP/2; otherwise it is what may wait for a client that
// does not fetch its answer, for each request.
func (s *Server) newTransport(window int, o *outlet) *http.Transport {
	h2 := window > 0
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            s.RootCAs,
		Time:               s.Now,
		ClientSessionCache: tls.NewLRUClientSessionCache(256),
		NextProtos:         []string{"http/1.1"},
	}
	if h2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, _, addr string) (c net.Conn, err error) {
			defer s.recoveredTo("dial", &err)
			c, _, err = s.dialServer(ctx, o, addr, schemeHTTP)
			return c, err
		},
		DialTLSContext: func(ctx context.Context, _, addr string) (c net.Conn, err error) {
			defer s.recoveredTo("dial", &err)
			return s.dialTLS(ctx, o, addr, config)
		},
		DisableCompression:     true,
		MaxIdleConns:           512,
		IdleConnTimeout:        50 * time.Second, // below what servers use (60, 75)
		MaxResponseHeaderBytes: 256 << 10,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:           30 * time.Second,
			PingTimeout:               15 * time.Second,
			MaxReceiveBufferPerStream: window,
		},
	}
}

// dialServer connects for inspected requests; what is written is counted.
func (s *Server) dialServer(ctx context.Context, o *outlet, addr string, what scheme) (net.Conn, netpolicy.Host, error) {
	h, port, err := netpolicy.ParseHostPort(addr, 0)
	if err != nil {
		return nil, h, err
	}
	c, err := s.dialHost(ctx, h, port, what)
	if err != nil {
		return nil, h, err
	}
	return o.hold(&countedConn{Conn: c, s: s}), h, nil
}

// dialTLS connects and verifies the server. A client certificate is shown only
// to a server that it is for: of two connections, each has its own config.
func (s *Server) dialTLS(ctx context.Context, o *outlet, addr string, base *tls.Config) (net.Conn, error) {
	c, h, err := s.dialServer(ctx, o, addr, schemeHTTPS)
	if err != nil {
		return nil, err
	}
	config := base.Clone()
	config.ServerName = h.String()
	asked := false
	pair := s.rules().Upstream.certificateFor(h)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair != nil {
			return pair, nil
		}
		asked = true
		return new(tls.Certificate), nil // none
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Handshake)
	defer cancel()
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		if asked {
			err = &certificateWanted{err}
		}
		return nil, err
	}
	return t, nil
}

// certificateWanted is the error when a server broke off after it had asked for
// a client certificate and had got none.
type certificateWanted struct{ err error }

func (e *certificateWanted) Error() string { return e.err.Error() }
func (e *certificateWanted) Unwrap() error { return e.err }

// wantsCertificate tells whether an error says that a client certificate is
// missing. With TLS 1.3 the server says so only after the handshake, by an
// alert whose type crypto/tls keeps to itself.
func wantsCertificate(err error) bool {
	var wanted *certificateWanted
	var op *net.OpError
	return errors.As(err, &wanted) ||
		errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate required")
}

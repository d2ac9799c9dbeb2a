package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a proxy with a made-up internet: names, addresses and servers. Only
// the edges are made up; every connection is a real one on loopback.
type world struct {
	t         testing.TB
	srv       *Server
	auditFile string
	outside   *Authority // signs for the servers

	mu       sync.Mutex
	names    map[string][]netip.Addr
	lookups  []string
	dials    []string
	routes   map[string]string // "addr:port" → where the server really listens
	nextAddr byte
}

// testNetwork allows a few hosts in each of the ways there are.
func testNetwork() policy.Network {
	return policy.Network{
		Rules: []policy.Rule{
			{
				Name: "api", Host: "api.example.org", AllowSet: true, Allow: []policy.Match{
					{Methods: []string{"GET", "POST", "HEAD", "PUT", "OPTIONS"}, Paths: []string{"/public/**", "/"}},
				},
				Pos: policy.Pos{File: "p.yaml", Line: 3, Col: 5},
			},
			{Name: "passed", Host: "passed.example.org"},
			{Name: "other", Host: "other.example.org", TLS: policy.TLSInspect},
			{Name: "db", Host: "db.example.org", Protocol: policy.ProtocolTCP, Ports: []int{5432}},
		},
	}
}

func newWorld(t testing.TB, n policy.Network) *world {
	t.Helper()
	engine, err := netpolicy.Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	record, err := audit.Open(path, "test-run")
	if err != nil {
		t.Fatal(err)
	}
	inside, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, auditFile: path, outside: outside, names: map[string][]netip.Addr{}, routes: map[string]string{}}
	w.srv = &Server{
		Rules: Rules{Engine: engine}, Audit: record, Authority: inside, Resolve: w.resolve, Dial: w.dial,
		RootCAs: poolOf(t, outside), Limits: Limits{
			Sniff: 2 * time.Second, Refuse: 200 * time.Millisecond, Dial: 3 * time.Second,
			Linger: 300 * time.Millisecond, Handshake: 3 * time.Second, Head: 2 * time.Second,
		},
	}
	t.Cleanup(func() {
		_ = w.srv.Close()
		_ = record.Close()
	})
	return w
}

func poolOf(t testing.TB, a *Authority) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.CertPEM()) {
		t.Fatal("authority certificate is not PEM")
	}
	return pool
}

func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	if a, ok := w.names[host]; ok {
		return a, nil
	}
	return nil, fmt.Errorf("resolve %q: no such host", host)
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, addr)
	to, ok := w.routes[addr]
	w.mu.Unlock()
	if !ok {
		return nil, errors.New("dial " + addr + ": connection refused")
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

func (w *world) seen() (lookups, dials []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lookups), slices.Clone(w.dials)
}

// publish gives a name a public address at which a server listens.
func (w *world) publish(host string, port int, listening string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.names[host]) == 0 {
		w.nextAddr++
		w.names[host] = []netip.Addr{netip.AddrFrom4([4]byte{93, 184, 215, w.nextAddr})}
	}
	for _, a := range w.names[host] {
		w.routes[netip.AddrPortFrom(a, uint16(port)).String()] = listening
	}
}

// serve publishes an HTTP server, with TLS for every port but 80.
func (w *world) serve(host string, port int, h http.Handler) {
	w.t.Helper()
	l := w.listen()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	server := &http.Server{Handler: h, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	if port == 80 {
		wg.Go(func() { _ = server.Serve(l) })
	} else {
		server.TLSConfig = w.serverTLS()
		wg.Go(func() { _ = server.ServeTLS(l, "", "") })
	}
	w.t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	w.publish(host, port, l.Addr().String())
}

func (w *world) serverTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS10, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		host, err := netpolicy.ParseHost(h.ServerName)
		if err != nil {
			return nil, err
		}
		return w.outside.leafFor(host)
	}}
}

// serveRaw publishes a server that runs f on each connection.
func (w *world) serveRaw(host string, port int, f func(net.Conn)) {
	w.t.Helper()
	l := w.listen()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				f(c)
			})
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		_ = w.srv.Close()
		wg.Wait()
	})
	w.publish(host, port, l.Addr().String())
}

func (w *world) listen() net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// doorListener stands for the capture: connections report where they meant to go.
type doorListener struct {
	net.Listener
	to *net.TCPAddr
}

type doorConn struct {
	*net.TCPConn
	to *net.TCPAddr
}

func (d doorListener) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return doorConn{c.(*net.TCPConn), d.to}, nil
}

func (c doorConn) LocalAddr() net.Addr { return c.to }

// door gives the real address of a listener that captures connections to
// host:port. A host that is no literal is looked up with a DNS query first.
func (w *world) door(host string, port int) string {
	w.t.Helper()
	a, err := netip.ParseAddr(host)
	if err != nil {
		a = w.lookup(host)
	}
	l := w.listen()
	to := net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, uint16(port)))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.srv.ServeTCP(ctx, doorListener{l, to}) })
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func (w *world) lookup(host string) netip.Addr {
	w.t.Helper()
	m := w.query(host, dnsmessage.TypeA)
	if len(m.Answers) != 1 {
		w.t.Fatalf("lookup %q: got %d answers, want 1", host, len(m.Answers))
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
}

func (w *world) query(host string, typ dnsmessage.Type) dnsmessage.Message {
	w.t.Helper()
	w.srv.start()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(host + "."), Type: typ, Class: dnsmessage.ClassINET,
	}}}
	b, err := q.Pack()
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.srv.answerDNS(b)
	if err != nil {
		w.t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// client is an HTTP client inside: it trusts the run's authority, and its
// connections to host:port are captured.
func (w *world) client(host string, port int, h2 bool) *http.Client {
	w.t.Helper()
	door := w.door(host, port)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, door)
		},
		TLSClientConfig:   &tls.Config{RootCAs: poolOf(w.t, w.srv.Authority)},
		ForceAttemptHTTP2: h2,
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// raw opens a captured connection, ends TLS on it when sni is not empty, sends
// text and gives everything that comes back.
func (w *world) raw(host string, port int, sni, text string) string {
	w.t.Helper()
	c := w.open(host, port, sni)
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		return ""
	}
	b, _ := io.ReadAll(c)
	return string(b)
}

func (w *world) open(host string, port int, sni string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.door(host, port))
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if sni == "" {
		return c
	}
	t := tls.Client(c, &tls.Config{ServerName: sni, RootCAs: poolOf(w.t, w.srv.Authority), NextProtos: []string{"http/1.1"}})
	if err := t.Handshake(); err != nil {
		w.t.Fatalf("handshake with %q: %v", sni, err)
	}
	return t
}

func (w *world) events() []audit.Event {
	w.t.Helper()
	all, err := audit.ReadFile(w.auditFile)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// wantEvent fails unless an event matches.
func (w *world) wantEvent(what string, match func(audit.Event) bool) {
	w.t.Helper()
	events := w.events()
	if !slices.ContainsFunc(events, match) {
		w.t.Errorf("audit: got %+v, want an event: %s", events, what)
	}
}

// wantNoFault fails when a panic was recovered.
func (w *world) wantNoFault() {
	w.t.Helper()
	for _, e := range w.events() {
		if e.Kind == audit.KindFault {
			w.t.Errorf("audit: got fault %s", e.Reason)
		}
	}
}

func readBody(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func statusLine(answer string) string {
	line, _, _ := strings.Cut(answer, "\r\n")
	return line
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// upper is a server of a protocol of its own: it answers in upper case, and
// ends when its client has ended its half.
func upper(c net.Conn) {
	b, err := io.ReadAll(c)
	if err == nil {
		_, _ = io.WriteString(c, strings.ToUpper(string(b)))
	}
}

// A tcp rule carries any protocol by name, with half-close.
func TestTCP(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("db.example.org", 5432, upper)
	c := w.open("db.example.org", 5432, "")
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	closeWrite(c)
	if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
		t.Errorf("got %q %v, want HELLO", b, err)
	}
	w.wantEvent("allowed connection", func(e audit.Event) bool {
		return e.Verdict == audit.Allow && e.Rule == "db" && e.Addr != ""
	})
}

// Where no answer in HTTP is possible, a denied connection is reset at once.
func TestDeniedConnectionIsReset(t *testing.T) {
	for name, c := range map[string]struct {
		host string
		port int
		text string
	}{
		"denied port":            {"db.example.org", 22, "SSH-2.0-x\r\n"},
		"denied name, not http":  {"evil.example", 443, "SSH-2.0-x\r\n"},
		"address without a rule": {"93.184.215.9", 5432, "x"},
		"metadata":               {"169.254.169.254", 22, "x"},
		"loopback":               {"::ffff:127.0.0.1", 5432, "x"},
		"never given":            {"198.19.255.250", 443, "x"},
		"ssh to an http rule":    {"api.example.org", 443, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"}, // corpus D13
		"json to an http rule":   {"api.example.org", 443, "{\"a\":1}\n"},
		"ssh to a passed host":   {"passed.example.org", 443, "SSH-2.0-x\r\n"},
		"server speaks first":    {"evil.example", 443, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("api.example.org", 443, upper)
			door := w.door(c.host, c.port)
			conn, err := net.Dial("tcp", door)
			if err == nil { // the reset may come that early
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err = io.WriteString(conn, c.text); err == nil { // an error is reported once
					_, err = io.ReadAll(conn)
				}
			}
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("got %v, want a reset", err)
			}
			if lookups, dials := w.seen(); len(lookups)+len(dials) > 0 {
				t.Errorf("outside: got %v %v, want nothing", lookups, dials)
			}
			w.wantEvent("denial", func(e audit.Event) bool { return e.Kind == audit.KindConnection && e.Verdict == audit.Deny })
		})
	}
}

// Passed-through TLS reaches the server unread once the server name is the
// host's; any other is refused before a byte goes out (corpus D01, D10).
func TestPass(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("passed.example.org", 443, &echo{})
	door := w.door("passed.example.org", 443)
	hello := func(sni string) (*tls.Conn, error) {
		c, err := net.Dial("tcp", door)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		// The name of the certificate is compared below: Go would not send an
		// empty name otherwise.
		tc := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		t.Cleanup(func() { _ = tc.Close() })
		return tc, tc.Handshake()
	}
	issuer := func(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Issuer.CommonName }

	c, err := hello("passed.example.org")
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	if got, want := issuer(c), w.outside.cert.Subject.CommonName; got != want {
		t.Errorf("control: certificate is from %q, want the server's %q", got, want)
	}
	_, before := w.seen()
	for name, sni := range map[string]string{"other": "denied.example", "allowed other": "api.example.org", "none": ""} {
		t.Run(name, func(t *testing.T) {
			c, err := hello(sni)
			if err != nil {
				return
			}
			if got, want := issuer(c), w.srv.Authority.cert.Subject.CommonName; got != want {
				t.Errorf("certificate is from %q, want ours %q", got, want)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: passed.example.org\r\n\r\n")
			if b, _ := io.ReadAll(c); !strings.Contains(string(b), "HTTP/1.1 403") {
				t.Errorf("got %q, want 403", b)
			}
		})
	}
	if _, after := w.seen(); len(after) != len(before) {
		t.Errorf("dials: got %v, want none beyond %v", after, before)
	}
}

// A ClientHello with the name twice, or with bytes that are no name, is
// refused by whatever parses it (corpus D10).
func TestClientHelloGarbage(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("passed.example.org", 443, &echo{})
	for name, text := range map[string]string{
		"garbage record":   "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"endless record":   "\x16\x03\x01\xff\xff" + strings.Repeat("\x01", 70000),
		"alert first":      "\x16\x03\x01\x00\x02\x02\x28",
		"old sslv2-ish":    "\x16\x02\x00\x00\x01\x00",
		"cut in the hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		t.Run(name, func(t *testing.T) {
			c := w.open("passed.example.org", 443, "")
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, text)
			closeWrite(c)
			_, _ = io.ReadAll(c)
			if _, dials := w.seen(); len(dials) > 0 {
				t.Errorf("dials: got %v, want none", dials)
			}
		})
	}
	w.wantNoFault()
}

// TLS is inspected only for the host that was dialled: another server name
// is answered with a denial (corpus D01).
func TestInspectWrongServerName(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	const get = "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"
	if got := w.raw("api.example.org", 443, "api.example.org", get); !strings.Contains(statusLine(got), "200") {
		t.Errorf("control: got %q, want 200", got)
	}
	if got := w.raw("api.example.org", 443, "API.example.org", get); !strings.Contains(statusLine(got), "200") {
		t.Errorf("upper case: got %q, want 200", got)
	}
	if got := w.raw("api.example.org", 443, "other.example.org", get); !strings.Contains(statusLine(got), "403") {
		t.Errorf("other name: got %q, want 403", got)
	}
}

// Old TLS is refused on both sides (corpus D75).
func TestOldTLS(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		c, err := net.Dial("tcp", w.door("api.example.org", 443))
		if err != nil {
			t.Fatal(err)
		}
		tc := tls.Client(c, &tls.Config{ServerName: "api.example.org", RootCAs: poolOf(t, w.srv.Authority), MinVersion: tls.VersionTLS10, MaxVersion: version})
		if err := tc.Handshake(); (err == nil) != ok {
			t.Errorf("client with %s: got %v, want success %v", tls.VersionName(version), err, ok)
		}
		_ = tc.Close()
	}
	l := w.listen()
	old := w.serverTLS()
	old.MaxVersion = tls.VersionTLS11
	go serveTLS(l, old)
	t.Cleanup(func() { _ = l.Close() })
	w.publish("other.example.org", 443, l.Addr().String())
	w.wantUpstreamFailure("other.example.org", "")
}

func serveTLS(l net.Listener, config *tls.Config) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		tc := tls.Server(c, config)
		_ = tc.Handshake()
		_ = tc.Close()
	}
}

func (w *world) wantUpstreamFailure(host, reason string) {
	w.t.Helper()
	got := w.raw(host, 443, host, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	if !strings.Contains(statusLine(got), "502") || !strings.Contains(got, `"error":"upstream_failed"`) || !strings.Contains(got, reason) {
		w.t.Errorf("got %q, want 502 upstream_failed with %q", got, reason)
	}
}

// Certificates of servers are verified by name, chain and time (corpus D76).
func TestUpstreamCertificate(t *testing.T) {
	past := func() time.Time { return time.Now().Add(-60 * 24 * time.Hour) }
	for name, serve := range map[string]func(w *world, config *tls.Config){
		"wrong name": func(w *world, config *tls.Config) {
			good := config.GetCertificate
			config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return good(&tls.ClientHelloInfo{ServerName: "wrong.example.org"})
			}
		},
		"unknown authority": func(w *world, _ *tls.Config) {
			stranger, err := NewAuthority(nil)
			if err != nil {
				t.Fatal(err)
			}
			w.outside = stranger
		},
		"the run's own authority": func(w *world, _ *tls.Config) { w.outside = w.srv.Authority },
		"expired": func(w *world, _ *tls.Config) {
			expired, err := NewAuthority(past)
			if err != nil {
				t.Fatal(err)
			}
			w.outside = expired
			w.srv.RootCAs = poolOf(t, expired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			config := w.serverTLS()
			serve(w, config)
			l := w.listen()
			go serveTLS(l, config)
			t.Cleanup(func() { _ = l.Close() })
			w.publish("other.example.org", 443, l.Addr().String())
			w.wantUpstreamFailure("other.example.org", "certificate is not valid")
		})
	}
}

// A name's leave is not its address's: every address is judged, and only
// judged ones are dialled (corpus C24, C25, C43).
func TestAddressesAreJudged(t *testing.T) {
	public := netip.MustParseAddr("93.184.215.77") // .78 answers nothing
	cases := []struct {
		name  string
		addrs []string
		want  string
		dials []string
	}{
		{"control", []string{"93.184.215.77"}, "200", []string{"93.184.215.77:80"}},
		{"private", []string{"10.0.0.5"}, "403", nil},
		{"metadata", []string{"169.254.169.254"}, "403", nil},
		{"loopback v6", []string{"::1"}, "403", nil},
		{"mapped loopback", []string{"::ffff:127.0.0.1"}, "403", nil},
		{"mixed", []string{"10.0.0.5", "93.184.215.77", "127.0.0.1"}, "200", []string{"93.184.215.77:80"}},
		{"mixed, public one dead", []string{"93.184.215.78", "10.0.0.5"}, "502", []string{"93.184.215.78:80"}},
		{"second one answers", []string{"93.184.215.78", "93.184.215.77"}, "200", []string{"93.184.215.78:80", "93.184.215.77:80"}},
		{"no address", nil, "502", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.names["api.example.org"] = []netip.Addr{public}
			w.serve("api.example.org", 80, &echo{})
			w.names["api.example.org"] = nil
			for _, a := range c.addrs {
				w.names["api.example.org"] = append(w.names["api.example.org"], netip.MustParseAddr(a))
			}
			got := w.raw("api.example.org", 80, "", "GET / HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n")
			if !strings.Contains(statusLine(got), c.want) {
				t.Errorf("got %q, want %s", got, c.want)
			}
			if _, dials := w.seen(); !slices.Equal(dials, c.dials) {
				t.Errorf("dials: got %v, want %v", dials, c.dials)
			}
		})
	}
}

// The name is resolved once: what a second answer would say does not matter
// (corpus C24).
func TestRebinding(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 80, &echo{})
	plain := w.srv.Resolve
	asked := 0
	w.srv.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
		if asked++; asked > 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return plain(ctx, host)
	}
	const get = "GET / HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"
	if got := w.raw("api.example.org", 80, "", get); !strings.Contains(statusLine(got), "200") {
		t.Errorf("first: got %q, want 200", got)
	}
	w.srv.transport.CloseIdleConnections()
	if got := w.raw("api.example.org", 80, "", get); !strings.Contains(statusLine(got), "403") {
		t.Errorf("second: got %q, want 403", got)
	}
	if _, dials := w.seen(); len(dials) != 1 {
		t.Errorf("dials: got %v, want one", dials)
	}
}

// An opened range is reachable, and only that.
func TestPrivateRange(t *testing.T) {
	n := testNetwork()
	n.Private = []policy.PrivateRange{{CIDR: "10.1.0.0/16", Reason: "test"}}
	w := newWorld(t, n)
	w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	w.serve("api.example.org", 80, &echo{})
	const get = "GET / HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"
	if got := w.raw("api.example.org", 80, "", get); !strings.Contains(statusLine(got), "200") {
		t.Errorf("got %q, want 200", got)
	}
}

// One connection too many is reset; those before it live on.
func TestConnectionCap(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Limits.Connections = 2
	w.serveRaw("db.example.org", 5432, upper)
	door := w.door("db.example.org", 5432)
	var conns []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", door)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		conns = append(conns, c)
	}
	third, err := net.Dial("tcp", door)
	if err == nil { // the reset may come that early
		defer func() { _ = third.Close() }()
		_ = third.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = third.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("third: got %v, want a reset", err)
	}
	_, _ = io.WriteString(conns[0], "x")
	closeWrite(conns[0])
	if b, err := io.ReadAll(conns[0]); err != nil || string(b) != "X" {
		t.Errorf("first: got %q %v, want X", b, err)
	}
}

// failingListener fails a few times, as accept(2) does without descriptors.
type failingListener struct {
	net.Listener
	failures *int
}

func (l failingListener) Accept() (net.Conn, error) {
	if *l.failures > 0 {
		*l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// Running out of descriptors does not end the accept loop.
func TestAcceptSurvivesEMFILE(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("db.example.org", 5432, upper)
	l, failures := w.listen(), 3
	to := net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.lookup("db.example.org"), 5432))
	done := make(chan error, 1)
	go func() {
		done <- w.srv.ServeTCP(context.Background(), doorListener{failingListener{l, &failures}, to})
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "x")
	closeWrite(c)
	if b, err := io.ReadAll(c); err != nil || string(b) != "X" {
		t.Errorf("got %q %v, want X", b, err)
	}
	_ = w.srv.Close()
	if err := <-done; err != nil {
		t.Errorf("ServeTCP: got %v, want no error", err)
	}
}

// A panic ends one connection and is on record; the next one works.
func TestPanicIsContained(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("db.example.org", 5432, upper)
	plain := w.srv.Resolve
	first := true
	w.srv.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
		if first {
			first = false
			panic("test")
		}
		return plain(ctx, host)
	}
	for _, want := range []string{"", "X"} {
		c := w.open("db.example.org", 5432, "")
		_, _ = io.WriteString(c, "x")
		closeWrite(c)
		if b, _ := io.ReadAll(c); string(b) != want {
			t.Errorf("got %q, want %q", b, want)
		}
		_ = c.Close()
	}
	w.wantEvent("fault", func(e audit.Event) bool { return e.Kind == audit.KindFault })
}

// When the policy requires a record and it fails, nothing more is allowed.
func TestRequiredAudit(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 80, &echo{})
	const get = "GET / HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"
	if got := w.raw("api.example.org", 80, "", get); !strings.Contains(statusLine(got), "200") {
		t.Errorf("control: got %q, want 200", got)
	}
	fatal := make(chan error, 10)
	w.srv.Fatal = func(err error) { fatal <- err }
	door := w.door("api.example.org", 80)
	_ = w.srv.Audit.Close()
	c, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, get)
	b, _ := io.ReadAll(c)
	if !strings.Contains(statusLine(string(b)), "503") {
		t.Errorf("got %q, want 503", b)
	}
	if err := <-fatal; err == nil {
		t.Error("Fatal: got no error, want one")
	}
	if _, dials := w.seen(); len(dials) != 1 {
		t.Errorf("dials: got %v, want one", dials)
	}
}

// A tunnel in which nothing moves ends; one in which one side talks does not.
func TestTunnelIdle(t *testing.T) {
	const idle = 200 * time.Millisecond
	pair := func() (net.Conn, net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	agent, near := pair()
	far, server := pair()
	done := make(chan struct{})
	go func() { splice(near, far, idle); close(done) }()
	tick := time.NewTicker(idle / 5)
	for range 20 {
		<-tick.C
		if _, err := io.WriteString(server, "x"); err != nil {
			t.Fatalf("talking server: got %v, want an open tunnel", err)
		}
	}
	tick.Stop()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("got an open tunnel, want it closed")
	}
	_ = agent.Close()
	_ = server.Close()
}

// helloWith builds a TLS 1.2 ClientHello whose server_name extension holds the
// names given, in one list.
func helloWith(names ...string) string {
	u16 := func(s string) string { return string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }
	var list string
	for _, n := range names {
		list += "\x00" + u16(n)
	}
	sni := "\x00\x00" + u16(u16(list))
	hello := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + u16("\xc0\x2b\xc0\x2f") + "\x01\x00" +
		u16(sni+"\x00\x0a"+u16(u16("\x00\x1d\x00\x17"))+"\x00\x0d"+u16(u16("\x04\x03\x08\x04")))
	return "\x16\x03\x01" + u16("\x01\x00"+u16(hello))
}

// A server name that is an address, too long, doubled or malformed is no
// server name (corpus D10). The control reaches the server.
func TestOddServerNames(t *testing.T) {
	long := strings.Repeat("a.", 128) + "example.org"
	for name, c := range map[string]struct {
		names []string
		ok    bool
	}{
		"control":    {[]string{"passed.example.org"}, true},
		"upper case": {[]string{"PASSED.example.org"}, true},
		"dot":        {[]string{"passed.example.org."}, false},
		"twice":      {[]string{"passed.example.org", "denied.example"}, false},
		"same twice": {[]string{"passed.example.org", "passed.example.org"}, false},
		"address":    {[]string{"93.184.215.1"}, false},
		"empty":      {[]string{""}, false},
		"long":       {[]string{long}, false},
		"NUL":        {[]string{"passed.example.org\x00.denied.example"}, false},
		"no name":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			got := make(chan string, 1)
			w.serveRaw("passed.example.org", 443, func(c net.Conn) {
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				got <- string(b[:n])
			})
			conn := w.open("passed.example.org", 443, "")
			defer func() { _ = conn.Close() }()
			text := helloWith(c.names...)
			_, _ = io.WriteString(conn, text)
			if c.ok {
				if hello := <-got; hello != text {
					t.Errorf("server got %q, want the very bytes %q", hello, text)
				}
				return
			}
			closeWrite(conn)
			_, _ = io.ReadAll(conn)
			if _, dials := w.seen(); len(dials) > 0 {
				t.Errorf("dials: got %v, want none", dials)
			}
		})
	}
}

// What the agent is told about a failure outside names nothing of the host's
// network; the record does.
func TestFailuresTellNothingOfTheHost(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "other.example.org", Server: "10.9.8.7:53", IsNotFound: true}
	}
	got := w.raw("other.example.org", 443, "other.example.org", "GET / HTTP/1.1\r\nHost: other.example.org\r\nConnection: close\r\n\r\n")
	if !strings.Contains(statusLine(got), "502") || strings.Contains(got, "10.9.8.7") {
		t.Errorf("got %q, want 502 without the resolver's address", got)
	}
	w.wantEvent("with the resolver", func(e audit.Event) bool {
		return e.Kind == audit.KindUpstream && strings.Contains(e.Reason, "10.9.8.7")
	})
}

package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

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

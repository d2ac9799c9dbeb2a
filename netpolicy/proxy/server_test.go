package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

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
	_ = w.srv.Close() // waits for the first connection to be recorded
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

// A client that does not finish its handshake or its head is let go.
func TestSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		port int
		text string
	}{
		"head":           {80, "GET /public/a HTTP/1.1\r\nHost: api.exam"},
		"hello":          {443, "\x16\x03\x01\x02\x00\x01\x00"},
		"nothing":        {443, ""},
		"half a method":  {80, "GE"},
		"between chunks": {80, "POST /public/a HTTP/1.1\r\nHost: api.example.org\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			short := 100 * time.Millisecond
			w.srv.Limits = Limits{Sniff: short, Refuse: short, Handshake: short, Head: short, KeepAlive: short, Idle: short, Linger: short}
			w.serve("api.example.org", c.port, &echo{})
			conn := w.open("api.example.org", c.port, "")
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, c.text)
			if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want the connection closed", err)
			}
		})
	}
}

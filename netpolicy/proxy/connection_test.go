package proxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
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
	go func() { splice(near, far, idle, nil); close(done) }()
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

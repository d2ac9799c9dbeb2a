package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// What the heads of all connections take is bounded, also of those that never
// come to an end (corpus D51, D52). Small ones are served meanwhile.
func TestHeadsHeld(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Limits.HeadsHeld = 256 << 10
	w.serve("api.example.org", 80, &echo{})
	// Each takes 2 × (8 + 16) KiB.
	part := "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nX: " + strings.Repeat("x", 20<<10)
	door := w.door("api.example.org", 80)
	var conns []net.Conn
	refused := 0
	for range 12 {
		c, err := net.Dial("tcp", door)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, part)
		conns = append(conns, c)
	}
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			refused++
			if !strings.Contains(line, " 503 ") {
				t.Errorf("got %q, want 503", line)
			}
		}
	}
	if refused < 5 || refused == len(conns) {
		t.Errorf("got %d of %d refused, want those beyond the bound", refused, len(conns))
	}
	if got := w.srv.heads.held.Load(); got > 256<<10 {
		t.Errorf("got %d bytes held, want no more than %d", got, 256<<10)
	}
	if got := w.raw("api.example.org", 80, "", "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("small head: got %q, want 200", statusLine(got))
	}
	for _, c := range conns {
		_ = c.Close()
	}
	_ = w.srv.Close()
	if got := w.srv.heads.held.Load(); got != 0 {
		t.Errorf("at the end: got %d bytes held, want 0", got)
	}
}

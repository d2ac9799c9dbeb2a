package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// posted sends a body of n bytes and gives the answer.
func (w *world) posted(host string, n int) string {
	w.t.Helper()
	return w.raw(host, 80, "", fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", host, n, strings.Repeat("x", n)))
}

// budgetEvents gives the reasons of the events about budgets.
func (w *world) budgetEvents() (reasons []string) {
	for _, e := range w.events() {
		if e.Kind == audit.KindBudget {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// At 80 % of the bytes one event, at 100 % refusals that an agent takes as final.
func TestBytesBudget(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Traffic = policy.TrafficBudget{BytesOut: 10_000}
	w.serve("api.example.org", 80, &echo{})
	if got := w.posted("api.example.org", 5000); !strings.Contains(statusLine(got), "200") {
		t.Fatalf("half: got %q, want 200", got)
	}
	if got := w.budgetEvents(); len(got) != 0 {
		t.Errorf("half: got %v, want no event", got)
	}
	if got := w.posted("api.example.org", 3500); !strings.Contains(statusLine(got), "200") {
		t.Fatalf("more: got %q, want 200", got)
	}
	if got := w.budgetEvents(); len(got) != 1 || !strings.Contains(got[0], "80 % of network.budget.bytes_out") {
		t.Errorf("more: got %v, want one event at 80 %%", got)
	}
	sent := w.srv.Traffic().BytesOut
	if sent < 8500 || sent > 9500 {
		t.Errorf("counted: got %d, want heads and bodies of both requests", sent)
	}
	for range 2 { // the first is cut while it streams, the second begins too late
		got := w.posted("api.example.org", 5000)
		if !strings.Contains(statusLine(got), "403") || !strings.Contains(got, "network.budget.bytes_out is used up") {
			t.Errorf("too much: got %q, want 403 with the reason", got)
		}
	}
	if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "403") {
		t.Errorf("small, but after the end: got %q, want 403", got)
	}
	if got := w.srv.Traffic().BytesOut; got > 10_000 {
		t.Errorf("counted: got %d, want no more than the budget", got)
	}
	if got := w.budgetEvents(); len(got) != 2 {
		t.Errorf("at the end: got %v, want two events", got)
	}
}

// The counts go on over a reload; a larger budget lets more out.
func TestBytesBudgetOverReload(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Traffic = policy.TrafficBudget{BytesOut: 3000}
	w.serve("api.example.org", 80, &echo{})
	if got := w.posted("api.example.org", 5000); !strings.Contains(statusLine(got), "403") {
		t.Fatalf("got %q, want 403", got)
	}
	rules := *w.srv.rules()
	rules.Traffic.BytesOut = 20_000
	w.srv.current.Store(&rules)
	if got := w.posted("api.example.org", 5000); !strings.Contains(statusLine(got), "200") {
		t.Errorf("larger: got %q, want 200", got)
	}
	before := w.srv.Traffic().BytesOut
	rules.Traffic.BytesOut = 4000
	next := rules
	w.srv.current.Store(&next)
	if got := w.posted("api.example.org", 10); !strings.Contains(statusLine(got), "403") {
		t.Errorf("smaller than what was sent (%d): got %q, want 403", before, got)
	}
}

// TLS and both versions of HTTP count, and a body without a length is cut.
func TestBytesBudgetCutsStreams(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.srv.Rules.Traffic = policy.TrafficBudget{BytesOut: 200_000}
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}))
			client := w.client("api.example.org", 443, h2)
			resp, err := client.Post("https://api.example.org/", "text/plain", io.LimitReader(endless{}, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			body := readBody(t, resp)
			if resp.StatusCode != 403 || !strings.Contains(body, "network.budget.bytes_out is used up") {
				t.Errorf("got %d %q, want 403 with the reason", resp.StatusCode, body)
			}
			if sent := w.srv.Traffic().BytesOut; sent > 200_000 || sent < 100_000 {
				t.Errorf("counted: got %d, want most of the budget and no more", sent)
			}
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A tunnel is cut within a slice, and what it carried is counted.
func TestBytesBudgetOfTunnels(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Traffic = policy.TrafficBudget{BytesOut: 3 << 20}
	received := make(chan int64, 8)
	w.serveRaw("db.example.org", 5432, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		received <- n
	})
	c := w.open("db.example.org", 5432, "")
	block := bytes.Repeat([]byte("x"), 1<<20)
	if _, err := c.Write(block); err != nil {
		t.Fatal(err)
	}
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
	if n := <-received; n != 1<<20 {
		t.Errorf("control: got %d bytes, want all", n)
	}
	if got := w.srv.Traffic().BytesOut; got != 1<<20 {
		t.Errorf("counted: got %d, want %d", got, 1<<20)
	}
	c = w.open("db.example.org", 5432, "")
	for range 8 {
		if _, err := c.Write(block); err != nil {
			break
		}
	}
	_, err := io.Copy(io.Discard, c)
	_ = c.Close()
	if n := <-received; n > 2<<20 {
		t.Errorf("got %d more bytes at the server (%v), want at most what was left", n, err)
	}
	w.wantEvent("tunnel cut", func(e audit.Event) bool {
		return e.Kind == audit.KindConnection && e.Verdict == audit.Deny && strings.Contains(e.Reason, "bytes_out is used up")
	})
	w.wantReset("db.example.org", 5432)
}

// WebSockets are counted and cut as well.
func TestBytesBudgetOfWebSockets(t *testing.T) {
	for _, port := range []int{80, 443} {
		w := newWorld(t, socketNetwork())
		w.srv.Rules.Traffic = policy.TrafficBudget{BytesOut: 60_000}
		w.serveSockets(port, repeat)
		e := w.socket(port, "/ws/any")
		text := strings.Repeat("x", 20_000)
		for i := range 2 {
			e.say(text)
			if got := e.whole(); got != len(text) {
				t.Fatalf("port %d, message %d: got %d bytes, want an echo", port, i, got)
			}
		}
		e.say(text)
		if got := e.whole(); got == len(text) {
			t.Errorf("port %d: got an echo of the third message, want the socket ended", port)
		}
		if n := w.srv.Traffic().BytesOut; n < 40_000 || n > 60_000 {
			t.Errorf("port %d: counted %d bytes, want those of two messages", port, n)
		}
	}
}

// whole gives the length of the next message, put together from its frames.
func (e *wsEnd) whole() (n int) {
	for {
		kind, payload, ok := strings.Cut(e.next(), ":")
		if !ok || kind == "close" {
			return 0
		}
		if n += len(payload); !strings.HasSuffix(kind, "…") {
			return n
		}
	}
}

// A tunnel that was opened without a budget is held to one that is loaded later.
func TestTunnelMeetsALaterBudget(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	c := w.open("db.example.org", 5432, "")
	defer func() { _ = c.Close() }()
	if got := echoed(c, "before"); got != "before" {
		t.Fatalf("got %q, want an echo", got)
	}
	rules := *w.srv.rules()
	rules.Traffic.BytesOut = 3
	w.srv.current.Store(&rules)
	w.srv.rejudgeTunnels(&rules)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v, want the tunnel cut: it sent more than the budget", err)
	}
}

// One host more than the budget is refused, before its name is looked up; those
// that were reached go on.
func TestHostsBudget(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Traffic = policy.TrafficBudget{Hosts: 2}
	for _, h := range []string{"api.example.org", "other.example.org", "passed.example.org"} {
		w.serve(h, 80, &echo{})
	}
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	for _, h := range []string{"api.example.org", "other.example.org", "api.example.org"} {
		if got := w.raw(h, 80, "", getOf(h)); !strings.Contains(statusLine(got), "200") {
			t.Errorf("%s: got %q, want 200", h, got)
		}
	}
	got := w.raw("passed.example.org", 80, "", getOf("passed.example.org"))
	if !strings.Contains(statusLine(got), "403") || !strings.Contains(got, "network.budget.hosts is used up") {
		t.Errorf("third: got %q, want 403 with the reason", got)
	}
	w.wantReset("db.example.org", 5432)
	lookups, _ := w.seen()
	for _, l := range lookups {
		if l == "passed.example.org" || l == "db.example.org" {
			t.Errorf("got a lookup of %s, want none", l)
		}
	}
	if got := w.budgetEvents(); len(got) != 2 {
		t.Errorf("got %v, want one event at 80 %% and one at the end", got)
	}
	if n := w.srv.Traffic().Hosts; n != 2 {
		t.Errorf("counted: got %d hosts, want 2", n)
	}
}

// wantReset fails when a connection carries anything.
func (w *world) wantReset(host string, port int) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.door(host, port))
	if err != nil {
		return // the reset came first
	}
	defer func() { _ = c.Close() }()
	if got := echoed(c, "x"); got != "" {
		w.t.Errorf("%s: got %q, want a reset", host, got)
	}
}

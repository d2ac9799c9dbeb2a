package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

func TestHostSlots(t *testing.T) {
	ctx := context.Background()
	var s hostSlots
	first, err := s.take(ctx, "a", 1, time.Second)
	if err != nil {
		t.Fatalf("first: got %v, want a slot", err)
	}
	if _, err := s.take(ctx, "a", 1, time.Millisecond); !errors.Is(err, errHostBusy) {
		t.Errorf("second: got %v, want %v", err, errHostBusy)
	}
	other, err := s.take(ctx, "b", 1, time.Millisecond)
	if err != nil {
		t.Errorf("another host: got %v, want a slot", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.take(gone, "a", 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("client gone: got %v, want %v", err, context.Canceled)
	}
	waited := make(chan error)
	go func() {
		release, err := s.take(ctx, "a", 1, time.Minute)
		if err == nil {
			release()
		}
		waited <- err
	}()
	s.waitForQueue(t, "a", 1)
	first()
	if err := <-waited; err != nil {
		t.Errorf("after the first: got %v, want a slot", err)
	}
	other()
	if len(s.hosts) != 0 {
		t.Errorf("at the end: got %d hosts, want none kept", len(s.hosts))
	}
}

// waitForQueue waits until so many wait for a host.
func (s *hostSlots) waitForQueue(t *testing.T, host string, n int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		slot := s.hosts[host]
		ok := slot != nil && len(slot.queue) == n
		s.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatalf("got no queue of %d for %s", n, host)
}

// Those that wait are bounded, and a bound that other rules raised lets in those
// that wait.
func TestHostSlotsBoundTheQueue(t *testing.T) {
	var s hostSlots
	release, err := s.take(context.Background(), "a", 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range waitingPerSlot {
		wg.Go(func() {
			if r, err := s.take(context.Background(), "a", 1, time.Minute); err == nil {
				r()
			}
		})
	}
	s.waitForQueue(t, "a", waitingPerSlot)
	begin := time.Now()
	if _, err := s.take(context.Background(), "a", 1, time.Minute); !errors.Is(err, errHostBusy) || time.Since(begin) > 10*time.Second {
		t.Errorf("got %v after %v, want %v at once", err, time.Since(begin), errHostBusy)
	}
	release()
	wg.Wait()
}

// One host cannot hold more than its share; others go on. Waiting ends with a
// reason that does not sound like a denial of the policy.
func TestConnectionsPerHost(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Upstream.PerHost = 2
	w.srv.Limits.Dial = time.Second
	hold := make(chan struct{})
	w.serve("api.example.org", 80, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		<-hold
	}))
	w.serve("other.example.org", 80, &echo{})
	var open []net.Conn
	for range 2 {
		c := w.open("api.example.org", 80, "")
		if _, err := io.WriteString(c, getOf("api.example.org")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	got := w.raw("api.example.org", 80, "", getOf("api.example.org"))
	if !strings.Contains(statusLine(got), "503") || !strings.Contains(got, "too many connections to the host") {
		t.Errorf("third: got %q, want 503", got)
	}
	if got := w.raw("other.example.org", 80, "", getOf("other.example.org")); !strings.Contains(statusLine(got), "200") {
		t.Errorf("another host: got %q, want 200", got)
	}
	close(hold)
	for _, c := range open {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "200") {
		t.Errorf("afterwards: got %q, want 200", got)
	}
}

// Tunnels count too: one too many is reset, with the reason on record.
func TestTunnelsPerHost(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Rules.Upstream.PerHost = 1
	w.srv.Limits.Dial = time.Second
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	first := w.open("db.example.org", 5432, "")
	if got := echoed(first, "first"); got != "first" {
		t.Fatalf("first: got %q, want an echo", got)
	}
	w.wantReset("db.example.org", 5432)
	w.wantEvent("reset with its reason", func(e audit.Event) bool {
		return e.Kind == audit.KindConnection && e.Verdict == audit.Deny && strings.Contains(e.Reason, "too many connections to the host")
	})
	_ = first.Close()
	third := w.open("db.example.org", 5432, "")
	defer func() { _ = third.Close() }()
	if got := echoed(third, "third"); got != "third" {
		t.Errorf("third: got %q, want an echo", got)
	}
}

package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// brokenBody is a step of ours that fails.
type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { panic("a mistake in a body") }
func (brokenBody) Close() error             { panic("a mistake at its end") }

// TestMistakesOnForeignGoroutines: net/http dials and reads bodies on goroutines of
// its own, where a panic that nobody catches ends the process.
func TestMistakesOnForeignGoroutines(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, testNetwork())
		w.serve("api.example.org", 443, &echo{})
		w.serve("other.example.org", 443, &echo{})
		w.srv.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			if host == "other.example.org" {
				panic("a mistake while looking up")
			}
			return w.resolve(ctx, host)
		}
		get := func(host string) int {
			status, _ := do(t, w.client(host, 443, h2), newRequest(t, "POST", "https://"+host+"/public/x", strings.NewReader("body")))
			return status
		}
		if got := get("other.example.org"); got != http.StatusBadGateway {
			t.Errorf("h2 %v: got %d, want 502", h2, got)
		}
		if got := get("api.example.org"); got != http.StatusOK {
			t.Errorf("control, h2 %v: got %d, want 200", h2, got)
		}
		w.wantEvent("the fault", func(e audit.Event) bool {
			return e.Kind == audit.KindFault && strings.Contains(e.Reason, "looking up")
		})
		body := &guardedBody{brokenBody{}, w.srv}
		if _, err := body.Read(nil); err != errBug {
			t.Errorf("read: got %v, want %v", err, errBug)
		}
		if err := body.Close(); err != errBug {
			t.Errorf("close: got %v, want %v", err, errBug)
		}
	}
}

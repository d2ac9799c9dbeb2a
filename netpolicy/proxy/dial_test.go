package proxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

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
	w.srv.rules().out.h1.CloseIdleConnections()
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

package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// swap puts other rules in place, as a reload does.
func (w *world) swap(n policy.Network) {
	w.t.Helper()
	engine, err := netpolicy.Compile(n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv.Reload(Rules{Engine: engine})
}

// without gives the network without a rule.
func without(n policy.Network, name string) policy.Network {
	var rest []policy.Rule
	for _, r := range n.Rules {
		if r.Name != name {
			rest = append(rest, r)
		}
	}
	n.Rules = rest
	return n
}

// A tunnel that new rules forbid is closed, and one that they allow goes on.
func TestTunnelsAreJudgedAgain(t *testing.T) {
	cases := []struct {
		name string
		now  policy.Network
		ends bool
	}{
		{"control: the same rules", testNetwork(), false},
		{"another rule is gone", without(testNetwork(), "api"), false},
		{"its rule is gone", without(testNetwork(), "db"), true},
		{"its host is denied", func() policy.Network {
			n := testNetwork()
			n.Deny = []policy.HostRule{{Host: "db.example.org"}}
			return n
		}(), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
			conn := w.open("db.example.org", 5432, "")
			defer func() { _ = conn.Close() }()
			if got := echoed(conn, "before"); got != "before" {
				t.Fatalf("before: got %q, want %q", got, "before")
			}
			w.swap(c.now)
			got := echoed(conn, "after")
			if want := map[bool]string{false: "after"}[c.ends]; got != want {
				t.Errorf("after: got %q, want %q", got, want)
			}
			if c.ends {
				w.wantEvent("tunnel closed", func(e audit.Event) bool {
					return e.Kind == audit.KindConnection && e.Verdict == audit.Deny && strings.Contains(e.Reason, "no longer")
				})
			}
		})
	}
}

// echoed sends text and gives what comes back.
func echoed(c net.Conn, text string) string {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return ""
	}
	b := make([]byte, len(text))
	n, _ := io.ReadFull(c, b)
	return string(b[:n])
}

// Rules that were swapped while a tunnel was being opened count.
func TestHoldLooksAtTheRulesOfTheMoment(t *testing.T) {
	s := &Server{}
	defer func() { _ = s.Close() }()
	closed := false
	release := s.hold(func(*Rules) bool { return false }, func() { closed = true })
	if !closed {
		t.Error("got a tunnel that rules forbid left open, want it closed")
	}
	release()
	if got := len(s.held.held); got != 0 {
		t.Errorf("after release: got %d tunnels, want 0", got)
	}
}

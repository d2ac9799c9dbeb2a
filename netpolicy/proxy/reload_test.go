package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func rulesOf(t testing.TB, n policy.Network) Rules {
	t.Helper()
	e, err := netpolicy.Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Engine: e}
}

// closedNetwork inspects, and has no rule for any host of testNetwork.
func closedNetwork() policy.Network {
	return policy.Network{Rules: []policy.Rule{{Name: "elsewhere", Host: "elsewhere.example.org", TLS: policy.TLSInspect}}}
}

// A client that keeps its HTTP/2 connection learns of other rules, both ways.
func TestHTTP2ConnectionIsJudgedAgain(t *testing.T) {
	open, closed := testNetwork(), closedNetwork()
	denied := testNetwork()
	denied.Deny = []policy.HostRule{{Host: "api.example.org", Reason: "for the test"}}
	cases := []struct {
		name        string
		first, then policy.Network
		want        [2]string
	}{
		{"control: no rule, still none", closed, closed, [2]string{"403", "403"}},
		{"no rule, then one", closed, open, [2]string{"403", "200"}},
		{"denied, then allowed", denied, open, [2]string{"403", "200"}},
		{"no rule, then denied", closed, denied, [2]string{"403", "403"}},
		{"allowed, then no rule", open, closed, [2]string{"200", "403"}},
		{"allowed, then denied", open, denied, [2]string{"200", "403"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.first)
			w.serve("api.example.org", 443, &echo{})
			h := w.openH2(t, "api.example.org")
			get := func() string {
				return h.ask(":method", "GET", ":scheme", "https", ":authority", "api.example.org", ":path", "/public/x")
			}
			if got := get(); got != c.want[0] {
				t.Errorf("before: got %q, want %q", got, c.want[0])
			}
			w.srv.Reload(rulesOf(t, c.then))
			for range 2 {
				if got := get(); got != c.want[1] {
					t.Errorf("after: got %q, want %q", got, c.want[1])
				}
			}
			w.srv.Reload(rulesOf(t, c.first))
			if got := get(); got != c.want[0] {
				t.Errorf("and back: got %q, want %q", got, c.want[0])
			}
		})
	}
}

// The refusal of a connection whose server name is another host's is no rule's:
// no reload lifts it, also where a rule denied the connection at first.
func TestWrongServerNameStaysRefused(t *testing.T) {
	for name, first := range map[string]policy.Network{"no rule at first": closedNetwork(), "a rule at first": testNetwork()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, first)
			w.serve("api.example.org", 443, &echo{})
			c, err := net.Dial("tcp", w.door("api.example.org", 443))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			// The certificate is for the connection's host, so its name is not checked.
			tc := tls.Client(c, &tls.Config{ServerName: "other.example.org", InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			if err := tc.Handshake(); err != nil {
				t.Fatal(err)
			}
			w.srv.Reload(rulesOf(t, testNetwork()))
			if _, err := io.WriteString(tc, "GET /public/x HTTP/1.1\r\nHost: api.example.org\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(tc)
			if got := statusLine(string(answer)); !strings.Contains(got, "403") {
				t.Errorf("got %q, want 403", got)
			}
		})
	}
}

func TestKeptConnectionIsJudgedByTheRulesOfTheMoment(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	c := w.open("api.example.org", 443, "api.example.org")
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	get := func() int {
		t.Helper()
		if _, err := io.WriteString(c, "GET /public/x HTTP/1.1\r\nHost: api.example.org\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		readBody(t, resp)
		return resp.StatusCode
	}
	if got := get(); got != 200 {
		t.Errorf("before: got %d, want 200", got)
	}
	w.srv.Reload(rulesOf(t, testNetwork()))
	if got := get(); got != 200 {
		t.Errorf("after the same rules: got %d, want 200", got)
	}
	w.srv.Reload(rulesOf(t, closedNetwork()))
	if got := get(); got != 403 {
		t.Errorf("after other rules: got %d, want 403", got)
	}
}

// A client that has said nothing yet is judged again before anything is dialled.
func TestSilentConnectionIsJudgedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		then  policy.Network
		dials int
	}{{"control: the same rules", testNetwork(), 1}, {"other rules", closedNetwork(), 0}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			conn, err := net.Dial("tcp", w.door("passed.example.org", 443))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			w.await(func() bool { return w.srv.open.Load() == 1 }, "the connection is accepted")
			w.srv.Reload(rulesOf(t, c.then))
			_ = tls.Client(conn, &tls.Config{ServerName: "passed.example.org"}).Handshake() // ends in a reset
			if lookups, _ := w.seen(); len(lookups) != c.dials {
				t.Errorf("lookups: got %v, want %d", lookups, c.dials)
			}
		})
	}
}

// streaming answers with one piece for each that is sent on next.
type streaming struct{ next chan string }

func (s streaming) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case piece, ok := <-s.next:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, piece)
		case <-r.Context().Done():
			return
		}
	}
}

// A request that runs keeps the decision it got. Its connection to the server is
// closed when it is over, since the next request is judged by others.
func TestRunningRequestKeepsItsDecision(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http/2 %t", h2), func(t *testing.T) {
			w := newWorld(t, testNetwork())
			s := streaming{make(chan string)}
			w.serve("api.example.org", 443, s)
			resp, err := w.client("api.example.org", 443, h2).Get("https://api.example.org/public/x")
			if err != nil {
				t.Fatal(err)
			}
			first := w.srv.rules().out
			w.srv.Reload(rulesOf(t, closedNetwork()))
			s.next <- "still here"
			close(s.next)
			if got := readBody(t, resp); got != "still here" {
				t.Errorf("got %q, want the whole answer", got)
			}
			w.await(func() bool {
				first.mu.Lock()
				defer first.mu.Unlock()
				return len(first.conns) == 0
			}, "the connection to the server is closed")
		})
	}
}

func (w *world) await(ok func() bool, what string) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// An address that was opened and is not any more gets no further request, also
// over a connection that is open to it.
func TestIdleConnectionsAreNotUsedByOtherRules(t *testing.T) {
	private := testNetwork()
	private.Private = []policy.PrivateRange{{CIDR: "10.1.0.0/16", Reason: "test"}}
	for _, c := range []struct {
		name string
		then policy.Network
		want int
	}{{"control: still open", private, 200}, {"closed", testNetwork(), 403}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, private)
			w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
			w.serve("api.example.org", 443, &echo{})
			client := w.client("api.example.org", 443, true)
			for i, want := range []int{200, c.want} {
				resp, err := client.Get("https://api.example.org/public/x")
				if err != nil {
					t.Fatal(err)
				}
				readBody(t, resp)
				if resp.StatusCode != want {
					t.Errorf("request %d: got %d, want %d", i, resp.StatusCode, want)
				}
				w.srv.Reload(rulesOf(t, c.then))
			}
		})
	}
}

// Reloads under load: every answer is the one of some rules that were in force,
// and nothing is left over.
func TestReloadStorm(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	sets := []Rules{rulesOf(t, testNetwork()), rulesOf(t, closedNetwork()), rulesOf(t, without(testNetwork(), "db"))}
	for i := range 2 {
		wg.Go(func() {
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for n := i; ctx.Err() == nil; n++ {
				<-tick.C
				w.srv.Reload(sets[n%len(sets)])
			}
		})
	}
	for i := range 4 {
		client := w.client("api.example.org", 443, i%2 == 0)
		wg.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.Get("https://api.example.org/public/x")
				if err != nil {
					t.Errorf("request: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 && resp.StatusCode != 403 {
					t.Errorf("status: got %d, want 200 or 403", resp.StatusCode)
					return
				}
			}
		})
	}
	door := w.door("db.example.org", 5432)
	wg.Go(func() {
		for ctx.Err() == nil {
			c, err := net.Dial("tcp", door)
			if err != nil {
				continue // it was reset before connect(2) returned
			}
			_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(c, "hello")
			_, _ = c.Read(make([]byte, 5))
			_ = c.Close()
		}
	})
	time.AfterFunc(2*time.Second, stop)
	wg.Wait()
	if n := w.srv.Reload(rulesOf(t, closedNetwork())); n > 1 {
		t.Errorf("tunnels left: got %d, want at most the last one", n)
	}
	w.await(func() bool { return w.srv.openTunnels() == 0 }, "no tunnel is open")
	w.wantNoFault()
	w.wantEvent("a tunnel that was closed by a reload", func(e audit.Event) bool {
		return e.Kind == audit.KindConnection && e.Verdict == audit.Deny && strings.Contains(e.Reason, "loaded since")
	})
}

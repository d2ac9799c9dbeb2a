package proxy

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// house is a proxy as a company runs one: it knows CONNECT alone, wants a user
// and a password, and resolves names itself.
type house struct {
	w *world
	// answer is sent in place of a tunnel, if it is not empty.
	answer string
	// inside are names that only the house's proxy knows, and where they are.
	inside map[string]string

	mu    sync.Mutex
	asked []string
}

const (
	houseName     = "proxy.corp.example.org"
	housePassword = "correct-horse"
)

// openHouse starts one at a private address, and has the Server use it.
func (w *world) openHouse(none string, overTLS bool) *house {
	w.t.Helper()
	h := &house{w: w, inside: map[string]string{}}
	w.names[houseName] = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	serve := h.serve
	scheme := "http"
	if overTLS {
		scheme = "https"
		serve = func(c net.Conn) { h.serve(tls.Server(c, w.serverTLS())) }
	}
	w.serveRaw(houseName, 3128, serve)
	address := scheme + "://me:" + housePassword + "@" + houseName + ":3128"
	house, err := NewHouseProxy(address, address, none)
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv.Rules.Upstream.House = house
	return h
}

func (h *house) serve(c net.Conn) {
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	h.mu.Lock()
	h.asked = append(h.asked, r.Method+" "+r.Host)
	h.mu.Unlock()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+housePassword))
	switch {
	case h.answer != "":
		_, _ = io.WriteString(c, h.answer)
		return
	case r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != want:
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	up, err := net.Dial("tcp", h.route(r.Host))
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer func() { _ = up.Close() }()
	// The server's first bytes may come together with the answer's head.
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: house\r\n\r\n")
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(up, in)
		closeWrite(up)
	})
	_, _ = io.Copy(c, up)
	_ = c.Close()
	wg.Wait()
}

// route finds where a target really listens: by name, or by address.
func (h *house) route(target string) string {
	if to, ok := h.inside[target]; ok {
		return to
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if to, ok := h.w.routes[target]; ok {
		return to
	}
	host, port, _ := net.SplitHostPort(target)
	for _, a := range h.w.names[host] {
		if to, ok := h.w.routes[net.JoinHostPort(a.String(), port)]; ok {
			return to
		}
	}
	return "127.0.0.1:1"
}

func (h *house) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

const getRoot = "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"

func getOf(host string) string { return strings.ReplaceAll(getRoot, "%s", host) }

// Everything goes through the house's proxy by CONNECT, plain HTTP too, and with
// the proxy's address alone dialled, which no rule of the policy opens.
func TestHouseProxyCarriesEverything(t *testing.T) {
	for name, overTLS := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			h := w.openHouse("", overTLS)
			w.serve("api.example.org", 80, &echo{})
			w.serve("other.example.org", 443, &echo{})
			w.serve("passed.example.org", 443, &echo{})
			// The server speaks first, as SSH does: its bytes come right behind the head.
			w.serveRaw("db.example.org", 5432, func(c net.Conn) {
				_, _ = io.WriteString(c, "hello from the server")
				_, _ = io.Copy(c, c)
			})
			if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "200") {
				t.Errorf("plain: got %q, want 200", got)
			}
			if got := w.raw("other.example.org", 443, "other.example.org", getOf("other.example.org")); !strings.Contains(statusLine(got), "200") {
				t.Errorf("inspected: got %q, want 200", got)
			}
			w.throughPassedTLS("passed.example.org")
			c := w.open("db.example.org", 5432, "")
			defer func() { _ = c.Close() }()
			if got := echoed(c, ""); got != "" {
				t.Fatal(got)
			}
			b := make([]byte, len("hello from the server"))
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello from the server" {
				t.Errorf("tcp: got %q and %v, want the server's first words", b, err)
			}
			if got := echoed(c, "and mine"); got != "and mine" {
				t.Errorf("tcp: got %q, want an echo", got)
			}
			want := []string{"CONNECT api.example.org:80", "CONNECT other.example.org:443", "CONNECT passed.example.org:443", "CONNECT db.example.org:5432"}
			if got := h.requests(); !slices.Equal(got, want) {
				t.Errorf("asked: got %v, want %v", got, want)
			}
			for _, d := range second(w.seen()) {
				if d != "10.9.9.9:3128" {
					t.Errorf("dials: got %s, want the proxy's address alone", d)
				}
			}
		})
	}
}

func second[A, B any](_ A, b B) B { return b }

// throughPassedTLS makes a request that the proxy does not read.
func (w *world) throughPassedTLS(host string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.door(host, 443))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	tc := tls.Client(c, &tls.Config{ServerName: host, RootCAs: poolOf(w.t, w.outside), NextProtos: []string{"http/1.1"}})
	if _, err := io.WriteString(tc, getOf(host)); err != nil {
		w.t.Errorf("passed: got %v, want a connection to the real server", err)
		return
	}
	b, _ := io.ReadAll(tc)
	if !strings.Contains(statusLine(string(b)), "200") {
		w.t.Errorf("passed: got %q, want 200", b)
	}
}

// Judging stays ours: what resolves here to a refused address is not asked of
// the house's proxy, and of a mixed answer an allowed address is.
func TestHouseProxyDoesNotJudge(t *testing.T) {
	cases := []struct {
		name  string
		addrs []string
		known bool // to the house's proxy
		want  string
		asked []string
	}{
		{"control", []string{"93.184.215.77"}, false, "200", []string{"CONNECT api.example.org:80"}},
		{"private", []string{"10.0.0.5"}, true, "403", nil},
		{"metadata", []string{"169.254.169.254"}, true, "403", nil},
		{"loopback", []string{"127.0.0.1"}, true, "403", nil},
		{"mixed", []string{"10.0.0.5", "93.184.215.77"}, true, "200", []string{"CONNECT 93.184.215.77:80"}},
		{"unknown here", nil, true, "200", []string{"CONNECT api.example.org:80"}},
		{"unknown to both", nil, false, "502", []string{"CONNECT api.example.org:80"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			h := w.openHouse("", false)
			w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.215.77")}
			w.serve("api.example.org", 80, &echo{})
			if c.known {
				h.inside["api.example.org:80"] = w.routes["93.184.215.77:80"]
			}
			delete(w.names, "api.example.org")
			for _, a := range c.addrs {
				w.names["api.example.org"] = append(w.names["api.example.org"], netip.MustParseAddr(a))
			}
			got := w.raw("api.example.org", 80, "", getOf("api.example.org"))
			if !strings.Contains(statusLine(got), c.want) {
				t.Errorf("got %q, want %s", got, c.want)
			}
			if asked := h.requests(); !slices.Equal(asked, c.asked) {
				t.Errorf("asked: got %v, want %v", asked, c.asked)
			}
		})
	}
	w := newWorld(t, testNetwork())
	h := w.openHouse("", false)
	h.inside["denied.example.org:80"] = "127.0.0.1:1"
	if got := w.raw("denied.example.org", 80, "", getOf("denied.example.org")); !strings.Contains(statusLine(got), "403") || len(h.requests()) > 0 {
		t.Errorf("no rule: got %q and %v, want 403 and nothing asked", got, h.requests())
	}
}

// A name that the policy pins is asked for by the address that was judged, and
// loopback is this machine's and not the proxy's.
func TestHouseProxyAndPinnedNames(t *testing.T) {
	for addr, asked := range map[string][]string{"93.184.215.77": {"CONNECT 93.184.215.77:80"}, "127.0.0.9": nil} {
		n := testNetwork()
		n.Hosts = map[string][]string{"api.example.org": {addr}}
		n.Private = []policy.PrivateRange{{CIDR: "127.0.0.9", Reason: "test"}}
		w := newWorld(t, n)
		h := w.openHouse("", false)
		w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr(addr)}
		w.serve("api.example.org", 80, &echo{})
		if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "200") {
			t.Errorf("%s: got %q, want 200", addr, got)
		}
		if got := h.requests(); !slices.Equal(got, asked) {
			t.Errorf("%s: asked: got %v, want %v", addr, got, asked)
		}
	}
}

// NO_PROXY: names, ranges and ports go directly.
func TestNoProxy(t *testing.T) {
	cases := []struct {
		none   string
		direct bool
	}{
		{"", false},
		{"*", true},
		{"api.example.org", true},
		{".example.org", true},
		{"example.org", true},
		{"other.org", false},
		{"api.example.org:80", true},
		{"api.example.org:8080", false},
		{"10.0.0.0/8,example.org", true},
	}
	for _, c := range cases {
		t.Run(c.none, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			h := w.openHouse(c.none, false)
			w.serve("api.example.org", 80, &echo{})
			if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "200") {
				t.Errorf("got %q, want 200", got)
			}
			if got := len(h.requests()) == 0; got != c.direct {
				t.Errorf("direct: got %v, want %v", got, c.direct)
			}
		})
	}
	n := testNetwork()
	n.Rules = append(n.Rules, policy.Rule{Name: "literal", Host: "93.184.215.90", TLS: policy.TLSInspect})
	for none, direct := range map[string]bool{"93.184.0.0/16": true, "10.0.0.0/8": false} {
		w := newWorld(t, n)
		h := w.openHouse(none, false)
		w.names["literal"] = []netip.Addr{netip.MustParseAddr("93.184.215.90")}
		w.serve("literal", 80, &echo{})
		if got := w.raw("93.184.215.90", 80, "", getOf("93.184.215.90")); !strings.Contains(statusLine(got), "200") {
			t.Errorf("%s: got %q, want 200", none, got)
		}
		if got := len(h.requests()) == 0; got != direct {
			t.Errorf("%s: direct: got %v, want %v", none, got, direct)
		}
	}
}

// Whatever the house's proxy does is a clear answer to the agent, without the
// password, and no connection to the server by another way.
func TestHouseProxyFails(t *testing.T) {
	cases := []struct{ name, answer, want string }{
		{"wrong password", "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", "(407)"},
		{"refused", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "refuses to connect to the server (403)"},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://login.corp.example.org/\r\n\r\n", "(302)"},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n", "gave no answer to CONNECT"},
		{"half a head", "HTTP/1.1 200 OK\r\nX: ", "gave no answer to CONNECT"},
		{"no status", "HTTP/1.1 yes\r\n\r\n", "not HTTP"},
		{"endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 4000), "gave no answer to CONNECT"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			h := w.openHouse("", false)
			h.answer = c.answer
			w.serve("other.example.org", 443, &echo{})
			w.wantUpstreamFailure("other.example.org", c.want)
			w.wantNoPassword()
			if dials := second(w.seen()); slices.ContainsFunc(dials, func(d string) bool { return d != "10.9.9.9:3128" }) {
				t.Errorf("dials: got %v, want the proxy alone", dials)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		w := newWorld(t, testNetwork())
		w.openHouse("", false)
		delete(w.routes, "10.9.9.9:3128")
		w.serve("other.example.org", 443, &echo{})
		w.wantUpstreamFailure("other.example.org", "the house's proxy cannot be reached")
		w.wantNoPassword()
	})
	t.Run("certificate of a stranger", func(t *testing.T) {
		w := newWorld(t, testNetwork())
		h := w.openHouse("", true)
		w.srv.RootCAs = poolOf(t, w.srv.Authority)
		w.serve("api.example.org", 80, &echo{})
		if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "502") || len(h.requests()) > 0 {
			t.Errorf("got %q and %v, want 502 and no request", got, h.requests())
		}
	})
}

// wantNoPassword looks for the password in the record, as it is and encoded.
func (w *world) wantNoPassword() {
	w.t.Helper()
	b, err := os.ReadFile(w.auditFile)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, secret := range []string{housePassword, base64.StdEncoding.EncodeToString([]byte("me:" + housePassword))} {
		if strings.Contains(string(b), secret) {
			w.t.Errorf("record: got the password in it")
		}
	}
	w.wantEvent("upstream failure", func(e audit.Event) bool { return e.Kind == audit.KindUpstream })
}

func TestNewHouseProxy(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"", ""},
		{"http://proxy.example.org:3128", ""},
		{"https://me:secret@proxy.example.org", ""},
		{"proxy.example.org:3128", ""},
		{"socks5://proxy.example.org:1080", "must be http:// or https://"},
		{"socks5h://me:secret@proxy.example.org:1080", "must be http:// or https://"},
		{"ftp://proxy.example.org", "must be http:// or https://"},
		{"http://me:secret@proxy.example.org:99999", "not the URL of a proxy"},
		{"http://me:secret@%zz", "not the URL of a proxy"},
		{"http://", "not the URL of a proxy"},
	} {
		_, err := NewHouseProxy(c.value, "", "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.value, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got the password in %q", c.value, err)
		}
	}
	if p, err := NewHouseProxy("", "", "example.org"); p != nil || err != nil {
		t.Errorf("none: got %v and %v, want nil", p, err)
	}
}

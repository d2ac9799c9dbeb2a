package proxy

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const guestToken = "guest-token-0123456789"

// published is a port that a proxy serves, and the service behind it.
type published struct {
	*world
	addr   string
	dials  atomic.Int64
	served sync.WaitGroup
}

// publishPort serves an entry; inside is where its port leads, "" to nowhere.
func publishPort(t *testing.T, in Inbound, inside string, set ...func(*Server)) *published {
	t.Helper()
	w := newWorld(t, policy.Network{})
	in.Name, in.Pos = "api", "p.yaml:1:1"
	w.srv.Rules.Inbound = map[string]Inbound{"api": in}
	for _, f := range set {
		f(w.srv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &published{world: w, addr: l.Addr().String()}
	dial := func(context.Context) (net.Conn, error) {
		p.dials.Add(1)
		if inside == "" {
			return nil, errors.New("nothing listens there")
		}
		return net.Dial("tcp", inside)
	}
	p.served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.served.Go(func() { w.srv.ServeInbound(context.Background(), "api", c, dial) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		_ = w.srv.Close()
		p.served.Wait()
	})
	return p
}

func withToken(token string) Inbound {
	sum := sha256.Sum256([]byte(token))
	return Inbound{Token: &sum}
}

// inner is a service that answers each connection with a text, as it is.
func inner(t *testing.T, answer string) (addr string, got func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var heads []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				raw, err := readHead(bufio.NewReader(c), nil, 1<<20, nil)
				if err != nil {
					return
				}
				mu.Lock()
				heads = append(heads, string(raw))
				mu.Unlock()
				_, _ = io.WriteString(c, answer)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), heads...)
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func (p *published) send(text string) (int, string) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil { // reset before connect(2) returned
		return 0, err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error()
	}
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func guestHead(fields ...string) string {
	return "GET /a HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

func TestInboundForwardsWhatItJudged(t *testing.T) {
	addr, got := inner(t, okAnswer)
	p := publishPort(t, withToken(guestToken), addr)
	status, body := p.send(guestHead("Authorization: Bearer "+guestToken, "X-Forwarded-For: 10.0.0.1", "X-Original-Url: /b", "Connection: X-Gone", "X-Gone: 1", "X-Kept: 1"))
	if status != 200 || body != "ok" {
		t.Fatalf("got %d, %q", status, body)
	}
	heads := strings.Join(got(), "")
	for _, want := range []string{"GET /a HTTP/1.1\r\n", "Host: x\r\n", "X-Kept: 1\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n"} {
		if !strings.Contains(heads, want) {
			t.Errorf("got %q, want %q in it", heads, want)
		}
	}
	for _, not := range []string{guestToken, "10.0.0.1", "X-Original-Url", "X-Gone"} {
		if strings.Contains(heads, not) {
			t.Errorf("got %q, want no %q", heads, not)
		}
	}
}

// What is refused never causes a connection into the sandbox.
func TestInboundRefusesBeforeItConnects(t *testing.T) {
	addr, _ := inner(t, okAnswer)
	right := "Authorization: Bearer " + guestToken
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"no token":        {guestHead(), 401},
		"wrong token":     {guestHead("Authorization: Bearer x"), 401},
		"two tokens":      {guestHead(right, right), 401},
		"no host":         {"GET / HTTP/1.1\r\n" + right + "\r\n\r\n", 400},
		"bad host":        {"GET / HTTP/1.1\r\nHost: a/b\r\n" + right + "\r\n\r\n", 400},
		"dots":            {"GET /a/%2e%2e/b HTTP/1.1\r\nHost: x\r\n" + right + "\r\n\r\n", 400},
		"another upgrade": {guestHead(right, "Upgrade: tls/1.0", "Connection: upgrade"), 501},
		"WebSocket, POST": {"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n" + right + "\r\n\r\n", 400},
		"a proxy request": {"GET https://x/ HTTP/1.1\r\nHost: x\r\n" + right + "\r\n\r\n", 403},
		"huge head":       {guestHead(right, "X: "+strings.Repeat("x", 70<<10)), 431},
	} {
		t.Run(name, func(t *testing.T) {
			p := publishPort(t, withToken(guestToken), addr)
			if got, body := p.send(c.text); got != c.want || strings.Contains(body, "proxy setting") {
				t.Errorf("got %d, %q, want %d", got, body, c.want)
			}
			if n := p.dials.Load(); n != 0 {
				t.Errorf("got %d connections into the sandbox, want none", n)
			}
		})
	}
}

// The service is the agent's: what it answers must not pass for another answer.
func TestInboundHostileService(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   int
	}{
		"a switch that nobody asked for": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw", 502},
		"no HTTP":                        {"SSH-2.0-x\r\n\r\n", 502},
		"nothing":                        {"", 502},
		"a status of its own":            {"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", 502},
		"its own decision":               {"HTTP/1.1 200 OK\r\nX-Hermes-Wrap-Decision: deny\r\nContent-Length: 0\r\n\r\n", 200},
		"two answers":                    {okAnswer + okAnswer, 200},
	} {
		t.Run(name, func(t *testing.T) {
			addr, _ := inner(t, c.answer)
			p := publishPort(t, withToken(guestToken), addr)
			if got, body := p.send(guestHead("Authorization: Bearer "+guestToken, "Connection: close")); got != c.want {
				t.Errorf("got %d, %q, want %d", got, body, c.want)
			}
		})
	}
	p := publishPort(t, withToken(guestToken), "")
	if got, body := p.send(guestHead("Authorization: Bearer " + guestToken)); got != 503 || !strings.Contains(body, "nothing listens") {
		t.Errorf("nothing inside: got %d, %q, want 503", got, body)
	}
}

// A client that sends its head byte by byte is cut off, and others are served
// meanwhile.
func TestInboundSlowHead(t *testing.T) {
	addr, _ := inner(t, okAnswer)
	p := publishPort(t, withToken(guestToken), addr, func(s *Server) { s.Limits.Head = 200 * time.Millisecond })
	slow, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\nHost: x\r\nX: ")
	if got, _ := p.send(guestHead("Authorization: Bearer " + guestToken)); got != 200 {
		t.Errorf("another client: got %d, want 200", got)
	}
	_ = slow.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadAll(slow); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("the slow client is still connected")
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestInboundHTTP2(t *testing.T) {
	addr, got := inner(t, okAnswer)
	in := withToken(guestToken)
	authority, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err := netpolicy.ParseHost("localhost")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.leafFor(host)
	if err != nil {
		t.Fatal(err)
	}
	in.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf}, NextProtos: InboundProtocols(true)}
	p := publishPort(t, in, addr)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: poolOf(t, authority), ServerName: "localhost", MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	for _, c := range []struct {
		fields []string
		want   int
	}{{[]string{"Bearer " + guestToken}, 200}, {nil, 401}, {[]string{"Bearer x"}, 401}, {[]string{"Bearer " + guestToken, "Bearer " + guestToken}, 401}, {[]string{"Bearer " + guestToken}, 200}} {
		r, err := http.NewRequest(http.MethodGet, "https://"+p.addr+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Authorization"] = c.fields
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != c.want || resp.ProtoMajor != 2 {
			t.Errorf("%v: got %v over %s, want %d over HTTP/2", c.fields, resp.Status, resp.Proto, c.want)
		}
		if challenge := resp.Header.Get("Www-Authenticate"); (challenge != "") != (c.want == 401) {
			t.Errorf("%v: got challenge %q", c.fields, challenge)
		}
	}
	if n := len(got()); n != 2 {
		t.Errorf("got %d requests inside, want 2", n)
	}
}

// A reload changes the token for the next request, also of a connection that stays.
func TestInboundReload(t *testing.T) {
	addr, _ := inner(t, okAnswer)
	p := publishPort(t, withToken(guestToken), addr)
	old, now := guestHead("Authorization: Bearer "+guestToken), guestHead("Authorization: Bearer another-token-123456")
	if got, _ := p.send(old); got != 200 {
		t.Fatalf("before: got %d, want 200", got)
	}
	p.srv.Reload(Rules{Inbound: map[string]Inbound{"api": withToken("another-token-123456")}})
	if got, _ := p.send(old); got != 401 {
		t.Errorf("old token: got %d, want 401", got)
	}
	if got, _ := p.send(now); got != 200 {
		t.Errorf("new token: got %d, want 200", got)
	}
	p.srv.Reload(Rules{})
	if got, _ := p.send(now); got != 0 {
		t.Errorf("no entry: got %d, want nothing", got)
	}
}

// Refusals are on record; where they cannot be, a policy that requires it refuses
// in other words.
func TestInboundRecord(t *testing.T) {
	var fatal atomic.Bool
	p := publishPort(t, withToken(guestToken), "", func(s *Server) { s.Fatal = func(error) { fatal.Store(true) } })
	if got, _ := p.send(guestHead()); got != 401 {
		t.Errorf("got %d, want 401", got)
	}
	found := false
	for _, e := range p.events() {
		found = found || e.Kind == audit.KindInbound && e.Verdict == audit.Deny && e.Rule == "api" && e.Addr == "127.0.0.1" && e.Status == 401
	}
	if !found {
		t.Errorf("got %+v, want the refusal", p.events())
	}
	_ = p.srv.Audit.Close()
	if got, _ := p.send(guestHead()); got != 503 || !fatal.Load() {
		t.Errorf("without a record: got %d, told %v, want 503 and true", got, fatal.Load())
	}
}

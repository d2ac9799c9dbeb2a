package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLax(t *testing.T) {
	const ok = "GET /public/a HTTP/1.1\r\nHost: allowed.test\r\n"
	for _, c := range []struct{ name, raw, want string }{
		{"plain", ok + "\r\n", ""},
		{"query", "GET /public/a?x=/../secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", ""},
		{"body that looks like a request", "POST /public/a HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 22\r\n\r\nGET /admin HTTP/1.1\r\n\r\n", ""},
		{"pipelined", ok + "\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"dots", "GET /public/../secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"escaped dots", "GET /public/%2e%2E/secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"escaped twice", "GET /public/%252e%252e/secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"escaped slash", "GET /public/..%2fsecret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"backslash", "GET /public/..\\secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"parameter", "GET /public/..;x=1/secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"overlong", "GET /public/%c0%ae%c0%ae/secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /secret"},
		{"letters", "GET /%61dmin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"case", "GET /ADMIN HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"host", "GET /public/a HTTP/1.1\r\nHost: denied.test\r\n\r\n", "the host denied.test"},
		{"second host", ok + "Host: denied.test\r\n\r\n", "the host denied.test"},
		{"list of hosts", "GET /public/a HTTP/1.1\r\nHost: allowed.test, denied.test\r\n\r\n", "the host denied.test"},
		{"folded host", ok + "X: 1\r\n Host: denied.test\r\n\r\n", "the host denied.test"},
		{"host after a line feed", ok + "X: 1\nHost: denied.test\r\n\r\n", "the host denied.test"},
		{"host after a carriage return", ok + "X: 1\rHost: denied.test\r\n\r\n", "the host denied.test"},
		{"absolute", "GET http://denied.test/public HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the host denied.test"},
		{"user", "GET http://allowed.test@denied.test/public HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the host denied.test"},
		{"forwarded host", ok + "X_Forwarded_Host: denied.test\r\n\r\n", "the host denied.test"},
		{"other path", ok + "X-Original-URL: /admin\r\n\r\n", "the path /admin"},
		{"method with spaces", "GET /admin HTTP/1.1 /public HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"method", ok + "X-HTTP-Method-Override: delete\r\n\r\n", "the method DELETE"},
		{"method in the query", "GET /public?.method=DELETE HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the method DELETE"},
		{"both lengths", "POST /public HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"two lengths", "POST /public HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 40\r\nContent-Length: 0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n", "the path /admin"},
		{"odd coding", "POST /public HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 50\r\nTransfer-Encoding: \vchunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"chunk extension", "POST /public HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\nX\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "the path /admin"},
		{"word", "POST /public HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 20\r\n\r\n{\"a\":\"f\\u006frbidden\"}", `the word "forbidden"`},
	} {
		got := Lax("allowed.test", []byte(c.raw))
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestHolds(t *testing.T) {
	const secret = "sk-canary0123456789abcdef"
	for name, text := range map[string]string{
		"plain": secret, "case": strings.ToUpper(secret), "percent": "sk%2dcanary0123456789abcdef", "percent twice": "sk%252dcanary0123456789abcdef",
		"json": `sk\u002dcanary0123456789abcdef`, "base64": base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
		"url base64": base64.URLEncoding.EncodeToString([]byte("xx" + secret + "yy")), "hex": "736b2d63616e6172793031323334353637383961626364656" + "6",
		"chunks": "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsk-canary\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
		"utf-16": strings.Join(strings.Split(secret, ""), "\x00"),
	} {
		if !Holds([]byte(text), secret) {
			t.Errorf("%s: not found in %q", name, text)
		}
	}
	if Holds([]byte("sk-canary0123456789abcde"), secret) {
		t.Error("found in a text that does not hold it")
	}
}

// rig is a gateway with its origins, on loopback.
type rig struct {
	t     *testing.T
	world *World
	naive *Naive

	mu   sync.Mutex
	seen []Seen
}

func newRig(t *testing.T, mode string) *rig {
	ca, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	r.world = &World{CA: ca, Twin: true, Right: map[string]string{"api.test": "real-secret-0001"}, Secrets: []string{"real-secret-0001", "placeholder-0001"}, Note: func(s Seen) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, s)
	}}
	r.naive = &Naive{
		World: r.world, Mode: mode, Credentials: map[string]string{"api.test": "real-secret-0001"},
		Placeholders: map[string]string{"placeholder-0001": "real-secret-0001"},
		Dial: func(_ context.Context, name string, port int) (net.Conn, error) {
			return r.pipe(func(c net.Conn) { r.world.Serve(name, port, c) }), nil
		},
	}
	return r
}

// pipe gives a connection of TCP to what serves.
func (r *rig) pipe(serve func(net.Conn)) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan struct{})
	go func() {
		c, err := l.Accept()
		close(accepted)
		if err == nil {
			serve(c)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	<-accepted // closing the listener resets what it has not accepted
	return c
}

// ask sends bytes through the gateway and gives what comes back.
func (r *rig) ask(name string, port int, raw string) string {
	c := r.pipe(func(c net.Conn) { r.naive.Serve(name, port, c) })
	defer c.Close()
	if port == 443 {
		c = tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // a test
	}
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, raw) // one that refuses early may be gone
	br := bufio.NewReader(c)
	var b []byte
	for wait := 10 * time.Second; ; wait = 500 * time.Millisecond {
		_ = c.SetReadDeadline(time.Now().Add(wait))
		line, err := br.ReadBytes('\n')
		b = append(b, line...)
		if err != nil {
			return string(b)
		}
	}
}

func (r *rig) whats() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, s := range r.seen {
		all = append(all, s.Origin+": "+s.What)
	}
	return all
}

func TestNaiveRefuses(t *testing.T) {
	for _, c := range []struct{ mode, name, raw string }{
		{"first", "denied.test", "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"},
		{"first", "allowed.test", "GET /secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n"},
		{"first", "allowed.test", "DELETE /public HTTP/1.1\r\nHost: allowed.test\r\n\r\n"},
		{"each", "allowed.test", "GET /public HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n"},
		{"deny", "denied.test", "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"},
		{"suffix", "denied.test", "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"},
		{"host", "evil.test", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
		{"first", "mcp.test", "POST / HTTP/1.1\r\nHost: mcp.test\r\nContent-Length: 55\r\n\r\n{\"method\":\"tools/call\",\"params\":{\"name\":\"forbidden_1\"}}"},
		{"first", "llm.test", "POST /v1/chat/completions HTTP/1.1\r\nHost: llm.test\r\nContent-Length: 25\r\n\r\n{\"model\":\"forbidden-one\"}"},
	} {
		r := newRig(t, c.mode)
		got := r.ask(c.name, 443, c.raw)
		if found := r.whats(); len(found) > 0 || !strings.Contains(got, "403") {
			t.Errorf("%s %s: %q: found %q, answer %q", c.mode, c.name, c.raw, found, got)
		}
	}
}

func TestNaiveAllows(t *testing.T) {
	r := newRig(t, "")
	got := r.ask("allowed.test", 443, "GET /public/x HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	if !strings.Contains(got, "origin allowed.test GET /public/x") || len(r.whats()) > 0 {
		t.Errorf("got %q, found %q", got, r.whats())
	}
}

func TestNaiveFalls(t *testing.T) {
	for _, c := range []struct {
		mode, name string
		port       int
		raw, want  string
	}{
		{"first", "allowed.test", 443, "GET /public HTTP/1.1\r\nHost: denied.test\r\n\r\n", "denied.test: a connection to denied.test"},
		{"first", "allowed.test", 443, "GET /public HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "allowed.test: the path /admin"},
		{"first", "allowed.test", 443, "GET /public/../secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "allowed.test: the path /secret"},
		{"each", "allowed.test", 443, "POST /public HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: allowed.test\r\n\r\n.....", "allowed.test: the path /admin"},
		{"first", "api.test", 80, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", "api.test: a secret without TLS"},
		{"host", "evil.test", 80, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", "evil.test: a secret or a placeholder"},
		{"first", "other.test", 443, "GET /placeholder-0001 HTTP/1.1\r\nHost: other.test\r\n\r\n", "other.test: a secret or a placeholder"},
		{"deny", "allowed.test", 443, "GET / HTTP/1.1\r\nHost: denied.test.\r\n\r\n", "denied.test: a connection to denied.test"},
		{"first", "allowed.test", 443, "SSH-2.0-x\r\n", ""},
	} {
		r := newRig(t, c.mode)
		got := r.ask(c.name, c.port, c.raw)
		if c.want != "" && !slices.Contains(r.whats(), c.want) {
			t.Errorf("%s %s %q: found %q, answer %q", c.mode, c.name, c.raw, r.whats(), got)
		}
	}
}

// BenchmarkLax is a head of 256 KiB, which must not keep a world from answering.
func BenchmarkLax(b *testing.B) {
	raw := []byte("GET /public HTTP/1.1\r\nHost: allowed.test\r\n" + strings.Repeat("X-Field: yyyyyyyyyyyyyyyy\r\n", 9000) + "\r\n")
	for b.Loop() {
		Lax("allowed.test", raw)
	}
}

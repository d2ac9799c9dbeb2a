package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// echo answers with what reached it.
type echo struct {
	mu   sync.Mutex
	seen []string
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a request that was cut off is no request
	}
	e.mu.Lock()
	e.seen = append(e.seen, r.Method+" "+r.Host+" "+r.RequestURI)
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "uri": r.RequestURI, "host": r.Host, "header": r.Header, "body": string(body), "trailer": r.Trailer, "proto": r.Proto,
	})
}

func (e *echo) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.seen...)
}

// Allowed requests arrive, denied ones are answered with the structured body,
// over both HTTP versions, with TLS and without.
func TestInspect(t *testing.T) {
	for _, c := range []struct {
		name   string
		scheme string
		port   int
		h2     bool
	}{{"https 1.1", "https", 443, false}, {"https 2", "https", 443, true}, {"http", "http", 80, false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			server := &echo{}
			w.serve("api.example.org", c.port, server)
			client := w.client("api.example.org", c.port, c.h2)

			resp, err := client.Post(c.scheme+"://api.example.org/public/a?q=secret", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if body := readBody(t, resp); resp.StatusCode != 200 || !strings.Contains(body, `"body":"hello"`) {
				t.Errorf("allowed: got %d %s, want 200 with the body", resp.StatusCode, body)
			}
			resp, err = client.Get(c.scheme + "://api.example.org/private/a?token=secret")
			if err != nil {
				t.Fatal(err)
			}
			wantDenied(t, resp, "api.example.org")
			if got := server.requests(); len(got) != 1 {
				t.Errorf("server saw %v, want the allowed request only", got)
			}
			w.wantEvent("allowed request", func(e audit.Event) bool {
				return e.Verdict == audit.Allow && e.Rule == "api" && e.Method == "POST" && e.Path == "/public/a?q=[redacted]" && e.Pos == "p.yaml:3:5"
			})
			w.wantEvent("denied request", func(e audit.Event) bool {
				return e.Verdict == audit.Deny && e.Kind == audit.KindRequest && e.ID != "" && e.Path == "/private/a?token=[redacted]"
			})
			w.wantNoFault()
		})
	}
}

func wantDenied(t *testing.T, resp *http.Response, host string) {
	t.Helper()
	var body struct{ Error, ID, Host, Reason, Note string }
	text := readBody(t, resp)
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatalf("denial %q: %v", text, err)
	}
	if resp.StatusCode != 403 || resp.Header.Get(decisionHeader) != "deny" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("denial: got %d %v, want 403 with %s: deny", resp.StatusCode, resp.Header, decisionHeader)
	}
	if body.Error != errPolicy || body.ID == "" || body.Host != host || body.Reason == "" || !strings.Contains(body.Note, "will not help") {
		t.Errorf("denial: got %+v, want it complete", body)
	}
}

// A denied host is told so in HTTP (corpus D09, C03), and nobody is asked for
// its address.
func TestDeniedHost(t *testing.T) {
	for _, c := range []struct {
		name string
		port int
		h2   bool
	}{{"http", 80, false}, {"https 1.1", 443, false}, {"https 2", 443, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serve("data.evil.example", c.port, &echo{})
			scheme := "https"
			if c.port == 80 {
				scheme = "http"
			}
			resp, err := w.client("data.evil.example", c.port, c.h2).Get(scheme + "://data.evil.example/")
			if err != nil {
				t.Fatal(err)
			}
			wantDenied(t, resp, "data.evil.example")
			if lookups, dials := w.seen(); len(lookups)+len(dials) != 0 {
				t.Errorf("outside: got lookups %v and dials %v, want none", lookups, dials)
			}
			w.wantEvent("denied connection", func(e audit.Event) bool {
				return e.Kind == audit.KindConnection && e.Verdict == audit.Deny && e.Host == "data.evil.example"
			})
		})
	}
}

// Every request on a connection is judged, also when they come in one write
// (corpus D03, D47), and the connection ends with a denial.
func TestPipelinedRequestsAreJudgedEach(t *testing.T) {
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 443, server)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: api.example.org\r\n\r\n" }
	answer := w.raw("api.example.org", 443, "api.example.org", get("/public/1")+get("/secret")+get("/public/2"))
	if got := strings.Count(answer, "HTTP/1.1 200"); got != 1 {
		t.Errorf("answers 200: got %d, want 1", got)
	}
	if got := strings.Count(answer, "HTTP/1.1 403"); got != 1 {
		t.Errorf("answers 403: got %d, want 1", got)
	}
	if got := server.requests(); len(got) != 1 {
		t.Errorf("server saw %v, want /public/1 only", got)
	}
	control := w.raw("api.example.org", 443, "api.example.org", get("/public/1")+
		strings.Replace(get("/public/2"), "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	if got := strings.Count(control, "HTTP/1.1 200"); got != 2 {
		t.Errorf("control: got %d answers 200, want 2", got)
	}
}

// What two servers could read differently is refused, whatever it says
// (corpus D02, D08, D18, D21, D40–D48, D55). Each case is the control with one
// thing changed.
func TestStrictFront(t *testing.T) {
	const host = "Host: api.example.org\r\n"
	cases := []struct{ name, text, want string }{
		{"control", "GET /public/a HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "200"},
		{"control body", "POST /public/a HTTP/1.1\r\n" + host + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", "200"},
		{"control chunked", "POST /public/a HTTP/1.1\r\n" + host + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "200"},
		{"control absolute", "GET http://api.example.org/public/a HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "200"},
		{"control 1.0", "GET /public/a HTTP/1.0\r\n" + host + "\r\n", "200"},
		{"foreign host", "GET /public/a HTTP/1.1\r\nHost: denied.example\r\n\r\n", "403"},
		{"foreign port", "GET /public/a HTTP/1.1\r\nHost: api.example.org:81\r\n\r\n", "403"},
		{"no host", "GET /public/a HTTP/1.1\r\n\r\n", "400"},
		{"two hosts", "GET /public/a HTTP/1.1\r\n" + host + host + "\r\n", "400"},
		{"list of hosts", "GET /public/a HTTP/1.1\r\nHost: api.example.org, b\r\n\r\n", "400"},
		{"user info", "GET /public/a HTTP/1.1\r\nHost: api.example.org@denied.example\r\n\r\n", "400"},
		{"absolute of another host", "GET http://denied.example/public/a HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"absolute with user info", "GET http://u@api.example.org/public/a HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"absolute https", "GET https://api.example.org/public/a HTTP/1.1\r\n" + host + "\r\n", "403"},
		{"connect", "CONNECT api.example.org:443 HTTP/1.1\r\n" + host + "\r\n", "405"},
		{"connect path", "CONNECT /x HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"connect without port", "CONNECT api.example.org HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"connect without host", "CONNECT :443 HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"length and chunked", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"xchunked", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n", "400"},
		{"chunked, identity", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n", "400"},
		{"vertical tab chunked", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: \x0bchunked\r\n\r\n", "400"},
		{"two transfer encodings", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"space before colon", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"},
		{"chunked in 1.0", "POST /public/a HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"two lengths", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nhi", "400"},
		{"signed length", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\nh", "400"},
		{"hex length", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: 0x1\r\n\r\nh", "400"},
		{"list length", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: 1,1\r\n\r\nh", "400"},
		{"huge length", "POST /public/a HTTP/1.1\r\n" + host + "Content-Length: 18446744073709551616\r\n\r\nh", "400"},
		{"underscore length", "POST /public/a HTTP/1.1\r\n" + host + "Content_Length: 1\r\n\r\nh", "400"},
		{"bare LF", "GET /public/a HTTP/1.1\nHost: api.example.org\n\n", "400"},
		{"bare LF in fields", "GET /public/a HTTP/1.1\r\n" + host + "X: 1\n\r\n", "400"},
		{"bare CR", "GET /public/a HTTP/1.1\r\n" + host + "X: 1\rY: 2\r\n\r\n", "400"},
		{"NUL", "GET /public/a HTTP/1.1\r\n" + host + "X: 1\x002\r\n\r\n", "400"},
		{"folding", "GET /public/a HTTP/1.1\r\nX: 1\r\n " + host + host + "\r\n", "400"},
		{"leading empty line", "GET /public/a HTTP/1.1\r\n" + host + "\r\n\r\n", "200"},
		{"chunk extension", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2;a=\"b\n\"\r\nhi\r\n0\r\n\r\n", "400"},
		{"chunk size overflow", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhi\r\n0\r\n\r\n", "400"},
		{"chunk bare LF", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n", "400"},
		{"chunk longer than its size", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n", "400"},
		{"http 1.9", "GET /public/a HTTP/1.9\r\n" + host + "\r\n", "400"},
		{"two spaces", "GET  /public/a HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"fragment", "GET /public/a#b HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"h2c upgrade", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "403"},
		{"websocket upgrade", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "403"},
		{"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		{"trace", "TRACE /public/a HTTP/1.1\r\n" + host + "\r\n", "403"},
		{"expect something", "POST /public/a HTTP/1.1\r\n" + host + "Expect: more\r\nContent-Length: 1\r\n\r\n", "417"},
		{"dot segments", "GET /public/../secret HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"encoded dot segments", "GET /public/%2e%2e/secret HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"method override", "POST /public/a HTTP/1.1\r\n" + host + "X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n", "403"},
		{"many fields", "GET /public/a HTTP/1.1\r\n" + host + strings.Repeat("X: 1\r\n", 250) + "\r\n", "431"},
		{"long field", "GET /public/a HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431"},
	}
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 80, server)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := len(server.requests())
			conn := w.open("api.example.org", 80, "")
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, c.text); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Fields(line)[1]; got != c.want && !(c.name == "h2 preface" && got == "505") {
				t.Errorf("got %q, want %s", line, c.want)
			}
			reached := len(server.requests()) - before
			if c.want != "200" && reached != 0 {
				t.Errorf("server saw %v, want nothing", server.requests()[before:])
			}
		})
	}
	for _, r := range server.requests() {
		if strings.Contains(r, "secret") || strings.Contains(r, "denied") || strings.Contains(r, "/x") {
			t.Errorf("server saw %q", r)
		}
	}
	w.wantNoFault()
}

// Expect is answered after the decision only (corpus D49).
func TestExpectContinue(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 80, &echo{})
	ask := func(path string) string {
		c := w.open("api.example.org", 80, "")
		defer func() { _ = c.Close() }()
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", path)
		in := bufio.NewReader(c)
		line, _ := in.ReadString('\n')
		if strings.Contains(line, "100") {
			_, _ = io.WriteString(c, "hi")
		}
		rest, _ := io.ReadAll(in)
		return line + string(rest)
	}
	if got := ask("/public/a"); !strings.HasPrefix(got, "HTTP/1.1 100") || !strings.Contains(got, "HTTP/1.1 200") {
		t.Errorf("allowed: got %q, want 100 then 200", got)
	}
	if got := ask("/secret"); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("denied: got %q, want 403 and no 100", got)
	}
}

// What proxies add or clients make up does not go out; what the client meant
// arrives as judged (corpus D74).
func TestForwardedFields(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 80, &echo{})
	answer := w.raw("api.example.org", 80, "", "GET //public/./%61?b=%20c HTTP/1.1\r\nHost: API.example.org.:80\r\nConnection: close, X-Hop\r\n"+
		"X-Hop: 1\r\nX-Kept: 2\r\nProxy-Authorization: Basic eA==\r\nVia: 1.1 x\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\nTE: gzip\r\n\r\n")
	for _, gone := range []string{"X-Hop", "Proxy-", "Via", "Forwarded", "Te\"", "User-Agent", "Accept-Encoding"} {
		if strings.Contains(answer, gone) {
			t.Errorf("server saw %s: %s", gone, answer)
		}
	}
	for _, kept := range []string{`"X-Kept":["2"]`, `"host":"api.example.org"`, `"uri":"/public/a?b=%20c"`} {
		if !strings.Contains(answer, kept) {
			t.Errorf("got %s, want %s in it", answer, kept)
		}
	}
}

// A redirect is the client's to follow (corpus D62).
func TestRedirectIsNotFollowed(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	resp, err := w.client("api.example.org", 443, false).Get("https://api.example.org/public/a")
	if err != nil {
		t.Fatal(err)
	}
	_ = readBody(t, resp)
	if resp.StatusCode != 302 {
		t.Errorf("got %d, want 302", resp.StatusCode)
	}
	if _, dials := w.seen(); len(dials) != 1 {
		t.Errorf("dials: got %v, want one", dials)
	}
}

// Events of a stream arrive one by one, and trailers after them (corpus D61).
func TestStreamAndTrailers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w := newWorld(t, testNetwork())
			more := make(chan struct{})
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				rw.Header().Set("Trailer", "X-End")
				for i := range 3 {
					_, _ = fmt.Fprintf(rw, "data: %d\n\n", i)
					_ = http.NewResponseController(rw).Flush()
					select {
					case <-more:
					case <-r.Context().Done():
						return
					}
				}
				rw.Header().Set("X-End", "yes")
			}))
			resp, err := w.client("api.example.org", 443, h2).Get("https://api.example.org/public/events")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			in := bufio.NewReader(resp.Body)
			for i := range 3 {
				line, err := in.ReadString('\n')
				if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
					t.Fatalf("event: got %q %v, want %q", line, err, want)
				}
				_, _ = in.ReadString('\n')
				more <- struct{}{}
			}
			if _, err := io.ReadAll(in); err != nil {
				t.Fatal(err)
			}
			if got := resp.Trailer.Get("X-End"); got != "yes" {
				t.Errorf("trailer: got %q, want yes", got)
			}
		})
	}
}

// A client that goes away takes its request with it.
func TestClientGone(t *testing.T) {
	w := newWorld(t, testNetwork())
	began, ended := make(chan struct{}), make(chan struct{})
	w.serve("api.example.org", 80, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	c := w.open("api.example.org", 80, "")
	_, _ = io.WriteString(c, "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\n\r\n")
	<-began
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("got a request that goes on, want it cancelled")
	}
}

// A server that answers outside of HTTP's rules cannot desynchronise the
// client (corpus D50, D58): 502, or an answer with one meaning, then nothing.
func TestMalformedUpstream(t *testing.T) {
	cases := []struct{ name, answer, want string }{
		{"control", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "200"},
		{"unasked 101", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nbytes", "502"},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokx", "502"},
		{"bare CR in field", "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok", "502"},
		{"not http", "SSH-2.0-x\r\n", "502"},
		{"status 999", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", "502"},
		{"1xx flood", strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", 1000), "502"},
		{"nothing", "", "502"},
		{"body on 204", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "204"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("api.example.org", 80, func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			got := w.raw("api.example.org", 80, "", "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n")
			if line := statusLine(got); !strings.Contains(line, c.want) {
				t.Errorf("got %q, want %s", line, c.want)
			}
			if c.want == "502" && !strings.Contains(got, `"error":"upstream_failed"`) || strings.Contains(got, "evil") {
				t.Errorf("got %q, want it to say upstream_failed", got)
			}
		})
	}
}

// An answer that ends early is not passed on as a whole one.
func TestTruncatedUpstream(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("api.example.org", 80, func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, answer)
				}
			})
			resp, err := w.client("api.example.org", 80, false).Get("http://api.example.org/public/a")
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("got %q as a whole answer, want an error", b)
			}
		})
	}
}

// A server that answers before it has the body gets no 100 Continue into the
// middle of its answer (corpus D49).
func TestEarlyAnswer(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("api.example.org", 80, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
	})
	for range 20 {
		c := w.open("api.example.org", 80, "")
		_, _ = io.WriteString(c, "POST /public/a HTTP/1.1\r\nHost: api.example.org\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
		b, _ := io.ReadAll(c)
		_ = c.Close()
		answer := strings.TrimPrefix(string(b), "HTTP/1.1 100 Continue\r\n\r\n")
		if strings.Contains(answer, "100 Continue") || !strings.HasPrefix(answer, "HTTP/1.1 413") && !strings.HasPrefix(answer, "HTTP/1.1 502") {
			t.Fatalf("got %q, want one whole answer", b)
		}
	}
}

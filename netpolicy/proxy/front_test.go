package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

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
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 80, server)
	for _, c := range frontCases() {
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

// An offer of HTTP/2 without TLS does not reach the server, and a client that
// takes it for accepted gets nowhere (corpus D55).
func TestH2COfferIsIgnored(t *testing.T) {
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 80, server)
	answer := w.raw("api.example.org", 80, "", "POST /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: Upgrade, HTTP2-Settings\r\n"+
		"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n\r\nhi"+
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.Contains(answer, `"body":"hi"`) {
		t.Errorf("got %q, want an answer in HTTP/1.1", answer)
	}
	for _, word := range []string{"Upgrade", "Settings", " 101 "} {
		if strings.Contains(strings.SplitAfter(answer, "}\n")[0], word) {
			t.Errorf("got %q, want no %q in it", answer, word)
		}
	}
	if got := server.requests(); len(got) != 1 {
		t.Errorf("server saw %v, want one request", got)
	}
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

// frontCases lists requests, and the status of the answer that is right.
func frontCases() []struct{ name, text, want string } {
	const host = "Host: api.example.org\r\n"
	return []struct{ name, text, want string }{
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
		{"empty line after", "GET /public/a HTTP/1.1\r\n" + host + "\r\n\r\n", "200"},
		{"chunk extension", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2;a=\"b\n\"\r\nhi\r\n0\r\n\r\n", "400"},
		{"chunk size overflow", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhi\r\n0\r\n\r\n", "400"},
		{"chunk bare LF", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n", "400"},
		{"chunk longer than its size", "POST /public/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n", "400"},
		{"http 1.9", "GET /public/a HTTP/1.9\r\n" + host + "\r\n", "400"},
		{"two spaces", "GET  /public/a HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"fragment", "GET /public/a#b HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"h2c upgrade is ignored", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "200"},
		{"h2c upgrade of what is denied", "GET /secret HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "403"},
		{"h2c or websocket upgrade", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n\r\n", "403"},
		{"h2c and websocket upgrade", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n\r\n", "403"},
		{"upgrade to h2c of another kind", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: h2c/1\r\n\r\n", "403"},
		{"upgrade to nothing", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\n\r\n", "403"},
		{"websocket upgrade", "GET /public/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "403"},
		{"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		{"trace", "TRACE /public/a HTTP/1.1\r\n" + host + "\r\n", "403"},
		{"expect something", "POST /public/a HTTP/1.1\r\n" + host + "Expect: more\r\nContent-Length: 1\r\n\r\n", "417"},
		{"dot segments", "GET /public/../secret HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"encoded dot segments", "GET /public/%2e%2e/secret HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"method override", "POST /public/a HTTP/1.1\r\n" + host + "X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n", "403"},
		{"method override with dots", "POST /public/a HTTP/1.1\r\n" + host + "X.HTTP.Method.Override: DELETE\r\nContent-Length: 0\r\n\r\n", "403"},
		{"framing in another spelling", "POST /public/a HTTP/1.1\r\n" + host + "Transfer.Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "400"},
		{"method override with underscores", "POST /public/a HTTP/1.1\r\n" + host + "X_HTTP_Method_Override: DELETE\r\nContent-Length: 0\r\n\r\n", "403"},
		{"many fields", "GET /public/a HTTP/1.1\r\n" + host + strings.Repeat("X: 1\r\n", 250) + "\r\n", "431"},
		{"long field", "GET /public/a HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431"},
	}
}

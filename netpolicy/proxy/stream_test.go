package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

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

package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// A stream lives as long as something moves, however long that is, and ends with
// a record and an error once nothing does (corpus D61, D94).
func TestStreamIdle(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.srv.Limits.Idle = 2 * time.Second
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				for range 6 {
					_, _ = io.WriteString(rw, "data: beat\n\n")
					_ = http.NewResponseController(rw).Flush()
					time.Sleep(500 * time.Millisecond) // what is tested is the time itself
				}
				<-r.Context().Done()
			}))
			resp := getWithin(t, w.client("api.example.org", 443, h2), "https://api.example.org/public/events")
			defer func() { _ = resp.Body.Close() }()
			began := time.Now()
			b, err := io.ReadAll(resp.Body)
			if got := strings.Count(string(b), "beat"); got != 6 || time.Since(began) < 2500*time.Millisecond {
				t.Errorf("got %d events in %v, want all 6", got, time.Since(began))
			}
			if err == nil {
				t.Error("got a whole answer, want an error")
			}
			w.wantEvent("cut for idleness", func(e audit.Event) bool {
				return e.Kind == audit.KindUpstream && strings.Contains(e.Reason, "nothing moved") && e.Rule == "api"
			})
		})
	}
}

// An answer that its server breaks off is on record; one whose client goes away
// is not the server's fault.
func TestBrokenAnswerIsRecorded(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "part")
		_ = http.NewResponseController(rw).Flush()
		if r.URL.Path == "/public/broken" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}))
	broken := func(e audit.Event) bool { return strings.Contains(e.Reason, "broke off") }
	client := w.client("api.example.org", 443, true)
	resp := getWithin(t, client, "https://api.example.org/public/left")
	_, _ = io.ReadFull(resp.Body, make([]byte, 4))
	_ = resp.Body.Close()
	resp = getWithin(t, client, "https://api.example.org/public/broken")
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %q as a whole answer, want an error", b)
	}
	_ = resp.Body.Close()
	_ = w.srv.Close()
	n := 0
	for _, e := range w.events() {
		if broken(e) {
			n++
			if e.Path != "/public/broken" {
				t.Errorf("got an event about %q", e.Path)
			}
		}
	}
	if n != 1 {
		t.Errorf("got %d events, want 1", n)
	}
}

// More answers that have two readings (corpus D50): the client gets one.
func TestAmbiguousUpstream(t *testing.T) {
	cases := []struct{ name, method, answer, want, never string }{
		{"length and chunked", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "200", "Content-Length: 3"},
		{"chunked twice", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "502", "ok"},
		{"unknown transfer encoding", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "502", "ok"},
		{"negative length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "502", "ok"},
		{"body for HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "200", "evil"},
		{"body on 304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil", "304", "evil"},
		{"field without a name", "GET", "HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\nok", "502", "ok"},
		{"field with a space in its name", "GET", "HTTP/1.1 200 OK\r\nX Y: x\r\nContent-Length: 2\r\n\r\nok", "502", "ok"},
		{"chunk size that overflows", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok\r\n0\r\n\r\n", "200", "\r\n0\r\n\r\n"},
		{"head of a megabyte", "GET", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "502", "xxxx"},
		{"answer without an end of its head", "GET", "HTTP/1.1 200 OK\r\nX: 1\r\n", "502", "X: 1"},
		{"second answer behind the first", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "200", "evil"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("api.example.org", 80, func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			got := w.raw("api.example.org", 80, "", c.method+" /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n")
			if line := statusLine(got); !strings.Contains(line, c.want) {
				t.Errorf("got %q, want %s", line, c.want)
			}
			if strings.Contains(got, c.never) {
				t.Errorf("got %q, want no %q in it", got, c.never)
			}
		})
	}
}

// A server that sends 100 late, twice or for nothing changes no answer, and one
// that never sends it is not waited for: the decision is the proxy's (corpus D49).
func TestContinueOfTheServer(t *testing.T) {
	const done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, answer := range map[string]string{
		"never":       done,
		"once":        "HTTP/1.1 100 Continue\r\n\r\n" + done,
		"again":       strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3) + done,
		"early hints": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + done,
	} {
		for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
			t.Run(name+" "+expect, func(t *testing.T) {
				w := newWorld(t, testNetwork())
				w.serveRaw("api.example.org", 80, func(conn net.Conn) {
					r, err := http.ReadRequest(bufio.NewReader(conn))
					if err != nil {
						return
					}
					if got := r.Header.Get("Expect"); got != "" {
						t.Errorf("server: got Expect %q, want none", got)
					}
					if b, err := io.ReadAll(r.Body); err == nil && string(b) == "hi" {
						_, _ = io.WriteString(conn, answer)
					}
				})
				got := w.raw("api.example.org", 80, "", "POST /public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nContent-Length: 2\r\n"+expect+"\r\nhi")
				got = strings.TrimPrefix(got, "HTTP/1.1 100 Continue\r\n\r\n") // ours
				if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\n\r\nok") || strings.Contains(got, "HTTP/1.1 1") {
					t.Errorf("got %q, want one answer", got)
				}
			})
		}
	}
}

// A server that speaks HTTP/2 outside of its rules gets its requests failed, and
// keeps no memory (corpus D50, D59).
func TestMalformedHTTP2Upstream(t *testing.T) {
	head := func(fields ...string) []byte {
		var buf bytes.Buffer
		return bytes.Clone(block(t, hpack.NewEncoder(&buf), &buf, fields...))
	}
	endless := func(f *http2.Framer, frame func() error) error {
		for range 100_000 {
			if err := frame(); err != nil {
				return err
			}
		}
		return errors.New("the proxy read 100,000 frames")
	}
	send := func(f *http2.Framer, b []byte, last bool) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndHeaders: true, EndStream: last})
	}
	cases := []struct {
		name  string
		serve func(f *http2.Framer) error
		want  int // 0: the answer breaks off
	}{
		{"control", func(f *http2.Framer) error { return send(f, head(":status", "200"), true) }, 200},
		{"101, which HTTP/2 does not have, then an answer", func(f *http2.Framer) error {
			return errors.Join(send(f, head(":status", "101"), false), send(f, head(":status", "200"), true))
		}, 200},
		{"status that is none", func(f *http2.Framer) error { return send(f, head(":status", "2000"), true) }, 502},
		{"no status", func(f *http2.Framer) error { return send(f, head("x-a", "1"), true) }, 502},
		{"CR LF in a field", func(f *http2.Framer) error { return send(f, head(":status", "200", "x-a", "1\r\nset-cookie: a"), true) }, 502},
		{"1xx without end", func(f *http2.Framer) error {
			return endless(f, func() error { return send(f, head(":status", "103", "x-a", strings.Repeat("x", 1000)), false) })
		}, 502},
		{"continuation without end", func(f *http2.Framer) error {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head(":status", "200")})
			return endless(f, func() error { return f.WriteContinuation(1, false, head("x-a", strings.Repeat("x", 8000))) })
		}, 502},
		{"reset", func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeInternal) }, 502},
		{"going away", func(f *http2.Framer) error { return f.WriteGoAway(0, http2.ErrCodeInternal, nil) }, 502},
		{"longer than its length", func(f *http2.Framer) error {
			_ = send(f, head(":status", "200", "content-length", "2"), false)
			return f.WriteData(1, true, []byte("long"))
		}, 0},
		{"shorter than its length", func(f *http2.Framer) error {
			_ = send(f, head(":status", "200", "content-length", "9"), false)
			return f.WriteData(1, true, []byte("short"))
		}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serveRaw("api.example.org", 443, func(conn net.Conn) {
				config := w.serverTLS()
				config.NextProtos = []string{"h2"}
				tc := tls.Server(conn, config)
				_ = tc.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := io.ReadFull(tc, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				f := http2.NewFramer(tc, tc)
				_ = f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					if _, ok := frame.(*http2.HeadersFrame); ok {
						break
					}
				}
				if err := c.serve(f); err != nil && strings.Contains(err.Error(), "the proxy read") {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, tc)
			})
			before := heapBytes()
			client := w.client("api.example.org", 443, true)
			client.Timeout = 5 * time.Second
			resp, err := client.Get("https://api.example.org/public/a")
			if err != nil {
				resp = &http.Response{Body: http.NoBody}
			}
			b, readErr := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			err = errors.Join(err, readErr)
			if c.want == 0 && err == nil || c.want != 0 && resp.StatusCode != c.want {
				t.Errorf("got %d %q %v, want %d (0: an answer that breaks off)", resp.StatusCode, b, err, c.want)
			}
			if grown := int64(heapBytes()) - int64(before); grown > 32<<20 {
				t.Errorf("memory: got %d MiB more, want no more than 32", grown>>20)
			}
			w.wantNoFault()
		})
	}
}

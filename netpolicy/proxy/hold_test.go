package proxy

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// An answer that its client does not read stays at the server, so that asking
// for much and reading nothing does not fill the proxy's memory, which no limit
// of the sandbox covers.
func TestUnreadAnswerIsNotHeld(t *testing.T) {
	const size = 16 << 20
	for _, read := range []bool{true, false} {
		t.Run(map[bool]string{true: "control: read", false: "not read"}[read], func(t *testing.T) {
			w := newWorld(t, testNetwork())
			written := make(chan int, 1)
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				block, n := make([]byte, 32<<10), 0
				for n < size {
					m, err := rw.Write(block)
					n += m
					if err != nil {
						break
					}
				}
				written <- n
			}))
			client := w.client("api.example.org", 443, true)
			client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
			resp, err := client.Get("https://api.example.org/public/a")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if read {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			if got := <-written; read && got != size || !read && got > 2<<20 {
				t.Errorf("server could write %d bytes, want %d when read and at most 2 MiB when not", got, size)
			}
		})
	}
}

// The number of requests at a time is bounded over all connections.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.Limits.Requests = 3
	release := make(chan struct{})
	w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	var waiting []*http.Response
	get := func() *http.Response {
		return getWithin(t, w.client("api.example.org", 443, true), "https://api.example.org/public/a")
	}
	for range 3 {
		waiting = append(waiting, get())
	}
	over := get()
	if body := readBody(t, over); over.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("fourth request: got %d %s, want 503", over.StatusCode, body)
	}
	close(release)
	for _, resp := range waiting {
		readBody(t, resp)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("got %d, want 200", resp.StatusCode)
		}
	}
}

// The head of a stream arrives before its first piece.
func TestStreamBeginsWithItsHead(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "1.1", true: "2"}[h2], func(t *testing.T) {
			w := newWorld(t, testNetwork())
			release := make(chan struct{})
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(rw).Flush()
				<-release
				_, _ = io.WriteString(rw, "event")
			}))
			t.Cleanup(func() {
				select {
				case <-release:
				default:
					close(release)
				}
			})
			resp := getWithin(t, w.client("api.example.org", 443, h2), "https://api.example.org/public/a")
			close(release)
			if got := readBody(t, resp); got != "event" {
				t.Errorf("got %q, want %q", got, "event")
			}
		})
	}
}

// getWithin fails when the head of the answer does not come within 5 s.
func getWithin(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	timer := time.AfterFunc(5*time.Second, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	timer.Stop()
	return resp
}

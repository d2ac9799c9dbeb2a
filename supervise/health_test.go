package supervise

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAsk(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	release := make(chan struct{})
	mux := http.NewServeMux()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	mux.HandleFunc("/ok", status(200))
	mux.HandleFunc("/empty", status(204))
	mux.HandleFunc("/busy", status(503))
	mux.HandleFunc("/missing", status(404))
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	mux.HandleFunc("/hangs", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/heads", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 2*maxAnswer))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	t.Setenv("HTTP_PROXY", other.URL)
	dial := func(ctx context.Context, _ int) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	for path, healthy := range map[string]bool{
		"/ok": true, "/empty": true, "/away": true, "/endless": true, "/busy": false, "/missing": false, "/hangs": false, "/heads": false,
	} {
		t.Run(path, func(t *testing.T) {
			limit := 30 * time.Second
			if path == "/hangs" {
				limit = 50 * time.Millisecond
			}
			err := Check{URL: "http://127.0.0.1:8642" + path, Port: 8642, Timeout: limit}.Ask(t.Context(), dial)
			if (err == nil) != healthy {
				t.Errorf("got %v, want healthy: %v", err, healthy)
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("got %d requests elsewhere, want none", n)
	}
}

// A body without an end takes the time of the answer and nothing else.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go func() {
			if _, err := there.Read(make([]byte, 4096)); err == nil {
				_, _ = there.Write([]byte("HTTP/1.1 200 OK\r\n\r\nx"))
			}
		}()
		began := time.Now()
		err := Check{URL: "http://127.0.0.1/", Port: 80, Timeout: 5 * time.Second}.Ask(t.Context(), func(context.Context, int) (net.Conn, error) { return here, nil })
		if took := time.Since(began); err != nil || took > 5*time.Second {
			t.Errorf("got %v after %v, want it healthy within 5s", err, took)
		}
	})
}

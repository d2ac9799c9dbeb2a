package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

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

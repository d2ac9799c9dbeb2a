package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const (
	liveSecret  = "ghp_Zk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8T"
	placeholder = "ghp_Ab1cDe2FgH3iJk4LmNoPAb1cDe2FgH3iJk4L"
)

// heard is what the servers of a secret world were sent.
type heard struct {
	mu       sync.Mutex
	requests []heardRequest
}

type heardRequest struct {
	host, target, body string
	header, trailer    http.Header
	whole              bool // the body ended as it should
}

func (h *heard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	h.mu.Lock()
	h.requests = append(h.requests, heardRequest{r.Host, r.RequestURI, string(b), r.Header.Clone(), r.Trailer.Clone(), err == nil})
	h.mu.Unlock()
	_, _ = io.WriteString(w, "ok")
}

func (h *heard) all() []heardRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]heardRequest(nil), h.requests...)
}

// holds tells whether any server got a text in any part of a request.
func (h *heard) holds(text string) bool {
	for _, r := range h.all() {
		if strings.Contains(fmt.Sprint(r.host, r.target, r.body, r.header, r.trailer), text) {
			return true
		}
	}
	return false
}

// secretWorld has one credential for bound.example.org, a second host that is
// allowed without one, and plain HTTP for both.
func secretWorld(t testing.TB, spec policy.Credential) (*world, *heard) {
	t.Helper()
	rules := []policy.Rule{
		{Name: "bound", Host: "bound.example.org", Credential: "gh"},
		{Name: "other", Host: "other.example.org", TLS: policy.TLSInspect},
		{Name: "wild", Host: "*.wild.example.org", TLS: policy.TLSInspect},
	}
	spec.Hosts = []policy.Name{{Text: "bound.example.org"}}
	if spec.Attach == "" {
		spec.Attach = "bearer"
	}
	w := newWorld(t, policy.Network{Rules: rules})
	vault, err := credential.New(map[string]policy.Credential{"gh": spec}, map[string]credential.Values{"gh": {Secret: liveSecret, Placeholder: placeholder}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Rules.Credentials = vault
	h := &heard{}
	for _, host := range []string{"bound.example.org", "other.example.org", "x.wild.example.org"} {
		w.serve(host, 443, h)
		w.serve(host, 80, h)
	}
	return w, h
}

// do sends a request and gives its status and body.
func do(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, readBody(t, resp)
}

func newRequest(t *testing.T, method, address string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAttachEachWay(t *testing.T) {
	for name, c := range map[string]struct {
		spec policy.Credential
		want func(heardRequest) string
		is   string
	}{
		"bearer": {policy.Credential{Attach: "bearer"}, func(r heardRequest) string { return strings.Join(r.header["Authorization"], "|") }, "Bearer " + liveSecret},
		"basic": {
			policy.Credential{Attach: "basic", User: "me"},
			func(r heardRequest) string { return strings.Join(r.header["Authorization"], "|") },
			"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+liveSecret)),
		},
		"header": {policy.Credential{Attach: "header", Header: "X-Api-Key", Prefix: "key "}, func(r heardRequest) string { return strings.Join(r.header["X-Api-Key"], "|") }, "key " + liveSecret},
		"query":  {policy.Credential{Attach: "query", Query: "key"}, func(r heardRequest) string { return r.target }, "/a?x=1&key=" + liveSecret},
		"json":   {policy.Credential{Attach: "json", JSON: "/auth/key"}, func(r heardRequest) string { return r.body }, `{"auth":{"key":"` + liveSecret + `"},"n":1}`},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2 %v", name, h2), func(t *testing.T) {
				w, h := secretWorld(t, c.spec)
				address := "https://bound.example.org/a?x=1"
				if c.spec.Attach == "query" {
					address += "&KEY=" + placeholder + "&k%65y=mine"
				}
				r := newRequest(t, "POST", address, strings.NewReader(`{"auth":{"key":"`+placeholder+`"},"n":1}`))
				r.Header.Set("Content-Type", "application/json")
				if c.spec.Attach != "json" {
					r = newRequest(t, "GET", address, nil)
				}
				// D39: none of the client's own arrives.
				r.Header["Authorization"] = []string{"Bearer " + placeholder, "Bearer mine"}
				r.Header["X-Api-Key"] = []string{placeholder}
				r.Header["X_api_key"] = []string{placeholder}
				r.Header["Api-Key"] = []string{placeholder}
				r.Header["X-Goog-Api-Key"] = []string{placeholder}
				status, body := do(t, w.client("bound.example.org", 443, h2), r)
				if status != 200 {
					t.Fatalf("got %d %s, want 200", status, body)
				}
				if got := c.want(h.all()[0]); got != c.is {
					t.Errorf("got %q, want %q", got, c.is)
				}
				if h.holds(placeholder) || h.holds("mine") {
					t.Errorf("got the client's copy in %+v", h.all())
				}
				w.wantEvent("an allowed request with the credential's name", func(e audit.Event) bool {
					return e.Kind == audit.KindRequest && e.Verdict == audit.Allow && e.Credential == "gh"
				})
				w.wantClean()
			})
		}
	}
}

// wantClean fails when the record holds the secret or the placeholder.
func (w *world) wantClean() {
	w.t.Helper()
	b, err := os.ReadFile(w.auditFile)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, text := range []string{liveSecret, placeholder} {
		if bytes.Contains(b, []byte(text)) {
			w.t.Errorf("audit: got %s in %s", text, b)
		}
	}
}

// TestNothingLeaves sends the placeholder and the secret in every position to a
// host without the credential, and elsewhere than in the declared place to the
// one with it. A harmless text of the same length passes in each.
func TestNothingLeaves(t *testing.T) {
	declared := map[string]bool{"bearer": true, "basic": true}
	for _, h2 := range []bool{false, true} {
		w, h := secretWorld(t, policy.Credential{})
		for _, host := range []string{"other.example.org", "bound.example.org"} {
			c := w.client(host, 443, h2)
			for name, build := range positions {
				for what, text := range map[string]string{"placeholder": placeholder, "secret": liveSecret, "control": "ghp_nothingnothingnothingnothingnothing0"} {
					status, body := do(t, c, build(t, host, text))
					want := 403
					if what == "control" || declared[name] && host == "bound.example.org" {
						want = 200
					}
					// Of a large body the answer can get lost while it is sent.
					cut := want == 403 && status == 0 && strings.Contains(name, "large")
					if status != want && !cut {
						t.Errorf("h2 %v, %s to %s, %s: got %d %s, want %d", h2, what, host, name, status, body, want)
					}
				}
			}
		}
		if h.holds(placeholder) {
			t.Error("got the placeholder at a server, want it nowhere")
		}
		for _, r := range h.all() {
			all := fmt.Sprint(r.target, r.body, r.trailer)
			if r.host == "other.example.org" {
				all += fmt.Sprint(r.header)
			}
			if strings.Contains(all, liveSecret) {
				t.Errorf("got the secret at %s, want it in its field alone", r.host)
			}
			if !r.whole && strings.Contains(r.body, "nothingnothing") {
				t.Errorf("control to %s: got it cut", r.host)
			}
			if r.whole && len(r.body) >= 2*searchAhead && len(r.trailer) == 0 && !strings.Contains(r.body, "nothing") {
				t.Errorf("got a large body as a whole at %s, want it cut", r.host)
			}
		}
		w.wantEvent("a secret that was about to leave", func(e audit.Event) bool {
			return e.Kind == audit.KindSecret && e.Verdict == audit.Deny && e.Credential == "gh" && e.Host == "other.example.org"
		})
		w.wantNoFault()
		w.wantClean()
	}
}

// TestEncodingsLeaving has each spelling in a field, in the query and in a body.
func TestEncodingsLeaving(t *testing.T) {
	escape := func(format string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				fmt.Fprintf(&b, format, s[i])
			}
			return b.String()
		}
	}
	w, h := secretWorld(t, policy.Credential{})
	c := w.client("other.example.org", 443, false)
	for name, encode := range map[string]func(string) string{
		"upper case": strings.ToUpper, "lower case": strings.ToLower,
		"base64":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x:" + s)) },
		"base64 url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("xy" + s)) },
		"hex":        func(s string) string { return hex.EncodeToString([]byte(s)) },
		"percent":    escape("%%%02x"), "percent twice": escape("%%25%02x"), "unicode": escape(`\u%04x`),
	} {
		text := encode(placeholder)
		for where, r := range map[string]*http.Request{
			"field": with(newRequest(t, "GET", "https://other.example.org/", nil), "X-A", text),
			"query": {Method: "GET", Host: "other.example.org", Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: "other.example.org", Path: "/", RawQuery: "a=" + strings.ReplaceAll(text, `\`, "%5c")}},
			"body":  newRequest(t, "POST", "https://other.example.org/", strings.NewReader(`{"a":"`+text+`"}`)),
		} {
			if status, body := do(t, c, r); status != 403 {
				t.Errorf("%s in %s: got %d %s, want 403", name, where, status, body)
			}
		}
	}
	if n := len(h.all()); n != 0 {
		t.Errorf("got %d requests at the server, want none", n)
	}
	for _, coding := range []string{"br", "zstd", "gzip, gzip"} {
		r := with(newRequest(t, "POST", "https://other.example.org/", strings.NewReader("?")), "Content-Encoding", coding)
		if status, body := do(t, c, r); status != 403 || !strings.Contains(body, "cannot be searched") {
			t.Errorf("%s: got %d %s, want it refused", coding, status, body)
		}
	}
	w.wantClean()
}

// TestHostThatHoldsTheSecret: a wildcard lets the agent choose a name.
func TestHostThatHoldsTheSecret(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	host := strings.ReplaceAll(strings.ToLower(placeholder), "_", "-") + ".wild.example.org"
	w.publish(host, 443, "127.0.0.1:1")
	if status, body := do(t, w.client(host, 443, false), newRequest(t, "GET", "https://"+host+"/", nil)); status != 403 || len(h.all()) != 0 {
		t.Errorf("got %d %s, want 403", status, body)
	}
	if lookups, _ := w.seen(); len(lookups) != 0 {
		t.Errorf("got lookups of %v, want none", lookups)
	}
	if status, body := do(t, w.client("x.wild.example.org", 443, false), newRequest(t, "GET", "https://x.wild.example.org/", nil)); status != 200 {
		t.Errorf("control: got %d %s, want 200", status, body)
	}
}

// TestNeverOverPlainHTTP is D66, and D75 of what is not verified.
func TestNeverOverPlainHTTP(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	status, body := do(t, w.client("bound.example.org", 80, false), newRequest(t, "GET", "http://bound.example.org/", nil))
	if status != 403 || !strings.Contains(body, "TLS") || len(h.all()) != 0 {
		t.Errorf("plain HTTP: got %d %s, want 403", status, body)
	}
	// A server that cannot prove its name gets nothing, whatever Host says.
	stranger, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.outside = stranger
	if status, body = do(t, w.client("bound.example.org", 443, false), newRequest(t, "GET", "https://bound.example.org/", nil)); status != 502 || len(h.all()) != 0 {
		t.Errorf("stranger: got %d %s, want 502 and nothing sent", status, body)
	}
}

// TestRedirectTakesNothingAlong is D63.
func TestRedirectTakesNothingAlong(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(httptest.NewRecorder(), r)
		http.Redirect(rw, r, "https://other.example.org/next", http.StatusFound)
	}))
	if status, _ := do(t, w.client("bound.example.org", 443, false), newRequest(t, "GET", "https://bound.example.org/", nil)); status == 0 {
		t.Fatal("got no answer")
	}
	do(t, w.client("other.example.org", 443, false), newRequest(t, "GET", "https://other.example.org/next", nil))
	for _, r := range h.all() {
		if r.host == "other.example.org" && len(r.header["Authorization"]) > 0 {
			t.Errorf("got %v at the second host, want nothing", r.header["Authorization"])
		}
	}
}

// TestNothingOfOursGoesOut is D74.
func TestNothingOfOursGoesOut(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	r := newRequest(t, "GET", "https://bound.example.org/", nil)
	for _, name := range []string{"Proxy-Authorization", "Via", "X-Forwarded-For", "Forwarded"} {
		r.Header.Set(name, "mine")
	}
	do(t, w.client("bound.example.org", 443, false), r)
	for _, name := range []string{"Proxy-Authorization", "Via", "X-Forwarded-For", "Forwarded", "X-Hermes-Wrap-Decision"} {
		if got := h.all()[0].header[name]; len(got) > 0 {
			t.Errorf("%s: got %v, want nothing", name, got)
		}
	}
}

func TestCredentialMustExist(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	w.srv.Rules.Credentials = nil
	if status, body := do(t, w.client("bound.example.org", 443, false), newRequest(t, "GET", "https://bound.example.org/", nil)); status != 403 || len(h.all()) != 0 {
		t.Errorf("got %d %s, want 403: never without the credential", status, body)
	}
}

func TestTrailersOfACredential(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{Attach: "header", Header: "X-Key"})
	for _, name := range []string{"X-Api-Key", "X-Key", "X_key"} {
		got := w.raw("bound.example.org", 443, "bound.example.org", "POST / HTTP/1.1\r\nHost: bound.example.org\r\nTransfer-Encoding: chunked\r\nTrailer: "+name+"\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n"+name+": mine\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("%s: got %q, want 403", name, statusLine(got))
		}
	}
	if h.holds("mine") {
		t.Error("got the trailer at the server")
	}
}

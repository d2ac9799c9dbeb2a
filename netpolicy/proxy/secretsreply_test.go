package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestEchoIsScrubbed is D36: the server repeats what it was sent.
func TestEchoIsScrubbed(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		rw.Header().Set("X-Echo", auth)
		rw.Header().Set("Trailer", "X-End")
		if r.URL.Path == "/gzip" {
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			_, _ = io.WriteString(z, "auth: "+auth)
			_ = z.Close()
			return
		}
		if r.URL.Path == "/br" {
			rw.Header().Set("Content-Encoding", "br")
		}
		text := fmt.Sprintf(`{"accept":%q,"auth":%q,"b64":%q}`, r.Header.Get("Accept-Encoding"), auth, base64.StdEncoding.EncodeToString([]byte(auth)))
		half := strings.Index(text, liveSecret) + 10
		_, _ = io.WriteString(rw, text[:half])
		rw.(http.Flusher).Flush()
		_, _ = io.WriteString(rw, text[half:])
		rw.Header().Set("X-End", auth)
	}))
	for _, h2 := range []bool{false, true} {
		c := w.client("bound.example.org", 443, h2)
		c.Transport.(*http.Transport).DisableCompression = true
		for _, path := range []string{"/", "/gzip"} {
			r := with(newRequest(t, "GET", "https://bound.example.org"+path, nil), "Accept-Encoding", "gzip, br")
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body := readBody(t, resp)
			all := fmt.Sprint(body, resp.Header, resp.Trailer)
			if strings.Contains(all, liveSecret) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("Bearer " + liveSecret))[20:40]) {
				t.Errorf("h2 %v, %s: got the secret in %s", h2, path, all)
			}
			if !strings.Contains(body, placeholder) || resp.Header.Get("X-Echo") != "Bearer "+placeholder {
				t.Errorf("h2 %v, %s: got %s and %v, want the placeholder in place of the secret", h2, path, body, resp.Header)
			}
			if path == "/" && (resp.Trailer.Get("X-End") != "Bearer "+placeholder || !strings.Contains(body, `"accept":"identity"`)) {
				t.Errorf("h2 %v: got trailer %v and body %s, want the placeholder and no packing asked for", h2, resp.Trailer, body)
			}
		}
		if status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/br", nil)); status != 403 || strings.Contains(body, "auth") {
			t.Errorf("h2 %v, br: got %d %s, want it refused", h2, status, body)
		}
	}
	w.wantEvent("a secret that came in", func(e audit.Event) bool { return e.Kind == audit.KindSecret && e.Verdict == "" && e.Credential == "gh" })
	w.wantClean()
	w.wantNoFault()
}

// TestEscapedEchoIsCut: what cannot be replaced at the same length does not pass.
func TestEscapedEchoIsCut(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var b strings.Builder
		for _, c := range []byte(r.Header.Get("Authorization")) {
			fmt.Fprintf(&b, `\u%04x`, c)
		}
		if r.URL.Path == "/field" {
			rw.Header().Set("X-Echo", b.String())
		} else {
			_, _ = io.WriteString(rw, b.String())
		}
	}))
	c := w.client("bound.example.org", 443, false)
	if status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/field", nil)); status != 502 {
		t.Errorf("field: got %d %s, want 502", status, body)
	}
	resp, err := c.Do(newRequest(t, "GET", "https://bound.example.org/", nil))
	if err == nil {
		b, readErr := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if readErr == nil || strings.Contains(string(b), fmt.Sprintf(`\u%04x`, liveSecret[len(liveSecret)-1])+"\"") {
			t.Errorf("body: got %q, want it cut", b)
		}
	}
	w.wantClean()
}

// TestEventsAreNotHeld: every event passes before the next is sent.
func TestEventsAreNotHeld(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	next := make(chan struct{})
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			_, _ = fmt.Fprintf(rw, "data: %d %s\n\n", i, r.Header.Get("Authorization"))
			rw.(http.Flusher).Flush()
			<-next
		}
	}))
	for _, h2 := range []bool{false, true} {
		resp, err := w.client("bound.example.org", 443, h2).Do(newRequest(t, "GET", "https://bound.example.org/", nil))
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		for i := range 5 {
			line, err := in.ReadString('\n')
			if want := fmt.Sprintf("data: %d Bearer %s\n", i, placeholder); err != nil || line != want {
				t.Fatalf("h2 %v: got %q, %v, want %q", h2, line, err, want)
			}
			_, _ = in.ReadString('\n')
			next <- struct{}{}
		}
		_ = resp.Body.Close()
	}
}

// TestRotation: a 401 asks for the source once, and the next request after the
// reload has the new secret.
func TestRotation(t *testing.T) {
	const second = "ghp_SecondSecretSecondSecretSecondSecret"
	w, _ := secretWorld(t, policy.Credential{})
	asked := make(chan string, 10)
	w.srv.Refresh = func(name string) { asked <- name }
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+second {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	c := w.client("bound.example.org", 443, false)
	for range 3 {
		if status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/", nil)); status != 401 {
			t.Fatalf("got %d %s, want 401", status, body)
		}
	}
	if got := <-asked; got != "gh" || len(asked) != 0 {
		t.Errorf("got %q and %d more, want gh once", got, len(asked))
	}
	vault, err := credential.New(map[string]policy.Credential{"gh": {Attach: "bearer", Hosts: []policy.Name{{Text: "bound.example.org"}}}},
		map[string]credential.Values{"gh": {Secret: second, Placeholder: placeholder}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Reload(Rules{Engine: w.srv.engine(), Credentials: vault})
	if status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/", nil)); status != 200 {
		t.Errorf("got %d %s, want 200", status, body)
	}
}

// oauthWorld has a token endpoint that counts and turns refresh tokens over.
type oauthWorld struct {
	*world
	mu      sync.Mutex
	calls   int
	fail    string // an error code to answer with
	refused string // the access token that the server does not take
	wait    chan struct{}
}

func newOAuthWorld(t *testing.T) (*oauthWorld, *http.Client) {
	t.Helper()
	spec := policy.Credential{
		Attach: "bearer", Hosts: []policy.Name{{Text: "bound.example.org"}},
		OAuth: &policy.OAuth{TokenURL: "https://login.example.org/token", ClientID: "me", Scope: "a b", ClientSecret: &policy.CredentialSource{Env: "X"}},
	}
	w := newWorld(t, policy.Network{Rules: []policy.Rule{
		{Name: "bound", Host: "bound.example.org", Credential: "gh"}, {Name: "login", Host: "login.example.org", TLS: policy.TLSInspect},
	}})
	vault, err := credential.New(map[string]policy.Credential{"gh": spec}, map[string]credential.Values{
		"gh": {Secret: liveSecret, Placeholder: placeholder, ClientSecret: "client-secret-0123"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Rules.Credentials = vault
	o := &oauthWorld{world: w}
	w.serve("login.example.org", 443, http.HandlerFunc(o.token))
	w.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		auth := r.Header.Get("Authorization")
		if auth == "Bearer "+o.refused || !strings.HasPrefix(auth, "Bearer access-token-") {
			rw.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(rw, auth)
	}))
	return o, w.client("bound.example.org", 443, false)
}

func (o *oauthWorld) token(rw http.ResponseWriter, r *http.Request) {
	if o.wait != nil {
		<-o.wait
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	want := liveSecret
	if o.calls > 0 {
		want = fmt.Sprintf("refresh-token-%04d", o.calls)
	}
	id, secret, _ := r.BasicAuth()
	rw.Header().Set("Content-Type", "application/json")
	switch {
	case o.fail != "":
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(rw, `{"error":%q,"error_description":"%s is bad"}`, o.fail, r.FormValue("refresh_token"))
	case r.Method != "POST" || id != "me" || secret != "client-secret-0123" || r.FormValue("grant_type") != "refresh_token" || r.FormValue("scope") != "a b" || r.FormValue("refresh_token") != want:
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(rw, `{"error":"invalid_grant"}`)
	default:
		o.calls++
		_, _ = fmt.Fprintf(rw, `{"access_token":"access-token-%04d","token_type":"Bearer","expires_in":600,"refresh_token":"refresh-token-%04d"}`, o.calls, o.calls)
	}
}

func TestOAuth(t *testing.T) {
	o, c := newOAuthWorld(t)
	now := time.Now()
	var clock sync.Mutex
	o.srv.Now = func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		return now
	}
	get := func() (int, string) { return do(t, c, newRequest(t, "GET", "https://bound.example.org/", nil)) }
	o.wait = make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, body := get(); status != 200 || strings.Contains(body, "access-token") {
				t.Errorf("got %d %s, want 200 and the token taken out of the echo", status, body)
			}
		})
	}
	close(o.wait)
	wg.Wait()
	if o.calls != 1 {
		t.Errorf("got %d calls of the endpoint, want 1 for all", o.calls)
	}
	// It is used until shortly before its end, then the new refresh token counts.
	clock.Lock()
	now = now.Add(550 * time.Second)
	clock.Unlock()
	if status, body := get(); status != 200 || o.calls != 2 {
		t.Errorf("got %d %s after %d calls, want 200 after 2", status, body, o.calls)
	}
	// A server that does not take it gets another the next time.
	o.refused = "access-token-0002"
	if status, _ := get(); status != 401 {
		t.Errorf("got %d, want 401", status)
	}
	if status, body := get(); status != 200 || o.calls != 3 {
		t.Errorf("got %d %s after %d calls, want 200 after 3", status, body, o.calls)
	}
	// What was learnt must not leave either.
	for _, text := range []string{"access-token-0003", "refresh-token-0003", "client-secret-0123"} {
		if status, _ := do(t, c, with(newRequest(t, "GET", "https://bound.example.org/", nil), "X-A", text)); status != 403 {
			t.Errorf("%s: got %d, want 403", text, status)
		}
	}
	// The endpoint is the proxy's alone.
	login := o.client("login.example.org", 443, false)
	for path, want := range map[string]int{"/token": 403, "/Token": 403, "/token/": 403, "/token?x=1": 403, "/other": 400} {
		if status, body := do(t, login, newRequest(t, "POST", "https://login.example.org"+path, strings.NewReader("grant_type=refresh_token"))); status != want {
			t.Errorf("%s: got %d %s, want %d", path, status, body, want)
		}
	}
	o.wantClean()
	o.wantNoFault()
}

func TestOAuthFails(t *testing.T) {
	o, c := newOAuthWorld(t)
	asked := make(chan string, 10)
	o.srv.Refresh = func(name string) { asked <- name }
	o.fail = "invalid_grant"
	status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/", nil))
	if status != 502 || !strings.Contains(body, "invalid_grant") || strings.Contains(body, liveSecret) {
		t.Errorf("got %d %s, want 502 and the code alone", status, body)
	}
	if got := <-asked; got != "gh" {
		t.Errorf("got %q, want the source asked for", got)
	}
	o.wantClean()
	for name, answer := range map[string]string{
		"no token": `{"expires_in":1}`, "twice": `{"access_token":"aaaaaaaaaa","access_token":"bbbbbbbbbb"}`, "line end": `{"access_token":"aaaaaaaaaa\r\nX: y"}`,
		"short": `{"access_token":"a"}`, "another case": `{"Access_Token":"aaaaaaaaaa"}`, "not JSON": `<html>`, "negative": `{"access_token":"aaaaaaaaaa","expires_in":-1}`,
	} {
		if got, err := readIssued(200, []byte(answer)); err == nil {
			t.Errorf("%s: got %v, want an error", name, got.lasts)
		}
	}
	if _, err := readIssued(400, []byte(`{"error":"`+liveSecret+`"}`)); err == nil || strings.Contains(err.Error(), "ghp") {
		t.Errorf("got %v, want no text of the answer", err)
	}
}

// TestUploadIsNotHeld: a stream in both directions goes on while it is searched.
func TestUploadIsNotHeld(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	w.serve("other.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex()
		rw.WriteHeader(200)
		rw.(http.Flusher).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = rw.Write(bytes.ToUpper(buf[:n]))
			rw.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}))
	pr, pw := io.Pipe()
	resp, err := w.client("other.example.org", 443, true).Do(newRequest(t, "POST", "https://other.example.org/", pr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for _, piece := range []string{"one", "g", "ghp_", "x"} {
		if _, err := io.WriteString(pw, piece); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len(piece))
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != strings.ToUpper(piece) {
			t.Fatalf("got %q, %v, want %q", buf, err, strings.ToUpper(piece))
		}
	}
	_ = pw.Close()
}

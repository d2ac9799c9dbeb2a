package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestTokensAfterAReload: tokens that were got before other rules were loaded are
// searched for as before.
func TestTokensAfterAReload(t *testing.T) {
	o, c := newOAuthWorld(t)
	get := func(field string) (int, string) {
		r := newRequest(t, "GET", "https://bound.example.org/", nil)
		if field != "" {
			r = with(r, "X-A", field)
		}
		return do(t, c, r)
	}
	if status, body := get(""); status != 200 {
		t.Fatalf("control: got %d %s, want 200", status, body)
	}
	old := o.srv.rules().Credentials
	kept := old.Get("gh")
	fresh := func() *credential.Vault {
		v, err := credential.New(map[string]policy.Credential{"gh": kept.Spec}, map[string]credential.Values{"gh": kept.Values()})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if _, found := fresh().Find("access-token-0001"); found {
		t.Fatal("control: got a token that nobody told the vault")
	}
	o.srv.Reload(Rules{Engine: o.srv.engine(), Credentials: fresh()})
	for _, text := range []string{"access-token-0001", "refresh-token-0001"} {
		if status, body := get(text); status != 403 {
			t.Errorf("%s leaves: got %d %s, want 403", text, status, body)
		}
	}
	o.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "the log: access-token-0001 refresh-token-0001")
	}))
	if status, body := get(""); status != 200 || strings.Contains(body, "token-0001") {
		t.Errorf("got %d %s, want 200 and no token", status, body)
	}
	o.wantNoFault()
}

// TestManyRefusals: a server that takes no token, or an agent that gets refused at
// will, does not make the proxy ask for tokens without end.
func TestManyRefusals(t *testing.T) {
	o, c := newOAuthWorld(t)
	now := time.Now()
	o.srv.Now = func() time.Time { return now }
	o.serve("bound.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnauthorized) }))
	get := func() {
		if status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org/", nil)); status != 401 {
			t.Fatalf("got %d %s, want 401", status, body)
		}
	}
	for range 20 {
		get()
	}
	if o.calls != 2 {
		t.Errorf("got %d tokens for 20 refusals, want 2", o.calls)
	}
	now = now.Add(refreshEvery)
	get()
	get()
	if o.calls != 3 {
		t.Errorf("control: got %d tokens after a while, want 3", o.calls)
	}
}

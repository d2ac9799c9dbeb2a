package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const (
	awsID, awsSecret = "AKIAQQ7WERTYUIOPASDF", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	awsPlaceholder   = "AKIAZZ2XCVBNMLKJHGFD:qQqqqQQqqQQQQ/Q2QQQQQ+qQqQqqQQaaaaaaaaAAAA"
)

func signingWorld(t *testing.T) (*world, *heard) {
	t.Helper()
	w := newWorld(t, policy.Network{Rules: []policy.Rule{
		{Name: "aws", Host: "bound.example.org", Credential: "aws"},
		{Name: "plain", Host: "other.example.org", TLS: policy.TLSInspect},
	}})
	vault, err := credential.New(map[string]policy.Credential{"aws": {Attach: "sigv4", Hosts: []policy.Name{{Text: "bound.example.org"}}}},
		map[string]credential.Values{"aws": {Secret: awsID + ":" + awsSecret + ":session-token-0123456789", Placeholder: awsPlaceholder + ":session-token-abcdefghij"}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Rules.Credentials = vault
	h := &heard{}
	w.serve("bound.example.org", 443, h)
	w.serve("other.example.org", 443, h)
	return w, h
}

// TestSigning: requests that can be signed anew arrive with the real key's
// signature, all others are denied.
func TestSigning(t *testing.T) {
	id, _, _ := strings.Cut(awsPlaceholder, ":")
	auth := "AWS4-HMAC-SHA256 Credential=" + id + "/20251130/eu-central-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		host, query, hash, auth, body string
		want                          int
	}{
		"no hash, body read":           {auth: auth, body: "hello", want: 200},
		"unsigned":                     {auth: auth, hash: "UNSIGNED-PAYLOAD", body: "hello", want: 200},
		"large and unsigned":           {auth: auth, hash: "UNSIGNED-PAYLOAD", body: strings.Repeat("x", 2*searchAhead), want: 200},
		"signed pieces":                {auth: auth, hash: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", body: "hello", want: 403},
		"not signed":                   {want: 403},
		"asymmetric":                   {auth: strings.Replace(auth, "HMAC-SHA256", "ECDSA-P256-SHA256", 1), want: 403},
		"presigned":                    {query: "?X-Amz-Credential=" + id + "&X-Amz-Signature=00", want: 403},
		"placeholder elsewhere":        {auth: auth, body: "my key is " + id, want: 403},
		"signed for another host":      {host: "other.example.org", auth: auth, body: "hello", want: 403},
		"key of nobody, signed anew":   {auth: strings.Replace(auth, id, "AKIANOBODYNOBODYNOBO", 1), body: "hello", want: 200},
		"control, other host unsigned": {host: "other.example.org", body: "hello", want: 200},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, h2 %v", name, h2), func(t *testing.T) {
				w, h := signingWorld(t)
				host := c.host
				if host == "" {
					host = "bound.example.org"
				}
				r := newRequest(t, "POST", "https://"+host+"/queue"+c.query, strings.NewReader(c.body))
				for field, v := range map[string]string{"Authorization": c.auth, "X-Amz-Content-Sha256": c.hash, "X-Amz-Date": "20251130T000000Z"} {
					if v != "" {
						r.Header.Set(field, v)
					}
				}
				if host == "bound.example.org" {
					r.Header.Set("X-Amz-Security-Token", "session-token-abcdefghij")
				}
				status, body := do(t, w.client(host, 443, h2), r)
				if status != c.want {
					t.Fatalf("got %d %s, want %d", status, body, c.want)
				}
				for _, got := range h.all() {
					if c.host == "" && (!strings.Contains(got.header.Get("Authorization"), "Credential="+awsID+"/") || got.header.Get("X-Amz-Security-Token") != "session-token-0123456789" || got.body != c.body) {
						t.Errorf("got %v and %d bytes, want the real key's signature and the body", got.header, len(got.body))
					}
				}
				if h.holds(id) || h.holds(awsSecret) {
					t.Error("got the placeholder or the secret key at the server")
				}
			})
		}
	}
}

// TestAmbiguousCredentials is D72: never without the credential, never with
// either of two.
func TestAmbiguousCredentials(t *testing.T) {
	hosts := []policy.Name{{Text: "bound.example.org"}}
	w := newWorld(t, policy.Network{Rules: []policy.Rule{
		{Name: "all", Host: "bound.example.org", TLS: policy.TLSInspect},
		{Name: "repos", Host: "bound.example.org", Credential: "one", AllowSet: true, Allow: []policy.Match{{Paths: []string{"/one/**", "/both/**"}}}},
		{Name: "more", Host: "bound.example.org", Credential: "two", AllowSet: true, Allow: []policy.Match{{Paths: []string{"/two/**", "/both/**"}}}},
	}})
	vault, err := credential.New(map[string]policy.Credential{"one": {Attach: "bearer", Hosts: hosts}, "two": {Attach: "bearer", Hosts: hosts}},
		map[string]credential.Values{"one": {Secret: "secret-of-one", Placeholder: "placeholder-one"}, "two": {Secret: "secret-of-two", Placeholder: "placeholder-two"}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Rules.Credentials = vault
	h := &heard{}
	w.serve("bound.example.org", 443, h)
	c := w.client("bound.example.org", 443, false)
	for path, want := range map[string]string{"/one/x": "Bearer secret-of-one", "/two/x": "Bearer secret-of-two", "/both/x": "", "/other": "none"} {
		before := len(h.all())
		status, body := do(t, c, newRequest(t, "GET", "https://bound.example.org"+path, nil))
		got := h.all()[before:]
		switch {
		case want == "" && (status != 403 || len(got) != 0):
			t.Errorf("%s: got %d %s, want 403", path, status, body)
		case want == "none" && (len(got) != 1 || got[0].header.Get("Authorization") != ""):
			t.Errorf("%s: got %v, want no credential", path, got)
		case want != "" && want != "none" && (len(got) != 1 || got[0].header.Get("Authorization") != want):
			t.Errorf("%s: got %d %s, want %q", path, status, body, want)
		}
	}
}

// TestPanicShowsNoSecret is D70: a mistake of ours ends up in the record.
func TestPanicShowsNoSecret(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	w.srv.start()
	func() {
		defer w.srv.recovered("test")
		panic(fmt.Sprint("with ", liveSecret, " and ", &http.Request{Header: http.Header{"Authorization": {"Bearer " + liveSecret}}}))
	}()
	w.wantClean()
	if got := w.events(); len(got) != 1 || !strings.Contains(got[0].Reason, "BUG: panic") {
		t.Errorf("got %+v, want the fault", got)
	}
}

// BenchmarkHeadWithCredentials is what searching an ordinary head costs.
func BenchmarkHeadWithCredentials(b *testing.B) {
	w, _ := secretWorld(b, policy.Credential{})
	w.srv.start()
	host, err := netpolicy.ParseHost("bound.example.org")
	if err != nil {
		b.Fatal(err)
	}
	r, err := http.NewRequest("GET", "https://bound.example.org/repos/acme/app/issues?state=open&per_page=100", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"application/json"}, "User-Agent": {"agent/1.0 (linux; x64)"}, "Content-Type": {"application/json"}, "Accept-Encoding": {"gzip"}}
	r.URL.Opaque, r.Body = "/repos/acme/app/issues", http.NoBody
	for b.Loop() {
		fl := &flow{s: w.srv, f: &front{host: host, port: 443, tls: true}, rules: w.srv.rules(), out: r}
		if refused := fl.searchSecrets(); refused != nil {
			b.Fatal(string(bytes.TrimSpace(refused.body())))
		}
	}
}

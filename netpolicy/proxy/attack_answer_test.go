package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestEchoInSlices: an agent asks for the echo of its own request bytes at a time,
// so that no answer holds the whole secret.
func TestEchoInSlices(t *testing.T) {
	w, _ := secretWorld(t, policy.Credential{})
	echoes := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, "", time.Time{}, strings.NewReader("you sent "+r.Header.Get("Authorization")))
	})
	w.serve("bound.example.org", 443, echoes)
	w.serve("other.example.org", 443, echoes)
	slices := func(host, secret string, h2 bool) string {
		var all strings.Builder
		c := w.client(host, 443, h2)
		for i := range len("you sent Bearer " + secret) {
			r := with(newRequest(t, "GET", "https://"+host+"/", nil), "Range", fmt.Sprintf("bytes=%d-%d", i, i))
			r.Header["authorization"] = []string{"Bearer " + strings.Repeat("x", len(secret))}
			status, body := do(t, c, r)
			if status == http.StatusPartialContent {
				all.WriteString(body)
			}
		}
		return all.String()
	}
	for _, h2 := range []bool{false, true} {
		if got := slices("other.example.org", "x", h2); !strings.HasPrefix(got, "you sent Bearer") {
			t.Errorf("control, h2 %v: got %q, want the slices of another host", h2, got)
		}
		if got := slices("bound.example.org", liveSecret, h2); strings.Contains(got, liveSecret[4:12]) {
			t.Errorf("h2 %v: got the secret in slices: %q", h2, got)
		}
	}
	w.wantNoFault()
}

package proxy

import (
	"net/http"
	"strings"
	"testing"
)

// Fields that make some servers take another path, host or client for the
// request's never arrive, in neither spelling; others do (corpus D34).
func TestMisleadingFieldsAreDropped(t *testing.T) {
	for _, c := range []struct {
		field string
		kept  bool
	}{
		{"X-Original-URL", false},
		{"X-Rewrite-URL", false},
		{"X_Original_URL", false},
		{"X-Original-Host", false},
		{"X-Host", false},
		{"X-Forwarded-Host", false},
		{"X_Forwarded_Host", false},
		{"X-Forwarded-Uri", false},
		{"X-Forwarded-Prefix", false},
		{"X-Envoy-Original-Path", false},
		{"X.Forwarded.Host", false},
		{"X-HTTP-Host-Override", false},
		{"X-HTTP-DestinationURL", false},
		{"True-Client-IP", false},
		{"X!Original~URL", false},
		{"Proxy_Authorization", false},
		{"X-Api-Key", true},
		{"X_Api_Key", true},
		{"Cookie", true},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(c.field+map[bool]string{false: " 1.1", true: " 2"}[h2], func(t *testing.T) {
				w := newWorld(t, testNetwork())
				w.serve("api.example.org", 443, &echo{})
				req, err := http.NewRequest("GET", "https://api.example.org/public/a", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header[c.field] = []string{"/secret-value"}
				resp, err := w.client("api.example.org", 443, h2).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body := readBody(t, resp)
				if got := strings.Contains(body, "secret-value"); resp.StatusCode != 200 || got != c.kept {
					t.Errorf("got status %d, arrived %v, want 200, %v", resp.StatusCode, got, c.kept)
				}
			})
		}
	}
}

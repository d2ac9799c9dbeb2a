package proxy

import (
	"slices"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// A rule with encoded_slash gets its requests to the server as they were
// written; no other rule, and no dot segment, comes along.
func TestEncodedSlashGoesOutAsWritten(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, policy.Network{Rules: []policy.Rule{
			{Name: "npm", Host: "npm.example.org", EncodedSlash: true, Allow: []policy.Match{{Methods: []string{"GET"}, Paths: []string{"/*"}}}},
			{Name: "web", Host: "npm.example.org", Allow: []policy.Match{{Methods: []string{"GET", "DELETE"}, Paths: []string{"/**"}}}, Deny: []policy.Match{{Paths: []string{"/admin/**"}}}},
		}})
		server := &echo{}
		w.serve("npm.example.org", 443, server)
		client := w.client("npm.example.org", 443, h2)
		for path, want := range map[string]int{
			"/@acme%2fsite":      200,
			"/plain":             200,
			"/admin%2Fusers":     403,
			"/@acme%2fsite/more": 403,
			"/a%2f..%2fadmin":    400,
			"/%2fadmin":          400,
			"/a%2f%2e%2e":        400,
		} {
			resp, err := client.Get("https://npm.example.org" + path)
			if err != nil {
				t.Fatal(err)
			}
			if body := readBody(t, resp); resp.StatusCode != want {
				t.Errorf("GET %s: got %d %s, want %d", path, resp.StatusCode, body, want)
			}
		}
		got := server.requests()
		slices.Sort(got)
		if want := []string{"GET npm.example.org /@acme%2Fsite", "GET npm.example.org /plain"}; !slices.Equal(got, want) {
			t.Errorf("the server got %q, want %q", got, want)
		}
		w.wantNoFault()
	}
}

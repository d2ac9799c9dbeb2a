package netpolicy

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestHeadersAndBodies(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "a", Host: "a.test", Allow: []policy.Match{
			{Methods: []string{"POST"}, Paths: []string{"/up"}, MaxBody: 100},
			{Methods: []string{"POST"}, Paths: []string{"/up"}, Headers: []string{"x-large"}, MaxBody: 1000},
			{Methods: []string{"PUT"}, Headers: []string{"if-match"}},
			{Methods: []string{"GET"}},
		}, Deny: []policy.Match{{Headers: []string{"range"}}}},
		{Name: "b", Host: "b.test", Allow: []policy.Match{{MaxBody: 100}, {Paths: []string{"/free"}}}},
	}})
	for _, tt := range []struct {
		name, method, url string
		length            int64
		header            string
		want              Verdict
		limit             int64
		reason            string
	}{
		{"small", "POST", "a.test/up", 100, "", Allow, 100, ""},
		{"larger", "POST", "a.test/up", 101, "", Deny, 0, "does not allow a body of 101 bytes"},
		{"larger with the field", "POST", "a.test/up", 101, "X-Large", Allow, 1000, ""},
		{"small with the field", "POST", "a.test/up", 1, "X-Large", Allow, 1000, ""},
		{"too large with the field", "POST", "a.test/up", 1001, "X-Large", Deny, 0, ""},
		{"unknown", "POST", "a.test/up", -1, "", Allow, 100, ""},
		{"field missing", "PUT", "a.test/x", 0, "", Deny, 0, "only with the header field If-Match"},
		{"field there", "PUT", "a.test/x", 1 << 40, "If-Match", Allow, 0, ""},
		{"denied field", "GET", "a.test/x", 0, "Range", Deny, 0, `rule "a" denies`},
		{"unlimited path", "POST", "b.test/free", -1, "", Allow, 0, ""},
		{"limited path", "POST", "b.test/x", -1, "", Allow, 100, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(t, tt.method, tt.url)
			r.Length = tt.length
			if tt.header != "" {
				r.Header = map[string][]string{tt.header: {"1"}}
			}
			got := e.Request(r)
			check(t, got, tt.want, tt.reason)
			if got.MaxBody != tt.limit {
				t.Errorf("got limit %d, want %d", got.MaxBody, tt.limit)
			}
		})
	}
}

// An escaped slash is allowed by the rule that says so and by no other, and no
// denial is escaped with it.
func TestEncodedSlash(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{
			Name: "npm", Host: "npm.test", EncodedSlash: true,
			Allow: []policy.Match{{Methods: []string{"GET"}, Paths: []string{"/*", "/@acme%2Fsite/**"}}},
			Deny:  []policy.Match{{Paths: []string{"/@acme/secret"}}, {Paths: []string{"/@evil%2F*"}}, {Paths: []string{"/-/**"}}},
		},
		{Name: "files", Host: "npm.test", Allow: []policy.Match{{Methods: []string{"POST"}}}, Deny: []policy.Match{{Paths: []string{"/admin/**"}}}},
		{Name: "other", Host: "other.test", Access: "full"},
		{Name: "git", Host: "npm.test", Protocol: policy.ProtocolGit},
		{Name: "mcp", Host: "npm.test", Protocol: policy.ProtocolMCP, Paths: []string{"/a/mcp"}},
	}})
	for _, tt := range []struct {
		name, method, url string
		want              Verdict
		reason            string
	}{
		{"scoped package", "GET", "npm.test/@acme%2fother", Allow, `rule "npm"`},
		{"one segment", "GET", "npm.test/a%2Fb%2Fc", Allow, ""},
		{"spelt out", "GET", "npm.test/@acme%2Fsite/-/site.tgz", Allow, ""},
		{"real slash", "GET", "npm.test/@acme/other", Deny, ""},
		{"other method by another rule", "POST", "npm.test/a%2Fb", Deny, "escaped slash (%2F), which rule \"files\" does not allow"},
		{"control: other method", "POST", "npm.test/a/b", Allow, ""},
		{"other host", "GET", "other.test/a%2Fb", Deny, "escaped slash"},
		{"denied with a real slash", "GET", "npm.test/@acme/secret", Deny, "denies"},
		{"denied with an escaped one", "GET", "npm.test/@acme%2Fsecret", Deny, "denies"},
		{"denied as one segment", "GET", "npm.test/@evil%2Fx", Deny, "denies"},
		{"denied as two", "GET", "npm.test/@evil/x", Deny, "denies"},
		{"denied prefix", "GET", "npm.test/-%2Fx", Deny, "denies"},
		{"denied by another rule", "GET", "npm.test/admin%2Fx", Deny, `rule "files" denies`},
		{"denied with a parameter", "GET", "npm.test/admin;y%2Fx", Deny, `rule "files" denies`},
		{"hides git", "GET", "npm.test/x%2Finfo%2Frefs", Deny, `claimed by rule "git"`},
		{"hides mcp", "GET", "npm.test/a%2Fmcp", Deny, `claimed by rule "mcp"`},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, e.Request(request(t, tt.method, tt.url)), tt.want, tt.reason) })
	}
}

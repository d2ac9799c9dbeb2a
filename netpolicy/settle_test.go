package netpolicy

import (
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Which identity a request has is clear or the request is refused: it is never
// sent with another one, and never silently without.
func TestCredentialSelection(t *testing.T) {
	clause := []policy.Match{{Paths: []string{"/v1/**"}}}
	deny := []policy.Match{{Paths: []string{"/admin"}}}
	tests := []struct {
		name       string
		a, b       policy.Rule
		want       Verdict
		credential string
	}{
		{"exact and one label", policy.Rule{Host: "a.b.test", Credential: "x"}, policy.Rule{Host: "*.b.test", Credential: "y"}, Allow, "x"},
		{"one label and any depth", policy.Rule{Host: "*.b.test", Credential: "x"}, policy.Rule{Host: "**.b.test", Credential: "y"}, Allow, "x"},
		{"any depth and any", policy.Rule{Host: "**.b.test", Credential: "x"}, policy.Rule{Any: true, Credential: "y"}, Allow, "x"},
		{"exact and any", policy.Rule{Host: "a.b.test"}, policy.Rule{Any: true, Credential: "y"}, Allow, ""},
		{"closest of several hosts", policy.Rule{Hosts: []policy.Name{{Text: "**.test"}, {Text: "a.b.test"}}, Credential: "x"}, policy.Rule{Host: "*.b.test", Credential: "y"}, Allow, "x"},
		{"with and without clauses", policy.Rule{Host: "a.b.test", Credential: "x", Allow: clause}, policy.Rule{Host: "a.b.test"}, Allow, "x"},
		{"host before clauses", policy.Rule{Host: "a.b.test", Credential: "x"}, policy.Rule{Host: "*.b.test", Credential: "y", Allow: clause}, Allow, "x"},
		{"same credential", policy.Rule{Host: "a.b.test", Credential: "x"}, policy.Rule{Host: "a.b.test", Credential: "x"}, Allow, "x"},
		{"two credentials", policy.Rule{Host: "a.b.test", Credential: "x"}, policy.Rule{Host: "a.b.test", Credential: "y"}, Deny, ""},
		{"with and without", policy.Rule{Host: "a.b.test", Credential: "x"}, policy.Rule{Host: "a.b.test"}, Deny, ""},
		{"with and without, both with clauses", policy.Rule{Host: "a.b.test", Credential: "x", Allow: clause}, policy.Rule{Host: "a.b.test", Allow: clause}, Deny, ""},
		{"a denial decides nothing", policy.Rule{Host: "a.b.test", Credential: "x", Deny: deny}, policy.Rule{Host: "a.b.test"}, Deny, ""},
		{"one does not allow it", policy.Rule{Host: "a.b.test", Credential: "x", Access: "read-only"}, policy.Rule{Host: "a.b.test", Credential: "y"}, Allow, "y"},
	}
	for _, protocol := range []policy.Protocol{"", policy.ProtocolMCP} {
		for _, tt := range tests {
			if protocol != "" && (tt.a.Allow != nil || tt.b.Allow != nil || tt.a.Deny != nil || tt.a.Access != "") {
				continue // clauses of another protocol
			}
			t.Run(string(protocol)+" "+tt.name, func(t *testing.T) {
				tt.a.Name, tt.a.Protocol, tt.b.Name, tt.b.Protocol = "first", protocol, "second", protocol
				rules := []policy.Rule{tt.a, tt.b}
				for range 2 {
					got := mustCompile(t, policy.Network{Rules: rules}).Request(post(t, "a.b.test/v1/x"))
					check(t, got, tt.want, "")
					if got.Credential != tt.credential {
						t.Errorf("got credential %q by %q, want %q", got.Credential, got.Rule, tt.credential)
					}
					if tt.want == Deny && (!strings.Contains(got.Reason, `"first"`) || !strings.Contains(got.Reason, `"second"`)) {
						t.Errorf("got reason %q, want both rules named", got.Reason)
					}
					slices.Reverse(rules)
				}
			})
		}
	}
}

// What a rule with another credential allows does not go out under the one that
// was chosen.
func TestClaimKeepsOneCredential(t *testing.T) {
	c := claim(t, post(t, "a.test/mcp"),
		policy.Rule{Name: "own", Host: "a.test", Protocol: policy.ProtocolMCP, Credential: "x", Allow: []policy.Match{{Tools: []string{"read"}}}},
		policy.Rule{Name: "all", Host: "**.test", Protocol: policy.ProtocolMCP, Credential: "y", Allow: []policy.Match{{Tools: []string{"write"}}}},
		policy.Rule{Name: "any", Any: true, Protocol: policy.ProtocolMCP, Credential: "x", Allow: []policy.Match{{Tools: []string{"list"}}}, Deny: []policy.Match{{Tools: []string{"evil"}}}},
	)
	for tool, want := range map[string]Verdict{"read": Allow, "list": Allow, "write": Deny, "evil": Deny} {
		got := c.Call(Call{Method: "tools/call", Tool: tool})
		if got.Verdict != want || want == Allow && got.Credential != "x" {
			t.Errorf("%s: got %v with credential %q, want %v with x", tool, got.Verdict, got.Credential, want)
		}
	}
}

func TestLimitGoesWithTheCredential(t *testing.T) {
	r := post(t, "a.test/x")
	r.Length = -1
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "small", Host: "a.test", Credential: "x", Allow: []policy.Match{{Methods: []string{"POST"}, MaxBody: 10}}},
		{Name: "large", Any: true, Access: "full"},
	}})
	if got := e.Request(r); got.Verdict != Allow || got.Credential != "x" || got.MaxBody != 10 {
		t.Errorf("unknown length: got %v %q %d, want allow x 10", got.Verdict, got.Credential, got.MaxBody)
	}
	r.Length = 11
	if got := e.Request(r); got.Verdict != Allow || got.Credential != "" || got.MaxBody != 0 {
		t.Errorf("larger: got %v %q %d, want allow without credential and limit", got.Verdict, got.Credential, got.MaxBody)
	}
}

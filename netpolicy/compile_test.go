package netpolicy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestCompileRefuses(t *testing.T) {
	rule := func(r policy.Rule) policy.Network {
		if r.Name == "" {
			r.Name = "r"
		}
		if r.Host == "" && r.Hosts == nil && !r.Any {
			r.Host = "a.test"
		}
		return policy.Network{Rules: []policy.Rule{r}}
	}
	two := func(a, b policy.Rule) policy.Network {
		a.Name, b.Name = "one", "two"
		return policy.Network{Rules: []policy.Rule{a, b}}
	}
	tests := []struct {
		name string
		in   policy.Network
		want string
	}{
		{"no name", policy.Network{Rules: []policy.Rule{{Host: "a.test"}}}, "network.rules[0].name: missing"},
		{
			"same name",
			policy.Network{Rules: []policy.Rule{{Name: "r", Host: "a.test"}, {Name: "r", Host: "b.test"}}},
			`network.rules[1].name: "r" is also the name of network.rules[0]`,
		},
		{"no host", policy.Network{Rules: []policy.Rule{{Name: "r"}}}, "network.rules[0].host: missing"},
		{"any and host", rule(policy.Rule{Any: true, Host: "a.test"}), "any excludes host and hosts"},
		{"host and hosts", rule(policy.Rule{Host: "a.test", Hosts: []policy.Name{{Text: "b.test"}}}), "host and hosts exclude each other"},
		{"wildcard host", rule(policy.Rule{Host: "*"}), "write any: true"},
		{"port 0", rule(policy.Rule{Ports: []int{0}}), "port 0 is not between 1 and 65535"},
		{"port overflow", rule(policy.Rule{Ports: []int{65537}}), "port 65537 is not between 1 and 65535"},
		{"empty ports", rule(policy.Rule{Ports: []int{}}), "network.rules[0].ports: empty list"},
		{"tcp without ports", rule(policy.Rule{Protocol: policy.ProtocolTCP}), "a tcp rule must list its ports"},
		{
			"tcp with paths", rule(policy.Rule{Protocol: policy.ProtocolTCP, Ports: []int{22}, Access: "full"}),
			"a tcp rule has no tls, access, allow or deny",
		},
		{"tcp with a credential", rule(policy.Rule{Protocol: policy.ProtocolTCP, Ports: []int{22}, Credential: "k"}), "a tcp rule has no"},
		{"pass with a credential", rule(policy.Rule{TLS: policy.TLSPass, Credential: "k"}), "pass excludes"},
		{"pass with a protocol", rule(policy.Rule{TLS: policy.TLSPass, Protocol: policy.ProtocolMCP}), "pass excludes"},
		{"pass with encoded_slash", rule(policy.Rule{TLS: policy.TLSPass, EncodedSlash: true}), "pass excludes"},
		{"access with a protocol", rule(policy.Rule{Protocol: policy.ProtocolGit, Access: "full"}), "have no meaning in a rule with protocol git"},
		{"encoded_slash with a protocol", rule(policy.Rule{Protocol: policy.ProtocolGit, EncodedSlash: true}), "have no meaning"},
		{"paths of http", rule(policy.Rule{Paths: []string{"/a"}}), "paths belong to rules with protocol websocket"},
		{"paths of git", rule(policy.Rule{Protocol: policy.ProtocolGit, Paths: []string{"/a"}}), "paths belong to"},
		{"no paths", rule(policy.Rule{Protocol: policy.ProtocolMCP, Paths: []string{}}), "paths is an empty list"},
		{"bad path of a protocol", rule(policy.Rule{Protocol: policy.ProtocolMCP, Paths: []string{"mcp"}}), "does not start with a slash"},
		{"max_response of http", rule(policy.Rule{MaxResponse: 1}), "max_response has no meaning"},
		{"escaped slash without encoded_slash", rule(policy.Rule{Allow: []policy.Match{{Paths: []string{"/a%2Fb"}}}}), "which no accepted path holds"},
		{"body limit in deny", rule(policy.Rule{Deny: []policy.Match{{MaxBody: 1}}}), "max_body has no meaning in deny"},
		{"header field", rule(policy.Rule{Allow: []policy.Match{{Headers: []string{"a b"}}}}), "not the name of a header field"},
		{"no header fields", rule(policy.Rule{Allow: []policy.Match{{Headers: []string{}}}}), "empty list"},
		{"tools in http", rule(policy.Rule{Allow: []policy.Match{{Tools: []string{"a"}}}}), "tools has no meaning in a rule with protocol http"},
		{"methods in mcp", rule(policy.Rule{Protocol: policy.ProtocolMCP, Deny: []policy.Match{{Methods: []string{"GET"}}}}), "methods has no meaning in a rule with protocol mcp"},
		{"paths in a clause of mcp", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Paths: []string{"/a"}}}}), "paths has no meaning"},
		{"tools without their calls", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Calls: []string{"tools/list"}, Tools: []string{"a"}}}}), "which calls leaves out"},
		{"dots in a pattern", rule(policy.Rule{Protocol: policy.ProtocolGit, Allow: []policy.Match{{Repos: []string{"a/../b"}}}}), "dot segment"},
		{"stars in a segment", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Tools: []string{"a**"}}}}), `"**" is not a whole segment`},
		{"empty pattern", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Tools: []string{""}}}}), "empty pattern"},
		{"no patterns", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Tools: []string{}}}}), "empty list"},
		{"pointer", rule(policy.Rule{Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Args: map[string]string{"path": "a"}}}}), "not a JSON pointer"},
		{"refs of a fetch", rule(policy.Rule{Protocol: policy.ProtocolGit, Allow: []policy.Match{{Op: "fetch", Refs: []string{"a"}}}}), "refs are about pushes"},
		{"unknown op", rule(policy.Rule{Protocol: policy.ProtocolGit, Allow: []policy.Match{{Op: "clone"}}}), `unknown op "clone"`},
		{"unknown operation", rule(policy.Rule{Protocol: policy.ProtocolGraphQL, Allow: []policy.Match{{Operations: []string{"Query"}}}}), `unknown operation "Query"`},
		{"message limit in deny", rule(policy.Rule{Protocol: policy.ProtocolWebSocket, Deny: []policy.Match{{MaxMessage: 1}}}), "max_message has no meaning in deny"},
		{
			"two protocols at one path", two(policy.Rule{Host: "a.test", Protocol: policy.ProtocolMCP, Paths: []string{"/x", "/api"}}, policy.Rule{Host: "*.test", Protocol: policy.ProtocolGraphQL, Paths: []string{"/api"}}),
			`rule "two" speaks graphql at *.test, where rule "one" speaks mcp: give each its own paths`,
		},
		{
			"two protocols, one of them everywhere", two(policy.Rule{Host: "a.test", Protocol: policy.ProtocolGit}, policy.Rule{Host: "a.test", Protocol: policy.ProtocolMCP}),
			"give each its own paths",
		},
		{"unknown protocol", rule(policy.Rule{Protocol: "udp"}), `unknown protocol "udp"`},
		{"unknown mode", rule(policy.Rule{TLS: "off"}), `unknown mode "off"`},
		{"unknown access", rule(policy.Rule{Access: "readonly"}), `unknown access "readonly"`},
		{"pass with access", rule(policy.Rule{TLS: policy.TLSPass, Access: "full"}), "pass excludes access, allow and deny"},
		{"pass with deny", rule(policy.Rule{TLS: policy.TLSPass, Deny: []policy.Match{{}}}), "pass excludes access, allow and deny"},
		{
			"access without the method", rule(policy.Rule{Access: "read-only", Allow: []policy.Match{{Methods: []string{"POST", "GET"}}}}),
			"access read-only leaves out POST",
		},
		{"TRACE", rule(policy.Rule{Allow: []policy.Match{{Methods: []string{"TRACE"}}}}), "method TRACE is always denied"},
		{"CONNECT", rule(policy.Rule{Allow: []policy.Match{{Methods: []string{"CONNECT"}}}}), "method CONNECT is always denied"},
		{"lower-case method", rule(policy.Rule{Allow: []policy.Match{{Methods: []string{"get"}}}}), `method "get" is not in normal form: write "GET"`},
		{"method with space", rule(policy.Rule{Deny: []policy.Match{{Methods: []string{"GET /"}}}}), `"GET /" is not a method`},
		{"empty methods", rule(policy.Rule{Allow: []policy.Match{{Methods: []string{}}}}), "allow[0]: empty list"},
		{"bad path", rule(policy.Rule{Allow: []policy.Match{{Paths: []string{"v1"}}}}), `allow[0]: path "v1": does not start with a slash`},
		{"bad deny path", rule(policy.Rule{Deny: []policy.Match{{}, {Paths: []string{"/a/../b"}}}}), `deny[1]: path "/a/../b": dot segment`},
		{
			"pass and inspect", two(policy.Rule{Host: "*.a.test", TLS: policy.TLSPass}, policy.Rule{Host: "x.a.test", Access: "read-only"}),
			`network.rules[1]: rule "two" inspects x.a.test, but rule "one" passes *.a.test unread (tls: pass)`,
		},
		{
			"tcp and inspect", two(policy.Rule{Host: "a.test", Access: "full"}, policy.Rule{Any: true, Protocol: policy.ProtocolTCP, Ports: []int{443}}),
			`network.rules[0]: rule "one" inspects a.test, but rule "two" passes any unread (protocol: tcp)`,
		},
		{"deny wildcard", policy.Network{Deny: []policy.HostRule{{Host: "*"}}}, "network.deny[0].host: a bare wildcard"},
		{"deny with dot", policy.Network{Deny: []policy.HostRule{{Host: "a.test."}}}, `write "a.test"`},
		{"deny port", policy.Network{Deny: []policy.HostRule{{Host: "a.test", Ports: []int{-1}}}}, "network.deny[0].ports: port -1"},
		{"range with host bits", policy.Network{Private: []policy.PrivateRange{{CIDR: "10.1.2.3/24"}}}, `write "10.1.2.0/24"`},
		{"range of names", policy.Network{Private: []policy.PrivateRange{{CIDR: "localhost"}}}, "is not a range"},
		{"mapped range", policy.Network{Private: []policy.PrivateRange{{CIDR: "::ffff:10.0.0.0/104"}}}, "write it as IPv4"},
		{"metadata range", policy.Network{Private: []policy.PrivateRange{{CIDR: "169.254.169.254"}}}, "metadata service, which cannot be opened"},
		{"pinned wildcard", policy.Network{Hosts: map[string][]string{"*.a.test": {"10.0.0.1"}}}, "is not a plain name"},
		{"pinned address", policy.Network{Hosts: map[string][]string{"a.test": {"10.1"}}}, `"10.1" is not an address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := Compile(tt.in)
			var problems policy.Problems
			if !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if e != nil {
				t.Error("got an engine beside the error")
			}
		})
	}
}

func TestCompileReportsAll(t *testing.T) {
	_, err := Compile(policy.Network{
		Rules: []policy.Rule{
			{Name: "a", Host: "*", Ports: []int{0}, Pos: policy.Pos{File: "p.yaml", Line: 3, Col: 5}},
			{Name: "b", Host: "b.test", Access: "some"},
		},
		Deny: []policy.HostRule{{Host: "c_d.test"}},
	})
	var problems policy.Problems
	if !errors.As(err, &problems) || len(problems) != 4 {
		t.Fatalf("got %v, want four problems", err)
	}
	if got, want := problems[0].Error(), "p.yaml:3:5: network.rules[0].host: a bare wildcard is refused: write any: true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPlainAndInspectedRulesMix(t *testing.T) {
	_, err := Compile(policy.Network{Rules: []policy.Rule{
		{Name: "plain", Any: true},
		{Name: "inspected", Host: "a.test", Access: "read-only"},
		{Name: "pass elsewhere", Host: "a.test", TLS: policy.TLSPass, Ports: []int{8443}},
		{Name: "ssh", Any: true, Protocol: policy.ProtocolTCP, Ports: []int{22}},
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestEngineFacts(t *testing.T) {
	e := mustCompile(t, policy.Network{
		Rules: []policy.Rule{
			{Name: "ssh", Host: "a.test", Protocol: policy.ProtocolTCP, Ports: []int{22, 22}},
			{Name: "web", Host: "b.test", Ports: []int{8443}},
		},
		Hosts: map[string][]string{"b.test": {"192.0.2.7", "2001:db8::7"}},
	})
	if got, want := e.Ports(), []uint16{22, 80, 443, 8443}; !slices.Equal(got, want) {
		t.Errorf("Ports: got %v, want %v", got, want)
	}
	if !e.Inspects() {
		t.Error("Inspects: got false, want true: denials on 8443 need an answer")
	}
	if got := e.Pinned(mustHost(t, "B.test.")); len(got) != 2 || got[0].String() != "192.0.2.7" {
		t.Errorf("Pinned: got %v, want the two addresses", got)
	}
	if got := e.Pinned(mustHost(t, "a.test")); got != nil {
		t.Errorf("Pinned of another host: got %v, want none", got)
	}
	tcpOnly := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "ssh", Host: "a.test", Protocol: policy.ProtocolTCP, Ports: []int{22}},
	}})
	if tcpOnly.Inspects() {
		t.Error("Inspects with tcp rules only: got true, want false")
	}
}

// fataler is a testing.TB or a rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func mustCompile(t fataler, n policy.Network) *Engine {
	t.Helper()
	e, err := Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustHost(t fataler, s string) Host {
	t.Helper()
	h, err := ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Deny.String(), "deny"},
		{Allow.String(), "allow"},
		{ModeRefuse.String(), "refuse"},
		{ModeTCP.String(), "tcp"},
		{ModePass.String(), "pass"},
		{ModeInspect.String(), "inspect"},
		{ClassPrivate.String(), "private"},
		{Class(200).String(), "invalid"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

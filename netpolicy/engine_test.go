package netpolicy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// example is the policy most cases are judged against.
func example() policy.Network {
	return policy.Network{
		Rules: []policy.Rule{
			{Name: "plain", Host: "plain.test"},
			{Name: "wild", Host: "*.github.test"},
			{Name: "read", Host: "read.test", Access: "read-only", Reason: "mirror"},
			{Name: "api", Host: "api.test", Allow: []policy.Match{
				{Methods: []string{"GET"}, Paths: []string{"/public/*"}},
				{Methods: []string{"POST"}, Paths: []string{"/v1/**"}},
				{Methods: []string{"GET"}, Paths: []string{"/info/refs"}, Query: map[string]string{"service": "git-upload-pack"}},
			}, Deny: []policy.Match{
				{Paths: []string{"/v1/admin/**"}},
				{Methods: []string{"POST"}, Query: map[string]string{"_method": "*"}},
			}},
			{Name: "nothing", Host: "nothing.test", Allow: []policy.Match{}},
			{Name: "all", Host: "all.test", Access: "full"},
			{Name: "dav", Host: "dav.test", Allow: []policy.Match{{Methods: []string{"X-SYNC"}}}},
			{Name: "pinned", Host: "pinned.test", TLS: policy.TLSPass},
			{Name: "alt", Host: "alt.test", Ports: []int{8443}},
			{Name: "ssh", Host: "git.test", Protocol: policy.ProtocolTCP, Ports: []int{22}},
			{Name: "literal", Host: "8.8.8.8"},
			{Name: "inner", Host: "10.0.0.5"},
			{Name: "shut", Host: "10.0.0.6"},
			{Name: "meta", Host: "169.254.169.254"},
			{Name: "local", Hosts: []policy.Name{{Text: "localhost"}, {Text: "*.localhost"}, {Text: "metadata.google.internal"}}, Ports: []int{80, 3000}},
			{Name: "bad", Host: "bad.plain.test"},
		},
		Deny: []policy.HostRule{
			{Host: "bad.plain.test", Reason: "known bad"},
			{Host: "**.evil.github.test"},
			{Host: "secret.github.test"},
			{Host: "9.9.9.9"},
			{Host: "alt.test", Ports: []int{22}},
		},
		Private: []policy.PrivateRange{
			{CIDR: "10.0.0.5", Ports: []int{80}, Reason: "test"},
			{CIDR: "127.0.0.1", Ports: []int{3000}, Reason: "dev server"},
			{CIDR: "169.254.0.0/16", Reason: "all of it"},
			{CIDR: "64:ff9b::/96", Reason: "all of it"},
		},
	}
}

func TestConnection(t *testing.T) {
	e := mustCompile(t, example())
	tests := []struct {
		name, host string
		port       uint16
		verdict    Verdict
		mode       Mode
		reason     string
	}{
		{"plain rule", "plain.test", 443, Allow, ModePass, `rule "plain" allows it`},
		{"plain rule without TLS", "plain.test", 80, Allow, ModeInspect, ""},
		{"upper case and dot", "PLAIN.test.", 443, Allow, ModePass, ""},
		{"wildcard", "api.github.test", 443, Allow, ModePass, `rule "wild" allows it`},
		{"apex", "github.test", 443, Deny, ModeInspect, `no rule allows host "github.test"`},
		{"two labels", "a.b.github.test", 443, Deny, ModeInspect, ""},
		{"suffix", "evilgithub.test", 443, Deny, ModeInspect, ""},
		{"prefix", "api.github.test.evil", 443, Deny, ModeInspect, ""},
		{"denied host", "secret.github.test", 443, Deny, ModeInspect, `host "secret.github.test" is denied by network.deny[2] (secret.github.test)`},
		{"denied host in other spelling", "SECRET.github.test.", 443, Deny, ModeInspect, ""},
		{"deny beats a later rule", "bad.plain.test", 443, Deny, ModeInspect, `host "bad.plain.test" is denied by network.deny[0] (bad.plain.test): known bad`},
		{"inspected", "read.test", 443, Allow, ModeInspect, `rule "read" allows it: mirror`},
		{"spelt-out pass", "pinned.test", 443, Allow, ModePass, ""},
		{"tcp", "git.test", 22, Allow, ModeTCP, ""},
		{"tcp on another port", "git.test", 443, Deny, ModeInspect, `rule "ssh" allows host "git.test" only on port 22, not on 443`},
		{"other port", "alt.test", 8443, Allow, ModePass, ""},
		{"host only on other port", "alt.test", 443, Deny, ModeInspect, `rule "alt" allows host "alt.test" only on port 8443, not on 443`},
		{"web host on ssh port", "plain.test", 22, Deny, ModeRefuse, `rule "plain" allows host "plain.test" only on ports 80, 443, not on 22`},
		{"web host on redis port", "plain.test", 6379, Deny, ModeRefuse, ""},
		{"denied on a port that speaks HTTP", "other.test", 8443, Deny, ModeInspect, `no rule allows host "other.test"`},
		{"port 0", "plain.test", 0, Deny, ModeRefuse, ""},

		{"listed literal", "8.8.8.8", 443, Allow, ModePass, ""},
		{"mapped literal", "::ffff:8.8.8.8", 443, Allow, ModePass, ""},
		{"other literal", "8.8.4.4", 443, Deny, ModeInspect, `no rule allows host "8.8.4.4"`},
		{"denied literal", "9.9.9.9", 443, Deny, ModeInspect, "is denied by network.deny[3]"},
		{"opened private literal", "10.0.0.5", 80, Allow, ModeInspect, ""},
		{"private literal on another port", "10.0.0.5", 443, Deny, ModeInspect, "address 10.0.0.5 is private"},
		{"private literal with a rule only", "10.0.0.6", 80, Deny, ModeInspect, "address 10.0.0.6 is private"},
		{"opened private without a rule", "127.0.0.1", 3000, Deny, ModeInspect, `no rule allows host "127.0.0.1"`},
		{"metadata literal with rule and range", "169.254.169.254", 80, Deny, ModeInspect, "address 169.254.169.254 is a metadata service, which is never allowed"},

		{"localhost, opened", "localhost", 3000, Allow, ModePass, ""},
		{"localhost in other spelling", "LOCALHOST.", 3000, Allow, ModePass, ""},
		{"below localhost, opened", "x.localhost", 3000, Allow, ModePass, ""},
		{"localhost, other port", "localhost", 80, Deny, ModeInspect, `host "localhost" names this machine itself`},
		{"ip6-localhost", "ip6-localhost", 80, Deny, ModeInspect, `host "ip6-localhost" names this machine itself`},
		{"metadata name with a rule", "metadata.google.internal", 80, Deny, ModeInspect, `host "metadata.google.internal" is a metadata service`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := e.Connection(mustHost(t, tt.host), tt.port)
			if got.Verdict != tt.verdict || got.Mode != tt.mode || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("got %v %v %q, want %v %v %q", got.Verdict, got.Mode, got.Reason, tt.verdict, tt.mode, tt.reason)
			}
			if got.Reason == "" {
				t.Error("got no reason")
			}
		})
	}
}

func TestRequest(t *testing.T) {
	e := mustCompile(t, example())
	tests := []struct {
		name, method, url string
		verdict           Verdict
		reason            string
	}{
		{"plain rule", "POST", "plain.test/a", Allow, ""},
		{"plain rule, unknown method", "FROB", "plain.test/a", Deny, `rule "plain" allows only registered methods`},
		{"named unknown method", "X-SYNC", "dav.test/", Allow, ""},
		{"other method beside it", "GET", "dav.test/", Deny, `rule "dav" allows only X-SYNC`},
		{"read-only GET", "GET", "read.test/", Allow, ""},
		{"read-only HEAD", "HEAD", "read.test/", Allow, ""},
		{"read-only POST", "POST", "read.test/", Deny, `rule "read" allows only GET, HEAD, OPTIONS: mirror`},
		{"lower-case method", "get", "read.test/", Deny, `rule "read" allows only`},
		{"full DELETE", "DELETE", "all.test/", Allow, ""},
		{"TRACE", "TRACE", "all.test/", Deny, "method TRACE is always denied"},
		{"CONNECT", "CONNECT", "all.test/", Deny, "method CONNECT is always denied"},
		{"PRI", "PRI", "all.test/", Deny, "method PRI is always denied"},
		{"method with space", "GET /evil HTTP/1.1", "all.test/", Deny, "the method is not a token"},
		{"empty method", "", "all.test/", Deny, "the method is not a token"},
		{"empty allow list", "GET", "nothing.test/", Deny, `rule "nothing" allows no request`},

		{"path", "GET", "api.test/public/x", Allow, ""},
		{"path with another method", "POST", "api.test/public/x", Deny, `rule "api" does not allow POST /public/x`},
		{"path below", "GET", "api.test/public/x/y", Deny, ""},
		{"other case", "GET", "api.test/PUBLIC/x", Deny, ""},
		{"escaped tail", "GET", "api.test/public/x%20", Allow, ""},
		{"deep path", "POST", "api.test/v1/a/b/c", Allow, ""},
		{"denied path", "POST", "api.test/v1/admin/x", Deny, `rule "api" denies POST /v1/admin/x`},
		{"denied directory", "POST", "api.test/v1/admin", Deny, `rule "api" denies`},
		{"denied with a parameter", "POST", "api.test/v1/admin;x=1/y", Deny, `rule "api" denies`},
		{"denied with a slash", "POST", "api.test/v1/admin/", Deny, `rule "api" denies`},
		{"near a denied path", "POST", "api.test/v1/administrator", Allow, ""},

		{"query", "GET", "api.test/info/refs?service=git-upload-pack", Allow, ""},
		{"other query", "GET", "api.test/info/refs?service=git-receive-pack", Deny, "with this query"},
		{"no query", "GET", "api.test/info/refs", Deny, ""},
		{"duplicate, bad one second", "GET", "api.test/info/refs?service=git-upload-pack&service=git-receive-pack", Deny, ""},
		{"duplicate, bad one first", "GET", "api.test/info/refs?service=git-receive-pack&service=git-upload-pack", Deny, ""},
		{"duplicate, escaped name", "GET", "api.test/info/refs?service=git-upload-pack&%73ervice=x", Deny, ""},
		{"case of the name", "GET", "api.test/info/refs?Service=git-upload-pack", Deny, ""},
		{"duplicate in another case", "GET", "api.test/info/refs?service=git-upload-pack&SERVICE=x", Deny, ""},
		{"same value in another case", "GET", "api.test/info/refs?service=git-upload-pack&SERVICE=git-upload-pack", Allow, ""},
		{"denied query in another case", "POST", "api.test/v1/a?_Method=DELETE", Deny, `rule "api" denies`},
		{"path in the query", "GET", "api.test/public/x?y=/../v1/admin", Allow, ""},
		{"denied query", "POST", "api.test/v1/a?_method=DELETE", Deny, `rule "api" denies`},
		{"denied query among others", "POST", "api.test/v1/a?a=1&_method=", Deny, `rule "api" denies`},

		{"unlisted host", "GET", "other.test/", Deny, `no rule allows host "other.test"`},
		{"denied host", "GET", "secret.github.test/", Deny, "is denied by"},
		{"tcp host", "GET", "git.test/", Deny, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := e.Request(request(t, tt.method, tt.url))
			if got.Verdict != tt.verdict || got.Mode != ModeInspect || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("got %v %v %q, want %v %q", got.Verdict, got.Mode, got.Reason, tt.verdict, tt.reason)
			}
			if got.Reason == "" {
				t.Error("got no reason")
			}
		})
	}
}

// request makes a TLS request on port 443 from "host/path?query".
func request(t testing.TB, method, url string) Request {
	t.Helper()
	host, target, _ := strings.Cut(url, "/")
	path, query, err := SplitTarget("/" + target)
	if err != nil {
		t.Fatal(err)
	}
	q, err := ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Host: mustHost(t, host), Port: 443, TLS: true, Method: method, Path: path, Query: q}
}

// A tcp rule lets bytes through and says nothing about requests.
func TestTCPRuleAllowsNoRequest(t *testing.T) {
	e := mustCompile(t, example())
	r := request(t, "GET", "git.test/")
	r.Port = 22
	if got := e.Connection(r.Host, r.Port); got.Verdict != Allow {
		t.Fatalf("control: the connection: got %v, want allow", got.Verdict)
	}
	if got := e.Request(r); got.Verdict != Deny {
		t.Errorf("the request: got %v (%s), want deny", got.Verdict, got.Reason)
	}
}

// A grant opens the address that is dialled, not another one that leads there.
func TestPrivateGrantIsLiteral(t *testing.T) {
	e := mustCompile(t, policy.Network{Private: []policy.PrivateRange{{CIDR: "10.0.0.0/8"}, {CIDR: "127.0.0.0/8"}}})
	for _, tt := range []struct {
		addr string
		want Verdict
	}{
		{"10.0.0.5", Allow},
		{"::ffff:10.0.0.5", Allow},
		{"64:ff9b::10.0.0.5", Deny},
		{"64:ff9b:1::10.0.0.5", Deny},
		{"2002:a00:5::1", Deny},
		{"::10.0.0.5", Deny},
		{"::1", Deny},
		{"192.168.0.1", Deny},
	} {
		if got := e.Address(netip.MustParseAddr(tt.addr), 80); got.Verdict != tt.want {
			t.Errorf("%s: got %v, want %v", tt.addr, got.Verdict, tt.want)
		}
	}
}

func TestRequestNeedsCanonicalPath(t *testing.T) {
	e := mustCompile(t, example())
	for _, path := range []string{"", "*", "a", "/a//b", "/a/../b", "/%61", "/a/..;/b", "/a b", "/%2e%2e/", "/a%2fb", "http://all.test/"} {
		r := Request{Host: mustHost(t, "all.test"), Port: 443, Method: "GET", Path: path}
		if got := e.Request(r); got.Verdict != Deny || got.Reason != "the path is not in canonical form" {
			t.Errorf("path %q: got %v %q, want a denial", path, got.Verdict, got.Reason)
		}
	}
}

func TestAddress(t *testing.T) {
	e := mustCompile(t, example())
	tests := []struct {
		addr    string
		port    uint16
		verdict Verdict
		reason  string
	}{
		{"8.8.8.8", 443, Allow, ""},
		{"64:ff9b::8.8.8.8", 443, Allow, ""},
		{"9.9.9.9", 443, Deny, "is denied by network.deny[3]"},
		{"::ffff:9.9.9.9", 443, Deny, "is denied by network.deny[3]"},
		{"64:ff9b::9.9.9.9", 443, Deny, "is denied by network.deny[3]"},
		{"10.0.0.5", 80, Allow, "network.private opens the address"},
		{"::ffff:10.0.0.5", 80, Allow, "network.private opens the address"},
		{"10.0.0.5", 443, Deny, "address 10.0.0.5 is private"},
		{"10.0.0.6", 80, Deny, "address 10.0.0.6 is private"},
		{"127.0.0.1", 3000, Allow, ""},
		{"::127.0.0.1", 3000, Deny, "is loopback"},
		{"2002:7f00:1::", 3000, Deny, "is loopback"},
		{"127.0.0.2", 3000, Deny, "is loopback"},
		{"::1", 3000, Deny, "is loopback"},
		{"0.0.0.0", 3000, Deny, "is unspecified"},
		{"::", 3000, Deny, "is unspecified"},
		{"169.254.1.1", 80, Allow, ""},
		{"169.254.169.254", 80, Deny, "never allowed"},
		{"::ffff:169.254.169.254", 80, Deny, "never allowed"},
		{"64:ff9b::169.254.169.254", 80, Deny, "never allowed"},
		{"168.63.129.16", 80, Deny, "never allowed"},
		{"fd00:ec2::254", 80, Deny, "never allowed"},
		{"fe80::1%eth0", 80, Deny, "never allowed"},
		{"100.64.0.1", 80, Deny, "is carrier-grade NAT"},
		{"100.63.0.1", 80, Allow, ""},
		{"8.8.8.8", 0, Deny, "port is 0"},
	}
	for _, tt := range tests {
		got := e.Address(netip.MustParseAddr(tt.addr), tt.port)
		if got.Verdict != tt.verdict || !strings.Contains(got.Reason, tt.reason) {
			t.Errorf("%s port %d: got %v %q, want %v %q", tt.addr, tt.port, got.Verdict, got.Reason, tt.verdict, tt.reason)
		}
	}
	if got := e.Address(netip.Addr{}, 80); got.Verdict != Deny {
		t.Errorf("zero address: got %v, want deny", got.Verdict)
	}
}

// An allowed name says nothing about the address behind it.
func TestNameDoesNotGrantAddress(t *testing.T) {
	e := mustCompile(t, policy.Network{
		Rules: []policy.Rule{{Name: "any", Any: true}},
		Hosts: map[string][]string{"pinned.test": {"10.0.0.5", "169.254.169.254", "::1"}},
	})
	h := mustHost(t, "pinned.test")
	if got := e.Connection(h, 443); got.Verdict != Allow {
		t.Fatalf("control: the name: got %v, want allow", got.Verdict)
	}
	for _, a := range e.Pinned(h) {
		if got := e.Address(a, 443); got.Verdict != Deny {
			t.Errorf("address %s: got %v, want deny", a, got.Verdict)
		}
		if got := e.Connection(Host{addr: a}, 443); got.Verdict != Deny {
			t.Errorf("literal %s under any: true: got %v, want deny", a, got.Verdict)
		}
	}
	for _, name := range []string{"localhost", "x.localhost", "ip6-localhost", "metadata.google.internal"} {
		if got := e.Connection(mustHost(t, name), 443); got.Verdict != Deny {
			t.Errorf("%s under any: true: got %v, want deny", name, got.Verdict)
		}
	}
}

func TestZeroValuesDeny(t *testing.T) {
	var zero Engine
	h := mustHost(t, "plain.test")
	if got := zero.Connection(h, 443); got.Verdict != Deny || got.Reason == "" {
		t.Errorf("Connection: got %+v, want a denial", got)
	}
	if got := zero.Request(request(t, "GET", "plain.test/")); got.Verdict != Deny {
		t.Errorf("Request: got %+v, want a denial", got)
	}
	if got := zero.Address(netip.MustParseAddr("8.8.8.8"), 443); got.Verdict != Deny {
		t.Errorf("Address: got %+v, want a denial", got)
	}
	if zero.Inspects() || zero.Pinned(h) != nil {
		t.Error("the zero engine claims something")
	}
	if (Decision{}).Verdict != Deny || (Decision{}).Mode != ModeRefuse {
		t.Error("the zero decision does not refuse")
	}
	anyHost := mustCompile(t, policy.Network{Rules: []policy.Rule{{Name: "any", Any: true}}})
	if got := anyHost.Connection(Host{}, 443); got.Verdict != Deny {
		t.Errorf("zero host under any: true: got %v, want deny", got.Verdict)
	}
	empty := mustCompile(t, policy.Network{})
	if got := empty.Connection(h, 443); got.Verdict != Deny || got.Mode != ModeInspect {
		t.Errorf("empty policy: got %v %v, want deny inspect", got.Verdict, got.Mode)
	}
}

func TestRulesAddUp(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "deny late", Host: "**.a.test", Deny: []policy.Match{{Paths: []string{"/secret/**"}}}},
		{Name: "read", Host: "x.a.test", Access: "read-only"},
		{Name: "post", Host: "*.a.test", Allow: []policy.Match{{Methods: []string{"POST"}, Paths: []string{"/secret/x", "/p"}}}},
	}})
	for _, tt := range []struct {
		method, url, rule string
		verdict           Verdict
	}{
		{"GET", "x.a.test/", "deny late", Allow},
		{"POST", "x.a.test/secret/x", "deny late", Deny},
		{"GET", "x.a.test/secret", "deny late", Deny},
		{"DELETE", "x.a.test/p", "deny late", Allow},
	} {
		got := e.Request(request(t, tt.method, tt.url))
		if got.Verdict != tt.verdict || got.Rule != tt.rule {
			t.Errorf("%s %s: got %v by %q, want %v by %q", tt.method, tt.url, got.Verdict, got.Rule, tt.verdict, tt.rule)
		}
	}
}

func TestHints(t *testing.T) {
	e := mustCompile(t, example())
	tests := []struct {
		name string
		got  Decision
		want string
	}{
		{"host", e.Connection(mustHost(t, "api.example.org"), 443), "add under network.rules: {name: NAME, host: api.example.org}"},
		{"port", e.Connection(mustHost(t, "api.example.org"), 8080), "add under network.rules: {name: NAME, host: api.example.org, ports: [8080]}"},
		{"ssh", e.Connection(mustHost(t, "api.example.org"), 22), "add under network.rules: {name: NAME, host: api.example.org, ports: [22], protocol: tcp}"},
		{"IPv6", e.Connection(mustHost(t, "2606:4700::1"), 443), `add under network.rules: {name: NAME, host: "2606:4700::1"}`},
		{"listed host", e.Connection(mustHost(t, "plain.test"), 8080), `add 8080 to the ports of rule "plain"`},
		{
			"request", e.Request(request(t, "POST", "read.test/a*b")),
			`add under network.rules: {name: NAME, host: read.test, allow: [{methods: ["POST"], paths: ["/a%2Ab"]}]}`,
		},
		{"address", e.Address(netip.MustParseAddr("10.1.1.1"), 5432), `add under network.private: {cidr: "10.1.1.1", ports: [5432], reason: WHY}`},
		{"metadata", e.Address(netip.MustParseAddr("169.254.169.254"), 80), ""},
		{"denied host", e.Connection(mustHost(t, "secret.github.test"), 443), ""},
	}
	for _, tt := range tests {
		if tt.got.Hint != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got.Hint, tt.want)
		}
	}
}

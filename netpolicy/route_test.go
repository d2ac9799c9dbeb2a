package netpolicy

import (
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func compileRoutes(t testing.TB, n policy.Network, routes ...policy.Route) *Engine {
	t.Helper()
	e, err := Compile(n, routes...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRoutes(t *testing.T) {
	e := compileRoutes(t,
		policy.Network{
			Rules: []policy.Rule{
				{Name: "any", Any: true, Ports: []int{80, 443, 8080, 11434}, Deny: []policy.Match{{Paths: []string{"/admin/**"}}}},
				{Name: "live", Any: true, Protocol: policy.ProtocolWebSocket},
			},
			Deny: []policy.HostRule{{Host: "denied.test"}},
		},
		policy.Route{Name: "one", Provider: "openai-compatible", Host: "api.test", Base: "/api/v1", Credential: "key"},
		policy.Route{Name: "two", Provider: "anthropic", Host: "api.test", Base: "/api/anthropic", Credential: "other"},
		policy.Route{Provider: "local", Host: "models", Port: 11434, Plain: true},
		policy.Route{Name: "denied", Provider: "gemini", Host: "denied.test"},
	)
	at := func(method, url string, port uint16) Request {
		r := request(t, method, url)
		r.Port = port
		return r
	}
	socket := at("GET", "api.test/v1/realtime", 443)
	socket.WebSocket = true
	for _, tt := range []struct {
		name       string
		r          Request
		want       Verdict
		route      int // -2: no claim
		credential string
		reason     string
	}{
		{"first base", at("POST", "api.test/api/v1/chat/completions", 443), Allow, 0, "key", `route "one"`},
		{"second base", at("POST", "api.test/api/anthropic/v1/messages", 443), Allow, 1, "other", `route "two"`},
		{"below neither", at("GET", "api.test/keys", 443), Allow, 0, "key", `route "one"`},
		{"near a base", at("GET", "api.test/api/anthropic2/x", 443), Allow, 0, "key", ""},
		{"denied by a rule", at("GET", "api.test/admin/x", 443), Deny, -2, "", `rule "any" denies`},
		{"on another port", at("GET", "api.test/x", 8080), Allow, -2, "", `rule "any"`},
		{"plain", at("POST", "models/api/chat", 11434), Allow, 2, "", `route "inference.routes[2]"`},
		{"inner name", at("POST", "inference.internal/v1/chat/completions", 80), Allow, -1, "", ""},
		{"inner name with TLS", at("POST", "inference.internal/v1/chat/completions", 443), Allow, -1, "", ""},
		{"inner name in another spelling", at("POST", "Inference.INTERNAL./v1", 443), Allow, -1, "", ""},
		{"inner name on another port", at("POST", "inference.internal/v1", 8080), Deny, -2, "", "ports 80 and 443"},
		{"below the inner name", at("POST", "x.inference.internal/v1", 443), Allow, -2, "", `rule "any"`},
		{"denied host", at("POST", "denied.test/v1", 443), Deny, -2, "", "network.deny[0]"},
		{"upgrade", socket, Deny, -2, "", "claims it as"},
		{"escaped slash", at("POST", "api.test/v1/a%2Fb", 443), Deny, -2, "", "an escaped slash is not that of inference"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := e.Request(tt.r)
			check(t, got, tt.want, tt.reason)
			if got.Credential != tt.credential {
				t.Errorf("got credential %q, want %q", got.Credential, tt.credential)
			}
			route := -2
			if got.Claim != nil {
				route = got.Claim.Route
				if !got.Claim.Inference || got.Claim.Protocol != "" {
					t.Errorf("got claim %+v, want one of inference", got.Claim)
				}
			}
			if route != tt.route {
				t.Errorf("got route %d, want %d", route, tt.route)
			}
			if c := e.Connection(tt.r.Host, tt.r.Port); tt.want == Allow && tt.route > -2 && c.Mode != ModeInspect {
				t.Errorf("connection: got %v %v, want inspect", c.Verdict, c.Mode)
			}
		})
	}
}

func TestInnerNameNeedsARoute(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{{Name: "any", Any: true}}})
	got := e.Request(request(t, "POST", "inference.internal/v1"))
	check(t, got, Deny, "has no route")
	if !strings.Contains(got.Hint, "inference.routes") {
		t.Errorf("got hint %q, want one about inference.routes", got.Hint)
	}
	if c := e.Connection(mustHost(t, InnerInference), 443); c.Verdict != Deny || c.Mode != ModeInspect {
		t.Errorf("connection: got %v %v, want deny inspect", c.Verdict, c.Mode)
	}
}

// A route's address is judged like any other.
func TestRouteOpensNoAddress(t *testing.T) {
	route := policy.Route{Provider: "local", Host: "10.0.0.9", Port: 8000, Plain: true}
	r := request(t, "POST", "10.0.0.9/v1/chat/completions")
	r.Port = 8000
	check(t, compileRoutes(t, policy.Network{}, route).Request(r), Deny, "address 10.0.0.9 is private")
	opened := policy.Network{Private: []policy.PrivateRange{{CIDR: "10.0.0.9", Ports: []int{8000}}}}
	check(t, compileRoutes(t, opened, route).Request(r), Allow, "")
}

func TestRouteErrors(t *testing.T) {
	one := func(r policy.Rule) policy.Network {
		r.Name = "r"
		return policy.Network{Rules: []policy.Rule{r}}
	}
	route := policy.Route{Name: "m", Provider: "openai-compatible", Host: "api.test"}
	for _, tt := range []struct {
		name   string
		n      policy.Network
		routes []policy.Route
		want   string // "": none
	}{
		{"rule for the host", one(policy.Rule{Host: "api.test", Access: "full"}), []policy.Route{route}, `rule "r" is for api.test, where route "m" allows inference alone`},
		{"mcp for the host", one(policy.Rule{Host: "api.test", Protocol: policy.ProtocolMCP, Paths: []string{"/mcp"}}), []policy.Route{route}, "allows inference alone"},
		{"among several hosts", one(policy.Rule{Hosts: []policy.Name{{Text: "**.test"}, {Text: "api.test"}}}), []policy.Route{route}, "allows inference alone"},
		{"on another port", one(policy.Rule{Host: "api.test", Ports: []int{8443}}), []policy.Route{route}, ""},
		{"wildcard", one(policy.Rule{Host: "*.test", Access: "full"}), []policy.Route{route}, ""},
		{"mcp everywhere", one(policy.Rule{Any: true, Protocol: policy.ProtocolMCP}), []policy.Route{route}, `speaks mcp at any, where rule "m" speaks inference`},
		{"passed on", one(policy.Rule{Host: "*.test", TLS: policy.TLSPass}), []policy.Route{route}, "passes *.test unread"},
		{"tcp", one(policy.Rule{Host: "api.test", Protocol: policy.ProtocolTCP, Ports: []int{443}}), []policy.Route{route}, "unread (protocol: tcp)"},
		{"inner name in a rule", one(policy.Rule{Host: "inference.internal"}), nil, "is the inner name of inference.routes"},
		{"inner name in a route", policy.Network{}, []policy.Route{{Host: "inference.internal"}}, "write the provider's own host"},
		{"inner name pinned", policy.Network{Hosts: map[string][]string{"inference.internal": {"192.0.2.1"}}}, nil, "has no address"},
		{"wildcard route", policy.Network{}, []policy.Route{{Host: "*.api.test"}}, "without wildcards"},
		{"no host", policy.Network{}, []policy.Route{{}}, "inference.routes[0].host"},
		{"bad port", policy.Network{}, []policy.Route{{Host: "a.test", Port: 70000}}, "inference.routes[0].port"},
		{"same base", policy.Network{}, []policy.Route{route, {Host: "api.test", Base: "/v1/"}}, "has the same host, port and base"},
		{"other base", policy.Network{}, []policy.Route{route, {Host: "api.test", Base: "/v2"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.n, tt.routes...)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

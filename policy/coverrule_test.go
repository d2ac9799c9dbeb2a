package policy

import (
	"reflect"
	"testing"
)

func TestCoversPattern(t *testing.T) {
	tests := []struct {
		floor, pattern string
		want           bool
	}{
		{"a", "a", true},
		{"**", "a/b/*", true},
		{"*", "a", true},
		{"*", "a*b", true},
		{"*", "a/b", false},
		{"*", "**", false},
		{"acme/*", "acme/tool", true},
		{"acme/*", "acme/*", true},
		{"acme/*", "acme/a/b", false},
		{"acme/*", "acme/**", false},
		{"acme/**", "acme/**", true},
		{"acme/**", "acme/a/b", true},
		{"acme/**", "acme", false},
		{"acme/**", "other/x", false},
		{"acme/**", "**", false},
		{"acme/**", "*/x", false},
		{"/v1/**", "/v1/x/*", true},
		{"/**", "/v1", true},
		{"refs/heads/agent/*", "refs/heads/*", false},
		{"gpt-5*", "gpt-5-mini", true},
		{"gpt-5*", "gpt-*", false},
		{"a/**/b", "a/x/b", false}, // true, but not seen: refused
	}
	for _, tt := range tests {
		if got := coversPattern(tt.floor, tt.pattern); got != tt.want {
			t.Errorf("coversPattern(%q, %q): got %v, want %v", tt.floor, tt.pattern, got, tt.want)
		}
	}
}

// Whatever a clause of the floor states, a clause without it allows more. A
// field that coversMatch forgot fails here.
func TestCoversMatchKnowsEveryField(t *testing.T) {
	values := map[reflect.Type]reflect.Value{
		reflect.TypeFor[[]string]():          reflect.ValueOf([]string{"x"}),
		reflect.TypeFor[map[string]string](): reflect.ValueOf(map[string]string{"/x": "y"}),
		reflect.TypeFor[Size]():              reflect.ValueOf(Size(1)),
		reflect.TypeFor[string]():            reflect.ValueOf("push"),
	}
	for _, f := range fieldsOf(reflect.TypeFor[Match]()) {
		v, ok := values[f.typ]
		if !ok {
			t.Fatalf("%s: got type %v, want one that the test knows", f.key, f.typ)
		}
		p := ProtocolHTTP
		if f.key == "max_message" {
			p = ProtocolWebSocket
		}
		var bound Match
		reflect.ValueOf(&bound).Elem().Field(f.index).Set(v)
		if coversMatch(p, bound, Match{}) {
			t.Errorf("%s: got a clause without it covered, want not", f.key)
		}
		if !coversMatch(p, bound, bound) {
			t.Errorf("%s: got a clause not covered by itself, want covered", f.key)
		}
		if !coversMatch(p, Match{}, bound) {
			t.Errorf("%s: got a bounded clause not covered by an empty one, want covered", f.key)
		}
	}
}

// The same for the fields of a route.
func TestCoversRouteKnowsEveryField(t *testing.T) {
	base := Route{Provider: "anthropic", Host: "a.example.org"}
	for _, tt := range []struct {
		name        string
		floor, mine func(*Route)
		want        bool
	}{
		{"the same", nil, nil, true},
		{"provider", nil, func(r *Route) { r.Provider = "gemini" }, false},
		{"host", nil, func(r *Route) { r.Host = "b.example.org" }, false},
		{"port", nil, func(r *Route) { r.Port = 8443 }, false},
		{"the port that it has anyway", nil, func(r *Route) { r.Port = 443 }, true},
		{"plain", nil, func(r *Route) { r.Plain, r.Port = true, 443 }, false},
		{"base", nil, func(r *Route) { r.Base = "/x" }, false},
		{"models", func(r *Route) { r.Models = []string{"a*"} }, nil, false},
		{"fewer models", func(r *Route) { r.Models = []string{"a*"} }, func(r *Route) { r.Models = []string{"ab"} }, true},
		{"credential", func(r *Route) { r.Credential = "x" }, nil, false},
		{"tokens", func(r *Route) { r.MaxOutputTokens = 5 }, nil, false},
		{"fewer tokens", func(r *Route) { r.MaxOutputTokens = 5 }, func(r *Route) { r.MaxOutputTokens = 4 }, true},
		{"fetching", nil, func(r *Route) { r.RemoteFetch = true }, false},
		{"server's tools", func(r *Route) { r.ServerTools = []string{"web_*"} }, func(r *Route) { r.ServerTools = []string{"code"} }, false},
		{"fewer of them", func(r *Route) { r.ServerTools = []string{"web_*"} }, func(r *Route) { r.ServerTools = []string{"web_search"} }, true},
		{"headers", nil, func(r *Route) { r.Headers = []string{"X-A"} }, false},
		{"name", nil, func(r *Route) { r.Name = "n" }, true},
		{"new names of models", nil, func(r *Route) { r.Rename = map[string]string{"a": "b"} }, true},
	} {
		f, r := base, base
		if tt.floor != nil {
			tt.floor(&f)
		}
		if tt.mine != nil {
			tt.mine(&r)
		}
		if got := coversRoute(f, r); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if got, want := reflect.TypeFor[Route]().NumField(), 14; got != want {
		t.Errorf("fields of a route: got %d, want %d: coversRoute must know each", got, want)
	}
}

func TestFloorOfProtocols(t *testing.T) {
	const git = `{name: x, host: g.org, ports: [443], protocol: git, allow: [{op: fetch, repos: ["acme/a"]}]}`
	tests := []struct {
		name, floor, rule string
		want              bool
	}{
		{"the same", git, git, true},
		{"wider repositories", `{name: f, host: g.org, protocol: git, allow: [{repos: ["acme/*"]}]}`, git, true},
		{"any clause is enough", `{name: f, host: g.org, protocol: git, allow: [{op: push}, {repos: ["acme/**"]}]}`, git, true},
		{"no clause", `{name: f, host: g.org, protocol: git}`, git, true},
		{"other repositories", `{name: f, host: g.org, protocol: git, allow: [{repos: ["other/*"]}]}`, git, false},
		{"other operation", `{name: f, host: g.org, protocol: git, allow: [{op: push, repos: ["acme/*"]}]}`, git, false},
		{"another protocol", `{name: f, host: g.org, protocol: mcp}`, git, false},
		{"inspected http", `{name: f, host: g.org, access: full}`, git, false},
		{"passed", `{name: f, host: g.org}`, git, true},
		{"bytes", `{name: f, host: g.org, ports: [443], protocol: tcp}`, git, true},
		{"http under a protocol", `{name: f, host: g.org, protocol: git}`, `{name: x, host: g.org, access: read-only}`, false},
		{"passed under a protocol", `{name: f, host: g.org, protocol: git}`, `{name: x, host: g.org}`, false},
		{"port 80 is read", `{name: f, host: g.org}`, `{name: x, host: g.org, ports: [80], protocol: git}`, false},
		{"no clause under one", `{name: f, host: g.org, protocol: git, allow: [{op: fetch}]}`, `{name: x, host: g.org, protocol: git}`, false},
		{"paths", `{name: f, host: g.org, protocol: mcp, paths: ["/a/*"]}`, `{name: x, host: g.org, protocol: mcp, paths: [/a/b]}`, true},
		{"other paths", `{name: f, host: g.org, protocol: mcp, paths: ["/a/*"]}`, `{name: x, host: g.org, protocol: mcp, paths: [/b]}`, false},
		{"all paths", `{name: f, host: g.org, protocol: mcp, paths: ["/a/*"]}`, `{name: x, host: g.org, protocol: mcp}`, false},
		{"graphql's own path", `{name: f, host: g.org, protocol: graphql}`, `{name: x, host: g.org, protocol: graphql}`, true},
		{"graphql elsewhere", `{name: f, host: g.org, protocol: graphql}`, `{name: x, host: g.org, protocol: graphql, paths: [/api]}`, false},
		{"larger answers", `{name: f, host: g.org, protocol: mcp}`, `{name: x, host: g.org, protocol: mcp, max_response: 17M}`, false},
		{"smaller answers", `{name: f, host: g.org, protocol: mcp}`, `{name: x, host: g.org, protocol: mcp, max_response: 1M}`, true},
		{"larger messages", `{name: f, host: g.org, protocol: websocket, allow: [{paths: [/ws]}]}`, `{name: x, host: g.org, protocol: websocket, allow: [{paths: [/ws], max_message: 2M}]}`, false},
		{"tools mean their call", `{name: f, host: g.org, protocol: mcp, allow: [{calls: ["tools/*"]}]}`, `{name: x, host: g.org, protocol: mcp, allow: [{tools: [a]}]}`, true},
		{"calls beyond tools", `{name: f, host: g.org, protocol: mcp, allow: [{tools: [a]}]}`, `{name: x, host: g.org, protocol: mcp, allow: [{calls: ["**"], tools: [a]}]}`, false},
		{"arguments dropped", `{name: f, host: g.org, protocol: mcp, allow: [{tools: [a], args: {/p: "x*"}}]}`, `{name: x, host: g.org, protocol: mcp, allow: [{tools: [a]}]}`, false},
		{"arguments narrowed", `{name: f, host: g.org, protocol: mcp, allow: [{tools: [a], args: {/p: "x*"}}]}`, `{name: x, host: g.org, protocol: mcp, allow: [{tools: [a], args: {/p: xy, /q: z}}]}`, true},
		{"encoded slash", `{name: f, host: g.org, access: full}`, `{name: x, host: g.org, access: full, encoded_slash: true}`, false},
		{"methods narrowed", `{name: f, host: g.org, allow: [{methods: [GET, POST], paths: ["/a/**"]}]}`, `{name: x, host: g.org, allow: [{methods: [GET], paths: ["/a/b/*"]}]}`, true},
		{"methods widened", `{name: f, host: g.org, allow: [{methods: [GET]}]}`, `{name: x, host: g.org, allow: [{methods: [GET, POST]}]}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.mustLoad("version: 1\nextends: []\nnetwork: {rules: [" + tt.rule + "]}\n")
			_, ps := w.underFloor(p, "network: {rules: ["+tt.floor+"]}")
			if got := len(ps) == 0; got != tt.want {
				t.Errorf("got %v, want allowed %v", ps, tt.want)
			}
		})
	}
}

func TestFloorOfRoutes(t *testing.T) {
	const route = "version: 1\nextends: []\ninference: {routes: [{provider: local, host: m.org, models: [a]}]}\n"
	tests := []struct {
		name, floor string
		want        bool
	}{
		{"says nothing", "limits: {pids: 5}", true},
		{"its route", `inference: {routes: [{provider: local, host: m.org}]}`, true},
		{"another route", `inference: {routes: [{provider: local, host: n.org}]}`, false},
		{"no route", `inference: {routes: []}`, false},
		{"a rule for the host", `network: {rules: [{name: f, host: m.org}]}`, true},
		{"rules for others", `network: {rules: [{name: f, host: n.org}]}`, false},
		{"no rule", `network: {rules: []}`, false},
		{"a rule that only reads", `network: {rules: [{name: f, host: m.org, access: read-only}]}`, false},
		{"rules for others, and its route", "network: {rules: []}\ninference: {routes: [{provider: local, host: m.org}]}", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			_, ps := w.underFloor(w.mustLoad(route), tt.floor)
			if got := len(ps) == 0; got != tt.want {
				t.Errorf("got %v, want allowed %v", ps, tt.want)
			}
		})
	}
}

// A floor replaces the credentials that a policy uses and adds none that
// nothing would use; its number of connections never raises the default.
func TestFloorOfTheRest(t *testing.T) {
	w := newWorld(t)
	p := w.mustLoad(fullText)
	got, ps := w.underFloor(p, `credentials:
  token: {source: {systemd: token}, attach: bearer, hosts: [api.example.org]}
  other: {source: {systemd: other}, attach: bearer, hosts: [api.example.org]}
network: {upstream: {connections_per_host: 500}, budget: {hosts: 5, bytes_out: 2G}}
inference: {budget: {money: 1}, hard_stop: {no_progress: 4, action: stop}}`)
	if len(ps) > 0 {
		t.Fatalf("got %v, want no problem", ps)
	}
	if _, added := got.Credentials["other"]; added || got.Credentials["token"].Source.Systemd != "token" || len(got.Credentials) != 3 {
		t.Errorf("credentials: got %+v, want the floor's token and no other", got.Credentials)
	}
	if n := got.Network.Upstream.ConnectionsPerHost; n != 64 {
		t.Errorf("connections: got %d, want 64", n)
	}
	if b := got.Network.Budget; b.Hosts != 5 || b.BytesOut != 1<<30 {
		t.Errorf("traffic: got %+v, want 5 hosts and 1G", b)
	}
	if in := got.Inference; in.Budget.Money != 1 || in.HardStop.NoProgress != 4 || in.HardStop.ExactFailure != 3 || in.HardStop.Action != "stop" {
		t.Errorf("inference: got %+v, want the floor's numbers", in)
	}
	bare := w.mustLoad("version: 1\nextends: []\n")
	if got, _ := w.underFloor(bare, `network: {upstream: {connections_per_host: 500}}`); got.Network.Upstream.ConnectionsPerHost != 128 {
		t.Errorf("connections: got %d, want the default", got.Network.Upstream.ConnectionsPerHost)
	}
}

// A project's file adds no credential, route or certificate and raises nothing.
func TestProjectOfNewSections(t *testing.T) {
	for name, text := range map[string]string{
		"credential":   `credentials: {token: {source: {env: OTHER}, attach: bearer, hosts: ["*.example.org"]}}`,
		"route":        `inference: {routes: [{provider: local, host: m.org}]}`,
		"certificate":  `network: {upstream: {certificates: [{hosts: [m.org], cert: ~/c, key: ~/k}]}}`,
		"proxy":        `network: {upstream: {proxy: "http://p.example.org:3128"}}`,
		"connections":  `network: {upstream: {connections_per_host: 65}}`,
		"bytes":        `network: {budget: {bytes_out: 2G}}`,
		"no bound":     `network: {budget: {hosts: 0}}`,
		"money":        `inference: {budget: {money: 6}}`,
		"price":        `inference: {prices: {"opus-*": {input: 0, output: 0}}}`,
		"circles":      `inference: {hard_stop: {exact_failure: 0}}`,
		"metrics":      `metrics: {socket: ~/other.sock}`,
		"protocol":     `network: {rules: [{name: n, host: h.org, protocol: git}]}`,
		"audit's size": `audit: {max_size: 1G}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write("work/.hermes-wrap.yaml", "version: 1\n"+text+"\n")
			if _, err := w.load(fullText); err == nil {
				t.Error("got no error, want it refused")
			}
		})
	}
	w := newWorld(t)
	w.write("work/.hermes-wrap.yaml", "version: 1\nnetwork: {budget: {hosts: 3}, upstream: {connections_per_host: 2}}\ninference: {budget: {requests: 9}, hard_stop: {no_progress: 2, action: stop}}\n")
	if p, err := w.load(fullText); err != nil || p.Network.Budget.Hosts != 3 || p.Inference.HardStop.Action != "stop" {
		t.Errorf("control: got %v and %+v, want the tighter numbers", err, p.Network.Budget)
	}
}

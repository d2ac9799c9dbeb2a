package netpolicy

import (
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestMCPCalls(t *testing.T) {
	c := claim(t, post(t, "mcp.test/mcp"), policy.Rule{
		Name: "tools", Host: "mcp.test", Protocol: policy.ProtocolMCP, Paths: []string{"/mcp"},
		Allow: []policy.Match{
			{Tools: []string{"search", "list_*"}},
			{Tools: []string{"read"}, Args: map[string]string{"/path": "src/**"}},
			{Calls: []string{"resources/*"}},
			{Tools: []string{"fetch"}, Args: map[string]string{"/url": "https://*.example.org/**", "/depth": "1"}},
			{Tools: []string{"run"}},
		},
		Deny: []policy.Match{
			{Tools: []string{"list_secrets"}},
			{Tools: []string{"run"}, Args: map[string]string{"/file": "/etc/**"}},
			{Tools: []string{"run"}, Args: map[string]string{"/mode": "7"}},
			{Calls: []string{"resources/subscribe"}},
		},
	})
	tests := []struct {
		name, method, tool, args string
		want                     Verdict
		reason                   string
	}{
		{"tool", "tools/call", "search", `{"q":"x"}`, Allow, `rule "tools" allows it`},
		{"tool by pattern", "tools/call", "list_users", "", Allow, ""},
		{"other tool", "tools/call", "delete", "", Deny, `rule "tools" does not allow this call of tool "delete"`},
		{"tool in another case", "tools/call", "Search", "", Deny, ""},
		{"tool with a space", "tools/call", "search ", "", Deny, ""},
		{"wildcard and a slash", "tools/call", "list_a/b", "", Deny, ""},
		{"wildcard and a control byte", "tools/call", "list_a\x00", "", Deny, ""},
		{"denied tool", "tools/call", "list_secrets", "", Deny, `rule "tools" denies this call of tool "list_secrets"`},
		{"denied tool in another case", "tools/call", "list_SECRETS", "", Deny, "denies"},
		{"denied tool with long s", "tools/call", "list_ſecrets", "", Deny, "denies"},
		{"no tool", "tools/call", "", "", Deny, "names no tool"},

		{"argument", "tools/call", "read", `{"path":"src/a/b.go"}`, Allow, ""},
		{"argument missing", "tools/call", "read", `{}`, Deny, ""},
		{"no arguments", "tools/call", "read", "", Deny, ""},
		{"argument in another case", "tools/call", "read", `{"Path":"src/a","path":"src/a"}`, Deny, ""},
		{"argument of another kind", "tools/call", "read", `{"path":["src/a"]}`, Deny, ""},
		{"null argument", "tools/call", "read", `{"path":null}`, Deny, ""},
		{"dots", "tools/call", "read", `{"path":"src/../../etc/passwd"}`, Deny, ""},
		{"dot", "tools/call", "read", `{"path":"src/./a"}`, Deny, ""},
		{"empty segment", "tools/call", "read", `{"path":"src//a"}`, Deny, ""},
		{"backslash", "tools/call", "read", `{"path":"src/..\\..\\etc"}`, Deny, ""},
		{"NUL", "tools/call", "read", `{"path":"src/a\u0000b"}`, Deny, ""},
		{"line feed", "tools/call", "read", `{"path":"src/a\nb"}`, Deny, ""},
		{"escaped dots", "tools/call", "read", `{"path":"src/%2e%2e/x"}`, Deny, ""},
		{"escaped slash", "tools/call", "read", `{"path":"src/..%2fx"}`, Deny, ""},
		{"twice escaped", "tools/call", "read", `{"path":"src/%252e%252e/x"}`, Deny, ""},
		{"dots and a space", "tools/call", "read", `{"path":"src/.. /x"}`, Deny, ""},
		{"other root", "tools/call", "read", `{"path":"/src/a"}`, Deny, ""},
		{"prefix", "tools/call", "read", `{"path":"src2/a"}`, Deny, ""},

		{"URL", "tools/call", "fetch", `{"url":"https://www.example.org/a","depth":1}`, Allow, ""},
		{"URL with a fragment for a host", "tools/call", "fetch", `{"url":"https://evil.test#.example.org/a","depth":1}`, Deny, ""},
		{"URL with a query for a host", "tools/call", "fetch", `{"url":"https://evil.test?.example.org/a","depth":1}`, Deny, ""},
		{"URL with user info", "tools/call", "fetch", `{"url":"https://x@evil.example.org/a","depth":1}`, Deny, ""},
		{"other number", "tools/call", "fetch", `{"url":"https://www.example.org/a","depth":10}`, Deny, ""},
		{"number in another spelling", "tools/call", "fetch", `{"url":"https://www.example.org/a","depth":1.0}`, Deny, ""},

		{"near a denied argument", "tools/call", "run", `{"file":"/home/x"}`, Allow, ""},
		{"denied argument", "tools/call", "run", `{"file":"/etc/passwd"}`, Deny, "denies"},
		{"denied with dots", "tools/call", "run", `{"file":"/home/../etc/passwd"}`, Deny, "denies"},
		{"denied with slashes", "tools/call", "run", `{"file":"//etc//passwd"}`, Deny, "denies"},
		{"denied with backslashes", "tools/call", "run", `{"file":"\\etc\\passwd"}`, Deny, "denies"},
		{"denied in another case", "tools/call", "run", `{"file":"/ETC/passwd"}`, Deny, "denies"},
		{"denied with escapes", "tools/call", "run", `{"file":"/%65tc/passwd"}`, Deny, "denies"},
		{"denied with a broken escape", "tools/call", "run", `{"file":"/%65tc/100%"}`, Deny, "denies"},
		{"denied up to a NUL", "tools/call", "run", `{"file":"/etc/passwd\u0000/../../home"}`, Deny, "denies"},
		{"denied with a space at the end", "tools/call", "run", `{"file":"/etc /passwd"}`, Deny, "denies"},
		{"denied with two layers of escapes", "tools/call", "run", `{"file":"/%2565tc/passwd"}`, Deny, "denies"},
		{"denied with invisible characters", "tools/call", "run", `{"file":"/e\u200btc/passwd"}`, Deny, "denies"},
		{"denied relative to the root", "tools/call", "run", `{"file":"../../etc/passwd"}`, Deny, "denies"},
		{"denied in a list", "tools/call", "run", `{"file":["/tmp/x","/etc/passwd"]}`, Deny, "denies"},
		{"denied in an object", "tools/call", "run", `{"file":{"path":"/etc/passwd"}}`, Deny, "denies"},
		{"denied name in another case", "tools/call", "run", `{"File":"/etc/passwd"}`, Deny, "denies"},
		{"denied number", "tools/call", "run", `{"mode":7}`, Deny, "denies"},
		{"denied number in another spelling", "tools/call", "run", `{"mode":0.7e1}`, Deny, "denies"},
		{"denied number as text", "tools/call", "run", `{"mode":"7"}`, Deny, "denies"},

		{"method", "resources/read", "", "", Allow, ""},
		{"denied method", "resources/subscribe", "", "", Deny, `denies call "resources/subscribe"`},
		{"denied method in another case", "resources/Subscribe", "", "", Deny, "denies"},
		{"other method", "prompts/get", "", "", Deny, `does not allow call "prompts/get"`},
		{"extension", "x-admin/reset", "", "", Deny, ""},
		{"method in another case", "Tools/Call", "search", "", Deny, "is not spelt tools/call"},
		{"method with a slash", "tools/call/", "search", "", Deny, "is not spelt tools/call"},
		{"method with a space", "tools/call ", "search", "", Deny, "is not spelt tools/call"},
		{"no method", "", "", "", Deny, "names no method"},
		{"initialize", "initialize", "", "", Allow, ""},
		{"ping", "ping", "", "", Allow, ""},
		{"notification", "notifications/initialized", "", "", Allow, ""},
		{"deep notification", "notifications/roots/list_changed", "", "", Allow, ""},
		{"dotted notification", "notifications/../tools/list", "", "", Deny, ""},
		{"list of tools", "tools/list", "", "", Allow, ""},
		{"completion", "completion/complete", "", "", Allow, ""},
		{"initialize in another case", "Initialize", "", "", Deny, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, c.Call(Call{Method: tt.method, Tool: tt.tool, Args: mustJSON(t, tt.args)}), tt.want, tt.reason)
		})
	}
	for tool, want := range map[string]bool{"search": true, "read": true, "run": true, "list_a": true, "list_secrets": false, "List_Secrets": false, "other": false, "": false} {
		if got := c.Shows(tool); got != want {
			t.Errorf("Shows(%q): got %v, want %v", tool, got, want)
		}
	}
}

func TestMCPHead(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "mcp", Host: "mcp.test", Protocol: policy.ProtocolMCP, Paths: []string{"/mcp", "/sse/*"}, MaxResponse: 1000},
		{Name: "web", Host: "mcp.test", Access: "full", Deny: []policy.Match{{Headers: []string{"X-Bad"}}}},
		{Name: "shut", Host: "shut.test", Protocol: policy.ProtocolMCP, Allow: []policy.Match{}},
		{Name: "quiet", Host: "quiet.test", Protocol: policy.ProtocolMCP, Allow: []policy.Match{{Tools: []string{"a"}}}, Deny: []policy.Match{{Calls: []string{"ping", "notifications/**"}}}},
	}})
	bad := post(t, "mcp.test/mcp")
	bad.Header = map[string][]string{"X-Bad": {"1"}}
	tests := []struct {
		name    string
		request Request
		want    Verdict
		claimed bool
		reason  string
	}{
		{"POST", post(t, "mcp.test/mcp"), Allow, true, ""},
		{"GET", request(t, "GET", "mcp.test/sse/x"), Allow, true, ""},
		{"DELETE", request(t, "DELETE", "mcp.test/mcp"), Allow, true, ""},
		{"PUT", request(t, "PUT", "mcp.test/mcp"), Deny, false, "method PUT is not that of mcp"},
		{"with a slash", post(t, "mcp.test/mcp/"), Deny, false, `claimed by rule "mcp"`},
		{"in capitals", post(t, "mcp.test/MCP"), Deny, false, `claimed by rule "mcp"`},
		{"with a parameter", post(t, "mcp.test/mcp;x"), Deny, false, `claimed by rule "mcp"`},
		{"elsewhere", post(t, "mcp.test/other"), Allow, false, `rule "web" allows it`},
		{"denied by an http rule", bad, Deny, false, `rule "web" denies`},
		{"empty allow", post(t, "shut.test/"), Deny, false, `rule "shut" does not allow any message`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := e.Request(tt.request)
			check(t, got, tt.want, tt.reason)
			if (got.Claim != nil) != tt.claimed {
				t.Errorf("got claim %v, want %v", got.Claim, tt.claimed)
			}
		})
	}
	c := e.Request(tests[0].request).Claim
	check(t, c.Call(Call{Method: "anything/new"}), Allow, "")
	if got := c.MaxResponse(); got != 1000 {
		t.Errorf("MaxResponse: got %d, want 1000", got)
	}
	quiet := e.Request(post(t, "quiet.test/")).Claim
	check(t, quiet.Call(Call{Method: "initialize"}), Allow, "")
	check(t, quiet.Call(Call{Method: "ping"}), Deny, `rule "quiet" denies`)
	check(t, quiet.Call(Call{Method: "notifications/cancelled"}), Deny, `rule "quiet" denies`)
}

// A denial names one thing to do, and none that would allow more than it must.
func TestMessageHints(t *testing.T) {
	socket := request(t, "GET", "all.test/live")
	socket.WebSocket = true
	mcp := claim(t, post(t, "all.test/"), policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolMCP, Allow: []policy.Match{
		{Tools: []string{"read"}, Args: map[string]string{"/path": "src/**"}},
	}, Deny: []policy.Match{{Tools: []string{"evil"}}}})
	git := claim(t, post(t, "all.test/acme/site/git-receive-pack"), policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolGit, Allow: []policy.Match{{Refs: []string{"refs/heads/a"}}}})
	ql := claim(t, post(t, "all.test/graphql"), policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolGraphQL, Allow: []policy.Match{{Fields: []string{"a"}}}})
	for _, tt := range []struct {
		name   string
		d      Decision
		reason string
		hint   string
	}{
		{"tool", mcp.Call(Call{Method: "tools/call", Tool: "search"}), `rule "r" does not allow this call of tool "search"`, `add under allow of rule "r": {tools: ["search"]}`},
		{"strange tool", mcp.Call(Call{Method: "tools/call", Tool: "a*"}), `tool "a*"`, ""},
		{"argument", mcp.Call(Call{Method: "tools/call", Tool: "read"}), `this call of tool "read" (/path must fit "src/**")`, ""},
		{"call", mcp.Call(Call{Method: "resources/list"}), `does not allow call "resources/list"`, `add under allow of rule "r": {calls: ["resources/list"]}`},
		{"denied", mcp.Call(Call{Method: "tools/call", Tool: "evil"}), `rule "r" denies this call`, ""},
		{"ref", git.Git(GitRequest{Op: "push", Repo: "acme/site", Refs: []string{"refs/heads/b"}}), "push of acme/site to refs/heads/b", `add under allow of rule "r": {op: push, repos: ["acme/site"], refs: ["refs/heads/b"]}`},
		{"field", ql.Operation(Operation{"query", "", []string{"b"}}), "query of b", `add under allow of rule "r": {operations: [query], fields: ["b"]}`},
		{"upgrade", mustCompile(t, policy.Network{}).Request(socket), "no rule allows an upgrade", `add under network.rules: {name: NAME, host: all.test, protocol: websocket, paths: ["/live"]}`},
	} {
		check(t, tt.d, Deny, tt.reason)
		if tt.d.Hint != tt.hint {
			t.Errorf("%s: got hint %s, want %s", tt.name, tt.d.Hint, tt.hint)
		}
	}
}

// The spellings that a denial sees take no more than a moment, however long the
// text is that the agent sends.
func TestLongTextIsJudgedAtOnce(t *testing.T) {
	g := fixedText("**/a/**/b*b/**/c")
	for name, part := range map[string]string{"slashes": "/", "escapes": "%2561/", "letters": "bB", "segments": "a/b/"} {
		text := strings.Repeat(part, min((1<<20)/len(part), maxParts/2-1))
		start := time.Now()
		if g.fits(text) || g.touches(text) {
			t.Errorf("%s: got a match, want none", name)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

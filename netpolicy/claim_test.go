package netpolicy

import (
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// claim gives the claim of a request that the rules allow.
func claim(t testing.TB, r Request, rules ...policy.Rule) *Claim {
	t.Helper()
	d := mustCompile(t, policy.Network{Rules: rules}).Request(r)
	if d.Verdict != Allow || d.Claim == nil {
		t.Fatalf("got %v %q with claim %v, want one that allows", d.Verdict, d.Reason, d.Claim)
	}
	return d.Claim
}

func post(t testing.TB, url string) Request { return request(t, "POST", url) }

func mustJSON(t testing.TB, s string) strictjson.Value {
	t.Helper()
	if s == "" {
		return strictjson.Value{}
	}
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// check compares a verdict and a part of its reason.
func check(t *testing.T, got Decision, want Verdict, reason string) {
	t.Helper()
	if got.Verdict != want || !strings.Contains(got.Reason, reason) {
		t.Errorf("got %v %q, want %v with %q", got.Verdict, got.Reason, want, reason)
	}
	if got.Mode != ModeInspect || got.Reason == "" {
		t.Errorf("got mode %v and reason %q, want inspect and some", got.Mode, got.Reason)
	}
}

func TestJSONRPC(t *testing.T) {
	c := claim(t, post(t, "rpc.test/rpc"), policy.Rule{
		Name: "rpc", Host: "rpc.test", Protocol: policy.ProtocolJSONRPC, Paths: []string{"/rpc"},
		Allow: []policy.Match{{Calls: []string{"eth_get*", "eth_call"}}, {Calls: []string{"eth_send"}, Args: map[string]string{"/0/to": "0xabc"}}},
		Deny:  []policy.Match{{Calls: []string{"eth_getProof"}}, {Calls: []string{"eth_call"}, Args: map[string]string{"/to": "0xbad"}}, {Calls: []string{"eth_call"}, Args: map[string]string{"/1": "latest"}}},
	})
	for _, tt := range []struct {
		method, args string
		want         Verdict
	}{
		{"eth_getBalance", "", Allow},
		{"eth_getProof", "", Deny},
		{"eth_call", `{"to":"0xabc"}`, Allow},
		{"eth_call", `{"to":"0xBAD"}`, Deny},
		{"eth_call", `["0xbad"]`, Deny},
		{"eth_call", `["0xabc","early"]`, Allow},
		{"eth_call", `["0xabc","latest"]`, Deny},
		{"eth_call", `{"to":"0xabc","block":"latest"}`, Deny},
		{"eth_GETPROOF", "", Deny},
		{"Eth_call", "", Deny},
		{"eth_send", `[{"to":"0xabc"}]`, Allow},
		{"eth_send", `[{"to":"0xabd"}]`, Deny},
		{"eth_send", `[]`, Deny},
		{"initialize", "", Deny},
		{"", "", Deny},
	} {
		if got := c.Call(Call{Method: tt.method, Args: mustJSON(t, tt.args)}); got.Verdict != tt.want {
			t.Errorf("%s %s: got %v %q, want %v", tt.method, tt.args, got.Verdict, got.Reason, tt.want)
		}
	}
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{{Name: "rpc", Host: "rpc.test", Protocol: policy.ProtocolJSONRPC}}})
	check(t, e.Request(request(t, "GET", "rpc.test/x")), Deny, "method GET is not that of jsonrpc")
}

func TestGRPC(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{
			Name: "grpc", Host: "g.test", Protocol: policy.ProtocolGRPC,
			Allow: []policy.Match{{Calls: []string{"pkg.v1.Users/Get*", "pkg.v1.Log/*"}}}, Deny: []policy.Match{{Calls: []string{"pkg.v1.Log/Drop"}}},
		},
		{Name: "web", Host: "g.test", Access: "full"},
		{Name: "only", Host: "only.test", Protocol: policy.ProtocolGRPC},
	}})
	for _, tt := range []struct {
		name, method, url, contentType string
		want                           Verdict
		rule                           string
	}{
		{"call", "POST", "g.test/pkg.v1.Users/GetOne", "application/grpc", Allow, "grpc"},
		{"proto", "POST", "g.test/pkg.v1.Users/GetOne", "application/grpc+proto", Allow, "grpc"},
		{"other method", "POST", "g.test/pkg.v1.Users/Delete", "application/grpc", Deny, "grpc"},
		{"in another case", "POST", "g.test/pkg.v1.Users/Delete", "Application/GRPC+proto", Deny, "grpc"},
		{"web", "POST", "g.test/pkg.v1.Users/Delete", "application/grpc-web-text", Deny, "grpc"},
		{"in a list", "POST", "g.test/pkg.v1.Users/Delete", "text/plain, application/grpc", Deny, "grpc"},
		{"denied", "POST", "g.test/pkg.v1.Log/Drop", "application/grpc", Deny, "grpc"},
		{"denied in another case", "POST", "g.test/pkg.v1.Log/DROP", "application/grpc", Deny, "grpc"},
		{"denied with a slash", "POST", "g.test/pkg.v1.Log/Drop/", "application/grpc", Deny, "grpc"},
		{"denied with an escape", "POST", "g.test/pkg.v1.Log/Dro%70", "application/grpc", Deny, "grpc"},
		{"GET", "GET", "g.test/pkg.v1.Users/GetOne", "application/grpc", Deny, "grpc"},
		{"one segment", "POST", "g.test/pkg.v1.Users", "application/grpc", Deny, "grpc"},
		{"three segments", "POST", "g.test/pkg.v1.Users/GetOne/x", "application/grpc", Deny, "grpc"},
		{"no gRPC", "POST", "g.test/pkg.v1.Users/Delete", "text/plain", Allow, "web"},
		{"all of it", "POST", "only.test/a.B/C", "application/grpc", Allow, "only"},
		{"no gRPC where only gRPC is", "POST", "only.test/a.B/C", "text/plain", Deny, "only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(t, tt.method, tt.url)
			r.Header = map[string][]string{"Content-Type": {tt.contentType}}
			got := e.Request(r)
			check(t, got, tt.want, "")
			if got.Rule != tt.rule {
				t.Errorf("got rule %q (%s), want %q", got.Rule, got.Reason, tt.rule)
			}
		})
	}
}

func TestGit(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{
			Name: "git", Host: "git.test", Protocol: policy.ProtocolGit,
			Allow: []policy.Match{
				{Op: "fetch", Repos: []string{"acme/*"}},
				{Op: "push", Repos: []string{"acme/site"}, Refs: []string{"refs/heads/agent/*"}},
			},
			Deny: []policy.Match{{Repos: []string{"acme/secret"}}, {Refs: []string{"refs/heads/agent/prod"}}},
		},
		{Name: "web", Host: "git.test", Access: "full"},
	}})
	for _, tt := range []struct {
		name, method, url string
		want              Verdict
		rule              string
	}{
		{"advertised fetch", "GET", "git.test/acme/site.git/info/refs?service=git-upload-pack", Allow, "git"},
		{"fetch", "POST", "git.test/acme/site.git/git-upload-pack", Allow, "git"},
		{"without .git", "POST", "git.test/acme/site/git-upload-pack", Allow, "git"},
		{"other owner", "POST", "git.test/evil/site.git/git-upload-pack", Deny, "git"},
		{"deeper", "POST", "git.test/acme/a/b.git/git-upload-pack", Deny, "git"},
		{"denied repository", "POST", "git.test/acme/secret.git/git-upload-pack", Deny, "git"},
		{"denied in another case", "POST", "git.test/acme/SECRET/git-upload-pack", Deny, "git"},
		{"advertised push", "GET", "git.test/acme/site/info/refs?service=git-receive-pack", Allow, "git"},
		{"push", "POST", "git.test/acme/site/git-receive-pack", Allow, "git"},
		{"push elsewhere", "POST", "git.test/acme/other/git-receive-pack", Deny, "git"},
		{"dumb", "GET", "git.test/acme/site.git/info/refs", Deny, "git"},
		{"two services", "GET", "git.test/acme/other.git/info/refs?service=git-upload-pack&service=git-receive-pack", Deny, "git"},
		{"service in another case", "GET", "git.test/acme/other.git/info/refs?service=git-upload-pack&Service=git-receive-pack", Deny, "git"},
		{"unknown service", "GET", "git.test/acme/site.git/info/refs?service=git-upload-archive", Deny, "git"},
		{"POST at the advertisement", "POST", "git.test/acme/other.git/info/refs?service=git-receive-pack", Deny, "git"},
		{"GET at the service", "GET", "git.test/acme/other.git/git-receive-pack", Deny, "git"},
		{"query at the service", "POST", "git.test/acme/site.git/git-upload-pack?service=git-receive-pack", Deny, "git"},
		{"with a slash", "POST", "git.test/acme/other.git/git-receive-pack/", Deny, "git"},
		{"with a parameter", "POST", "git.test/acme/other.git/git-receive-pack;x", Deny, "git"},
		{"in another case", "POST", "git.test/acme/other.git/Git-Receive-Pack", Deny, "git"},
		{"no repository", "POST", "git.test/git-upload-pack", Deny, "git"},
		{"escaped slash", "POST", "git.test/acme/other.git%2Fgit-receive-pack", Deny, "git"},
		{"another page", "GET", "git.test/acme/site", Allow, "web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := e.Request(request(t, tt.method, tt.url))
			check(t, got, tt.want, "")
			if got.Rule != tt.rule {
				t.Errorf("got rule %q (%s), want %q", got.Rule, got.Reason, tt.rule)
			}
		})
	}
	c := e.Request(post(t, "git.test/acme/site.git/git-receive-pack")).Claim
	if got := c.Target(); got.Op != "push" || got.Repo != "acme/site" || got.Refs != nil {
		t.Errorf("Target: got %+v, want a push to acme/site", got)
	}
	for _, tt := range []struct {
		refs []string
		want Verdict
	}{
		{[]string{"refs/heads/agent/a"}, Allow},
		{[]string{"refs/heads/agent/a", "refs/heads/agent/b"}, Allow},
		{[]string{"refs/heads/main"}, Deny},
		{[]string{"refs/heads/agent/a", "refs/heads/main"}, Deny},
		{[]string{"refs/heads/agent/prod"}, Deny},
		{[]string{"refs/heads/agent/PROD"}, Deny},
		{[]string{"refs/heads/agent/a/b"}, Deny},
		{[]string{"refs/heads/agent/.."}, Deny},
		{[]string{"refs/heads/agent/"}, Deny},
		{[]string{""}, Deny},
	} {
		if got := c.Git(GitRequest{Op: "push", Repo: "acme/site", Refs: tt.refs}); got.Verdict != tt.want {
			t.Errorf("push to %q: got %v %q, want %v", tt.refs, got.Verdict, got.Reason, tt.want)
		}
	}
	check(t, c.Git(GitRequest{Op: "clone", Repo: "acme/site"}), Deny, "neither fetch nor push")
}

func TestGraphQL(t *testing.T) {
	c := claim(t, post(t, "q.test/graphql"), policy.Rule{
		Name: "q", Host: "q.test", Protocol: policy.ProtocolGraphQL,
		Allow: []policy.Match{{Operations: []string{"query"}}, {Operations: []string{"mutation"}, Fields: []string{"add*", "close"}}, {Names: []string{"Watch*"}, Operations: []string{"subscription"}}},
		Deny:  []policy.Match{{Fields: []string{"secrets"}}, {Names: []string{"Evil"}}},
	})
	for _, tt := range []struct {
		name string
		o    Operation
		want Verdict
	}{
		{"query", Operation{"query", "", []string{"viewer"}}, Allow},
		{"denied field", Operation{"query", "", []string{"viewer", "secrets"}}, Deny},
		{"denied field in another case", Operation{"query", "", []string{"Secrets"}}, Deny},
		{"denied name", Operation{"query", "Evil", []string{"viewer"}}, Deny},
		{"mutation", Operation{"mutation", "M", []string{"addStar", "close"}}, Allow},
		{"one field too many", Operation{"mutation", "M", []string{"addStar", "deleteRepo"}}, Deny},
		{"named subscription", Operation{"subscription", "WatchAll", []string{"x"}}, Allow},
		{"subscription without a name", Operation{"subscription", "", []string{"x"}}, Deny},
		{"no field", Operation{"query", "", nil}, Deny},
		{"no kind", Operation{"", "", []string{"viewer"}}, Deny},
		{"kind in another case", Operation{"Query", "", []string{"viewer"}}, Deny},
	} {
		if got := c.Operation(tt.o); got.Verdict != tt.want {
			t.Errorf("%s: got %v %q, want %v", tt.name, got.Verdict, got.Reason, tt.want)
		}
	}
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{{Name: "q", Host: "q.test", Protocol: policy.ProtocolGraphQL}}})
	check(t, e.Request(request(t, "GET", "q.test/graphql?query=x")), Allow, "")
	check(t, e.Request(request(t, "DELETE", "q.test/graphql")), Deny, "method DELETE")
	check(t, e.Request(post(t, "q.test/other")), Deny, `rule "q" allows only graphql at /graphql`)
}

func TestWebSocket(t *testing.T) {
	upgrade := func(url string) Request {
		r := request(t, "GET", url)
		r.WebSocket = true
		return r
	}
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{
			Name: "ws", Host: "ws.test", Protocol: policy.ProtocolWebSocket, Paths: []string{"/live/**"},
			Allow: []policy.Match{
				{Paths: []string{"/live/chat"}, JSON: map[string]string{"/type": "say"}, MaxMessage: 100},
				{Paths: []string{"/live/raw"}, MaxMessage: 10},
				{Paths: []string{"/live/free"}},
			},
			Deny: []policy.Match{{Paths: []string{"/live/chat/admin"}}, {Paths: []string{"/live/free"}, JSON: map[string]string{"/cmd": "drop"}}},
		},
		{Name: "web", Host: "ws.test", Access: "full"},
		{Name: "all", Host: "all.test", Protocol: policy.ProtocolWebSocket},
	}})
	for _, tt := range []struct {
		name   string
		r      Request
		want   Verdict
		reason string
	}{
		{"chat", upgrade("ws.test/live/chat"), Allow, ""},
		{"no clause for the path", upgrade("ws.test/live/other"), Deny, `rule "ws" does not allow a WebSocket at /live/other`},
		{"denied path", upgrade("ws.test/live/chat/admin"), Deny, `rule "ws" denies`},
		{"outside the paths", upgrade("ws.test/other"), Deny, "no rule allows an upgrade to WebSocket at /other"},
		{"no rule", upgrade("none.test/live"), Deny, "no rule allows"},
		{"with a slash", upgrade("ws.test/live/chat/"), Deny, ""},
		{"no upgrade", request(t, "GET", "ws.test/live/chat"), Allow, `rule "web" allows it`},
	} {
		t.Run(tt.name, func(t *testing.T) { check(t, e.Request(tt.r), tt.want, tt.reason) })
	}
	bad := upgrade("ws.test/live/chat")
	bad.Method = "POST"
	check(t, e.Request(bad), Deny, "method POST")

	chat, raw, free := e.Request(upgrade("ws.test/live/chat")).Claim, e.Request(upgrade("ws.test/live/raw")).Claim, e.Request(upgrade("ws.test/live/free")).Claim
	for _, tt := range []struct {
		name string
		c    *Claim
		m    Message
		want Verdict
	}{
		{"fits", chat, Message{20, true, mustJSON(t, `{"type":"say"}`)}, Allow},
		{"other value", chat, Message{20, true, mustJSON(t, `{"type":"do"}`)}, Deny},
		{"name in another case", chat, Message{20, true, mustJSON(t, `{"type":"say","Type":"do"}`)}, Deny},
		{"no JSON", chat, Message{20, true, strictjson.Value{}}, Deny},
		{"binary", chat, Message{20, false, mustJSON(t, `{"type":"say"}`)}, Deny},
		{"too large", chat, Message{101, true, mustJSON(t, `{"type":"say"}`)}, Deny},
		{"binary where it may be", raw, Message{10, false, strictjson.Value{}}, Allow},
		{"too large there", raw, Message{11, false, strictjson.Value{}}, Deny},
		{"free", free, Message{20, true, mustJSON(t, `{"cmd":"get"}`)}, Allow},
		{"denied value", free, Message{20, true, mustJSON(t, `{"cmd":"DROP"}`)}, Deny},
		{"unreadable where JSON is denied", free, Message{20, true, strictjson.Value{}}, Deny},
		{"binary where JSON is denied", free, Message{20, false, strictjson.Value{}}, Deny},
	} {
		if got := tt.c.Message(tt.m); got.Verdict != tt.want {
			t.Errorf("%s: got %v %q, want %v", tt.name, got.Verdict, got.Reason, tt.want)
		}
	}
	if got := []int64{chat.MaxMessage(), raw.MaxMessage(), free.MaxMessage()}; got[0] != 100 || got[1] != 10 || got[2] != 1<<20 {
		t.Errorf("MaxMessage: got %v, want 100, 10 and 1M", got)
	}
	all := e.Request(upgrade("all.test/")).Claim
	if !chat.ReadsMessages() || all.ReadsMessages() {
		t.Errorf("ReadsMessages: got %v and %v, want true and false", chat.ReadsMessages(), all.ReadsMessages())
	}
}

// A claim judges messages of its own protocol and nothing else, and the zero
// claim nothing at all.
func TestClaimsOfOtherProtocolsDeny(t *testing.T) {
	ws := request(t, "GET", "all.test/")
	ws.WebSocket = true
	for name, c := range map[string]*Claim{
		"zero":      {},
		"websocket": claim(t, ws, policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolWebSocket}),
		"mcp":       claim(t, post(t, "all.test/"), policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolMCP}),
		"graphql":   claim(t, post(t, "all.test/graphql"), policy.Rule{Name: "r", Host: "all.test", Protocol: policy.ProtocolGraphQL}),
	} {
		for kind, got := range map[string]Verdict{
			"mcp":       c.Call(Call{Method: "ping"}).Verdict,
			"git":       c.Git(GitRequest{Op: "fetch", Repo: "a"}).Verdict,
			"graphql":   c.Operation(Operation{"query", "", []string{"a"}}).Verdict,
			"websocket": c.Message(Message{Size: 1, Text: true}).Verdict,
		} {
			if want := kind == name; (got == Allow) != want {
				t.Errorf("claim of %s about %s: got %v, want allow %v", name, kind, got, want)
			}
		}
		if got := c.Shows("a"); got != (name == "mcp") {
			t.Errorf("claim of %s: shows a tool: %v", name, got)
		}
	}
}

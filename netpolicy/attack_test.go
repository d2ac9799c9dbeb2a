package netpolicy

import (
	"runtime"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestLongTextsAreJudgedInLittle: an argument may have millions of segments, in many
// readings; judging it takes no more than a few times its length.
func TestLongTextsAreJudgedInLittle(t *testing.T) {
	g, err := parseTextGlob("/home/*/.ssh/**")
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	for _, c := range []struct {
		name, unit string
		touches    bool
	}{
		{"control: words", "some words and more of them ", false},
		{"control: some slashes", strings.Repeat("word ", 20) + "/", false},
		{"slashes", "a/", true},
		{"backslashes", `a\`, true},
		{"escaped slashes", "a%2F", true},
		{"escaped twice", "a%252F", true},
		{"invisible", "\u200ba/", true},
		{"NUL", "a/\x00", true},
	} {
		text := strings.Repeat(c.unit, size/len(c.unit))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		touches, fits := g.touches(text), g.fits(text)
		runtime.ReadMemStats(&after)
		if touches != c.touches || fits {
			t.Errorf("%s: got touches %v and fits %v, want %v and false", c.name, touches, fits, c.touches)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 20*size {
			t.Errorf("%s: got %d MiB for a text of %d", c.name, took>>20, size>>20)
		}
	}
	for _, text := range []string{"/home/a/.ssh/id", `\HOME\a\.ssh`, "/home/a%2F.ssh/x", "/home/a/b/../.ssh"} {
		if !g.touches(text) {
			t.Errorf("control: %q does not touch", text)
		}
	}
}

// TestParametersThatAreLists: PHP, Rails and Node's qs make one parameter of x, x[] and
// x[0], and the last one may count.
func TestParametersThatAreLists(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "a", Host: "allow.test", AllowSet: true, Allow: []policy.Match{{Query: map[string]string{"scope": "read"}}}},
		{Name: "d", Host: "deny.test", TLS: policy.TLSInspect, Deny: []policy.Match{{Query: map[string]string{"scope": "admin*"}}}},
	}})
	for query, want := range map[string][2]Verdict{
		"scope=read":                   {Allow, Allow},
		"scope=read&scope[]=read":      {Allow, Allow},
		"scopes[]=admin&scope=read":    {Allow, Allow},
		"scope=read&scope[]=admin":     {Deny, Deny},
		"scope=read&scope[0]=admin":    {Deny, Deny},
		"scope=read&SCOPE[x][y]=admin": {Deny, Deny},
		"scope=read&scope%5B%5D=admin": {Deny, Deny},
		"scope=read&+scope=admin":      {Deny, Deny},
		"scope[]=admin":                {Deny, Deny},
	} {
		for i, host := range []string{"allow.test", "deny.test"} {
			values, err := ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			h, err := ParseHost(host)
			if err != nil {
				t.Fatal(err)
			}
			d := e.Request(Request{Host: h, Port: 443, TLS: true, Method: "GET", Path: "/", Query: values})
			if d.Verdict != want[i] {
				t.Errorf("%s?%s: got %v (%s), want %v", host, query, d.Verdict, d.Reason, want[i])
			}
		}
	}
}

// TestTailsOfSegments: servers on Windows drop dots and spaces at the end of a segment.
// Denials and claims see through that; what is allowed must be there to the letter.
func TestTailsOfSegments(t *testing.T) {
	e := mustCompile(t, policy.Network{Rules: []policy.Rule{
		{Name: "d", Host: "a.test", TLS: policy.TLSInspect, Deny: []policy.Match{{Paths: []string{"/admin/**"}}}},
		{Name: "mcp", Host: "a.test", Protocol: policy.ProtocolMCP, Paths: []string{"/mcp"}},
		{Name: "git", Host: "a.test", Protocol: policy.ProtocolGit, AllowSet: true, Allow: []policy.Match{{Op: "fetch"}}},
		{Name: "b", Host: "b.test", AllowSet: true, Allow: []policy.Match{{Paths: []string{"/public"}}}},
	}})
	for path, want := range map[string]Verdict{
		"a.test/x": Allow, "a.test/admins": Allow, "a.test/.x": Allow, "a.test/x.": Allow, "a.test/a%20b": Allow,
		"a.test/admin/x": Deny, "a.test/admin./x": Deny, "a.test/admin%20/x": Deny, "a.test/admin.%20.;v=1/x": Deny, "a.test/admin.": Deny,
		"a.test/mcp.": Deny, "a.test/mcp%20": Deny, "a.test/mcp%20%20": Deny, "a.test/mcp%20.": Deny,
		"a.test/r/git-receive-pack.": Deny, "a.test/r/git-receive-pack%20": Deny,
		"b.test/public": Allow, "b.test/public.": Deny, "b.test/public%20": Deny,
	} {
		if d := e.Request(post(t, path)); d.Verdict != want {
			t.Errorf("%s: got %v (%s), want %v", path, d.Verdict, d.Reason, want)
		}
	}
}

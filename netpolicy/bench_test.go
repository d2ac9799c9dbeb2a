package netpolicy

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// manyRules is a policy of n rules of every shape, with a tenth as many
// denials.
func manyRules(n int) policy.Network {
	var net policy.Network
	for i := range n {
		r := policy.Rule{Name: fmt.Sprint("rule", i)}
		switch i % 4 {
		case 0:
			r.Host = fmt.Sprintf("host%d.example.org", i)
			r.Allow = []policy.Match{
				{Methods: []string{"GET"}, Paths: []string{"/v1/*", "/v1/**/x%20y"}},
				{Methods: []string{"POST"}, Paths: []string{"/repos/**"}, Query: map[string]string{"service": "git-*"}},
			}
			r.Deny = []policy.Match{{Paths: []string{"/**/admin/**"}}}
		case 1:
			r.Host = fmt.Sprintf("*.wild%d.example.org", i)
			r.Access = "read-only"
		case 2:
			r.Host = fmt.Sprintf("**.deep%d.example.org", i)
		case 3:
			r.Host = fmt.Sprintf("db%d.example.org", i)
			r.Protocol, r.Ports = policy.ProtocolTCP, []int{5432}
		}
		net.Rules = append(net.Rules, r)
		if i%4 == 0 {
			net.Rules = append(net.Rules, spoken(i, r.Host)...)
		}
		if i%10 == 0 {
			net.Deny = append(net.Deny, policy.HostRule{Host: fmt.Sprintf("**.bad%d.example.org", i)})
		}
	}
	return net
}

// spoken is what is spoken inside HTTP on a host.
func spoken(i int, host string) []policy.Rule {
	return []policy.Rule{
		{
			Name: fmt.Sprint("mcp", i), Host: host, Protocol: policy.ProtocolMCP, Paths: []string{"/mcp"},
			Allow: []policy.Match{{Tools: []string{"read"}, Args: map[string]string{"/path": "src/**"}}},
			Deny:  []policy.Match{{Tools: []string{"*_secret"}}},
		},
		{Name: fmt.Sprint("ws", i), Host: host, Protocol: policy.ProtocolWebSocket, Paths: []string{"/live/*"}},
		{Name: fmt.Sprint("git", i), Host: host, Protocol: policy.ProtocolGit, Allow: []policy.Match{{Op: "fetch", Repos: []string{"acme/*"}}}},
	}
}

// decisions are allowed in every manyRules.
func decisions(t testing.TB) map[string]func(*Engine) Verdict {
	t.Helper()
	get := request(t, "GET", "host0.example.org/v1/a/b/c/x%20y")
	post := request(t, "POST", "host0.example.org/repos/acme/site.git/info?service=git-upload-pack")
	read := request(t, "GET", "api.wild1.example.org/any/path/at/all.json")
	deep, db := mustHost(t, "a.b.c.d.deep2.example.org"), mustHost(t, "db3.example.org")
	addr := netip.MustParseAddr("2606:4700::1111")
	return map[string]func(*Engine) Verdict{
		"get":     func(e *Engine) Verdict { return e.Request(get).Verdict },
		"post":    func(e *Engine) Verdict { return e.Request(post).Verdict },
		"read":    func(e *Engine) Verdict { return e.Request(read).Verdict },
		"deep":    func(e *Engine) Verdict { return e.Connection(deep, 443).Verdict },
		"tcp":     func(e *Engine) Verdict { return e.Connection(db, 5432).Verdict },
		"address": func(e *Engine) Verdict { return e.Address(addr, 443).Verdict },
	}
}

func TestAllowingNeedsNoMemory(t *testing.T) {
	e := mustCompile(t, manyRules(1000))
	for name, decide := range decisions(t) {
		if got := decide(e); got != Allow {
			t.Errorf("%s: got %v, want allow", name, got)
		}
		if got := testing.AllocsPerRun(100, func() { decide(e) }); got != 0 {
			t.Errorf("%s: got %v allocations, want none", name, got)
		}
	}
}

// BenchmarkDecide measures one allowing decision of each kind.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		e := mustCompile(b, manyRules(n))
		b.Run(fmt.Sprintf("%drules", n), func(b *testing.B) {
			for name, decide := range decisions(b) {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						decide(e)
					}
				})
			}
		})
	}
}

// BenchmarkClaim measures what a claim costs: at the head, and for a message.
func BenchmarkClaim(b *testing.B) {
	head := request(b, "POST", "host0.example.org/mcp")
	fetch := request(b, "POST", "host0.example.org/acme/site.git/git-upload-pack")
	call := Call{Method: "tools/call", Tool: "read", Args: mustJSON(b, `{"path":"src/a/b/c.go"}`)}
	for _, n := range []int{10, 10000} {
		e := mustCompile(b, manyRules(n))
		c := e.Request(head).Claim
		for name, decide := range map[string]func() Decision{
			"head": func() Decision { return e.Request(head) },
			"git":  func() Decision { return e.Request(fetch) },
			"call": func() Decision { return c.Call(call) },
		} {
			b.Run(fmt.Sprintf("%drules/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if d := decide(); d.Verdict != Allow {
						b.Fatal(d.Reason)
					}
				}
			})
		}
	}
}

// BenchmarkDeny measures a denial, which makes its own explanation.
func BenchmarkDeny(b *testing.B) {
	e := mustCompile(b, manyRules(1000))
	h := mustHost(b, "a.b.c.unlisted.example.org")
	b.ReportAllocs()
	for b.Loop() {
		e.Connection(h, 443)
	}
}

func BenchmarkCompile(b *testing.B) {
	n := manyRules(1000)
	for b.Loop() {
		mustCompile(b, n)
	}
}

func BenchmarkCanonicalPath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CanonicalPath("/repos/acme/site.git/info/refs"); err != nil {
			b.Fatal(err)
		}
	}
}

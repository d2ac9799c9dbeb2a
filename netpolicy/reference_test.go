package netpolicy

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"pgregory.net/rapid"
)

// The reference judges a policy as it is written: it reads every rule, splits
// every string and recurses. It shares no code with the engine.

func refRequest(n policy.Network, host string, port int, method, path string, query url.Values) bool {
	if refDenied(n, host, port) || method == "TRACE" || method == "CONNECT" || method == "PRI" {
		return false
	}
	allowed := false
	for _, r := range n.Rules {
		if r.Protocol == policy.ProtocolTCP || !refRuleHost(r, host) || !refPort(r.Ports, port, 80, 443) {
			continue
		}
		for _, m := range r.Deny {
			if refDenyClause(m, method, path, query) {
				return false
			}
		}
		allowed = allowed || refRuleAllows(r, method, path, query)
	}
	return allowed
}

func refRuleAllows(r policy.Rule, method, path string, query url.Values) bool {
	named := false
	switch r.Access {
	case "read-only":
		named = slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, method)
	case "read-write":
		named = slices.Contains([]string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"}, method)
	default:
		named = slices.Contains(registered, method)
	}
	if r.Allow == nil {
		return named
	}
	for _, m := range r.Allow {
		methodOK := m.Methods == nil && named || slices.Contains(m.Methods, method)
		pathOK := m.Paths == nil
		for _, p := range m.Paths {
			pathOK = pathOK || refPath(refSplit(p), refSplit(path))
		}
		queryOK := true
		for name, pattern := range m.Query {
			queryOK = queryOK && len(query[name]) > 0
			for _, v := range refValues(query, name) {
				queryOK = queryOK && refGlob(pattern, v)
			}
		}
		if methodOK && pathOK && queryOK {
			return true
		}
	}
	return false
}

func refDenyClause(m policy.Match, method, path string, query url.Values) bool {
	if m.Methods != nil && !slices.Contains(m.Methods, method) {
		return false
	}
	pathOK := m.Paths == nil
	for _, p := range m.Paths {
		pathOK = pathOK || refPath(refSplit(p), refSplit(path)) ||
			refPath(refFilled(refSplit(p), false), refFilled(refSplit(path), true))
	}
	for name, pattern := range m.Query {
		if !slices.ContainsFunc(refValues(query, name), func(v string) bool { return refGlob(pattern, v) }) {
			return false
		}
	}
	return pathOK
}

// refValues gives the values of a parameter in any case.
func refValues(query url.Values, name string) []string {
	var all []string
	for n, values := range query {
		if strings.ToLower(n) == strings.ToLower(name) {
			all = append(all, values...)
		}
	}
	return all
}

func refDenied(n policy.Network, host string, port int) bool {
	for _, d := range n.Deny {
		if refHost(d.Host, host) && (d.Ports == nil || slices.Contains(d.Ports, port)) {
			return true
		}
	}
	return false
}

func refRuleHost(r policy.Rule, host string) bool {
	if r.Any || r.Host != "" && refHost(r.Host, host) {
		return true
	}
	return slices.ContainsFunc(r.Hosts, func(n policy.Name) bool { return refHost(n.Text, host) })
}

func refHost(pattern, host string) bool {
	p, h := strings.Split(pattern, "."), strings.Split(host, ".")
	switch p[0] {
	case "*":
		return len(h) == len(p) && slices.Equal(h[1:], p[1:])
	case "**":
		return len(h) >= len(p) && slices.Equal(h[len(h)-len(p)+1:], p[1:])
	default:
		return pattern == host
	}
}

func refPort(ports []int, port int, standard ...int) bool {
	if ports == nil {
		ports = standard
	}
	return slices.Contains(ports, port)
}

func refSplit(path string) []string { return strings.Split(path, "/")[1:] }

// refFilled drops empty segments; the request's lose their parameters first, and
// then dots and spaces at their end.
func refFilled(segments []string, cut bool) []string {
	var out []string
	for _, s := range segments {
		if cut {
			s, _, _ = strings.Cut(strings.ReplaceAll(s, "%3B", ";"), ";")
			s = strings.ReplaceAll(strings.TrimRight(strings.ReplaceAll(s, "%20", " "), ". "), " ", "%20")
		}
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func refPath(pattern, path []string) bool {
	switch {
	case len(pattern) == 0:
		return len(path) == 0
	case pattern[0] == "**":
		for i := range len(path) + 1 {
			if refPath(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	case len(path) == 0:
		return false
	}
	decoded, err := url.PathUnescape(path[0])
	literal, errPattern := url.PathUnescape(pattern[0])
	if err != nil || errPattern != nil || (decoded == "") != (pattern[0] == "") {
		return false
	}
	return refGlob(literal, decoded) && refPath(pattern[1:], path[1:])
}

func refGlob(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return refGlob(pattern[1:], s) || s != "" && refGlob(pattern, s[1:])
	default:
		return s != "" && s[0] == pattern[0] && refGlob(pattern[1:], s[1:])
	}
}

// The generators draw from few values, so that much matches.
var (
	genLabel   = rapid.SampledFrom([]string{"a", "b", "aa", "test"})
	genName    = rapid.Map(rapid.SliceOfN(genLabel, 1, 4), func(l []string) string { return strings.Join(l, ".") })
	genPattern = rapid.Map(rapid.SliceOfN(genName, 2, 2), func(n []string) string {
		prefix := map[string]string{"a": "*.", "b": "**.", "aa": "**."}[n[0]]
		return prefix + n[1]
	})
	genSegment     = rapid.SampledFrom([]string{"a", "b", "ab", "aab", "a;x", "b%3Bx", "a%3Ab", "a:b", "%C3%A9", ";x", "a.", "b%20", "a.%20.;x"})
	genPathSegment = rapid.SampledFrom([]string{"a", "b", "*", "**", "a*", "*b", "*a*b", "a%3Ab", "%C3%A9", "**"})
	genPath        = rapid.Map(rapid.SliceOfN(genSegment, 0, 5), func(s []string) string { return "/" + strings.Join(s, "/") })
	genPathGlob    = rapid.Map(rapid.SliceOfN(genPathSegment, 0, 4), func(s []string) string { return "/" + strings.Join(s, "/") })
	genMethod      = rapid.SampledFrom([]string{"GET", "POST", "DELETE", "TRACE", "X-OWN", "OPTIONS", "PUT"})
	genOwnMethod   = rapid.SampledFrom([]string{"GET", "POST", "DELETE", "X-OWN"})
	genPort        = rapid.SampledFrom([]int{80, 443, 8080})
	genQuery       = rapid.MapOfN(rapid.SampledFrom([]string{"p", "q", "P"}), rapid.SliceOfN(rapid.SampledFrom([]string{"1", "12", ""}), 1, 2), 0, 3)
	genQueryGlob   = rapid.MapOfN(rapid.SampledFrom([]string{"p", "q"}), rapid.SampledFrom([]string{"1", "1*", "*"}), 1, 2)
)

func drawMatch(t *rapid.T) policy.Match {
	var m policy.Match
	if rapid.Bool().Draw(t, "has methods") {
		m.Methods = rapid.SliceOfN(genOwnMethod, 1, 2).Draw(t, "methods")
	}
	if rapid.Bool().Draw(t, "has paths") {
		m.Paths = rapid.SliceOfN(genPathGlob, 1, 2).Draw(t, "paths")
	}
	if rapid.Bool().Draw(t, "has query") {
		m.Query = genQueryGlob.Draw(t, "query")
	}
	return m
}

func drawRule(t *rapid.T, name string) policy.Rule {
	r := policy.Rule{Name: name}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		r.Any = true
	case 1:
		r.Hosts = []policy.Name{{Text: genPattern.Draw(t, "host")}, {Text: genPattern.Draw(t, "host")}}
	default:
		r.Host = genPattern.Draw(t, "host")
	}
	if rapid.Bool().Draw(t, "has ports") {
		r.Ports = rapid.SliceOfN(genPort, 1, 2).Draw(t, "ports")
	}
	r.Access = rapid.SampledFrom([]string{"", "", "read-only", "read-write", "full"}).Draw(t, "access")
	if rapid.Bool().Draw(t, "has allow") {
		r.Allow = []policy.Match{}
		for range rapid.IntRange(0, 2).Draw(t, "allow") {
			r.Allow = append(r.Allow, drawMatch(t))
		}
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "deny") {
		r.Deny = append(r.Deny, drawMatch(t))
	}
	return r
}

func drawNetwork(t *rapid.T) policy.Network {
	var n policy.Network
	for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
		n.Rules = append(n.Rules, drawRule(t, string(rune('a'+i))))
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "denials") {
		d := policy.HostRule{Host: genPattern.Draw(t, "denied")}
		if rapid.Bool().Draw(t, "has ports") {
			d.Ports = []int{genPort.Draw(t, "port")}
		}
		n.Deny = append(n.Deny, d)
	}
	return n
}

func TestRequestAgreesWithReference(t *testing.T) {
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		e, err := Compile(n)
		if err != nil {
			return // an access shorthand and a method that exclude each other
		}
		for range 8 {
			host, port := genName.Draw(t, "host"), genPort.Draw(t, "port")
			method, query := genMethod.Draw(t, "method"), url.Values(genQuery.Draw(t, "query"))
			path, err := CanonicalPath(genPath.Draw(t, "path"))
			if err != nil {
				t.Fatal(err)
			}
			want := refRequest(n, host, port, method, path, query)
			got := e.Request(Request{Host: mustHost(t, host), Port: uint16(port), Method: method, Path: path, Query: query})
			if (got.Verdict == Allow) != want {
				t.Fatalf("%s %s:%d%s %v: got %v (%s), want allow %v\n%+v", method, host, port, path, query, got.Verdict, got.Reason, want, n)
			}
			if got.Verdict == Allow {
				allowed++
			}
		}
	})
	if allowed == 0 {
		t.Error("nothing was allowed, so nothing was compared")
	}
}

func TestConnectionAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		e, err := Compile(n)
		if err != nil {
			return
		}
		host, port := genName.Draw(t, "host"), genPort.Draw(t, "port")
		want := false
		for _, r := range n.Rules {
			want = want || refRuleHost(r, host) && refPort(r.Ports, port, 80, 443)
		}
		want = want && !refDenied(n, host, port)
		if got := e.Connection(mustHost(t, host), uint16(port)); (got.Verdict == Allow) != want {
			t.Fatalf("%s:%d: got %v (%s), want allow %v\n%+v", host, port, got.Verdict, got.Reason, want, n)
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		forward, err := Compile(n)
		if err != nil {
			return
		}
		slices.Reverse(n.Rules)
		slices.Reverse(n.Deny)
		backward := mustCompile(t, n)
		r := Request{
			Host: mustHost(t, genName.Draw(t, "host")), Port: uint16(genPort.Draw(t, "port")),
			Method: genMethod.Draw(t, "method"), Path: "/a/b", Query: genQuery.Draw(t, "query"),
		}
		if a, b := forward.Request(r), backward.Request(r); a.Verdict != b.Verdict {
			t.Fatalf("got %v forward and %v backward for %+v\n%+v", a.Verdict, b.Verdict, r, n)
		}
		if a, b := forward.Connection(r.Host, r.Port), backward.Connection(r.Host, r.Port); a.Verdict != b.Verdict || a.Mode != b.Mode {
			t.Fatalf("got %v forward and %v backward for %v\n%+v", a, b, r.Host, n)
		}
	})
}

// No IPv6 address that carries a closed IPv4 address is open.
func TestCarriersAreNoWeaker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		four := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
		inner := Classify(netip.AddrFrom4(four))
		prefixes := []string{"::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "2002::", "2001::"}
		prefix := netip.MustParseAddr(rapid.SampledFrom(prefixes).Draw(t, "prefix")).As16()
		at := map[byte]int{0x20: 12, 0x00: 12}[prefix[0]]
		if prefix[0] == 0x20 && prefix[1] == 0x02 {
			at = 2
		}
		copy(prefix[at:], four[:])
		if prefix[0] == 0x20 && prefix[1] == 0x01 {
			for i := 12; i < 16; i++ {
				prefix[i] ^= 0xff
			}
		}
		outer := Classify(netip.AddrFrom16(prefix))
		if outer == ClassGlobal && inner != ClassGlobal {
			t.Fatalf("%s: got global, but it carries one that is %v", netip.AddrFrom16(prefix), inner)
		}
		if inner == ClassMetadata && outer != ClassMetadata {
			t.Fatalf("%s: got %v, want metadata", netip.AddrFrom16(prefix), outer)
		}
	})
}

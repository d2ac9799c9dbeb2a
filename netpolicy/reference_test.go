package netpolicy

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/test/property"
	"pgregory.net/rapid"
)

// The reference judges a policy as it is written: it reads every rule, splits
// every string and recurses. It shares no code with the engine.

// asked is a request, in the words of HTTP.
type asked struct {
	host, method, path string
	port               int
	query              url.Values
	header             map[string][]string
	length             int64
}

func refRequest(n policy.Network, a asked) bool {
	if refDenied(n, a.host, a.port) || a.method == "TRACE" || a.method == "CONNECT" || a.method == "PRI" {
		return false
	}
	allowed := false
	for _, r := range n.Rules {
		if r.Protocol == policy.ProtocolTCP || !refRuleHost(r, a.host) || !refPort(r.Ports, a.port, 80, 443) {
			continue
		}
		for _, m := range r.Deny {
			if refDenyClause(m, a) {
				return false
			}
		}
		allowed = allowed || refRuleAllows(r, a)
	}
	return allowed
}

func refRuleAllows(r policy.Rule, a asked) bool {
	if strings.Contains(a.path, "%2F") && !r.EncodedSlash {
		return false
	}
	method, named := a.method, false
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
			pathOK = pathOK || refPath(refSplit(p), refSplit(a.path))
		}
		queryOK := true
		for name, pattern := range m.Query {
			queryOK = queryOK && len(a.query[name]) > 0
			for _, v := range refValues(a.query, name) {
				queryOK = queryOK && refGlob(pattern, v)
			}
		}
		bodyOK := m.MaxBody == 0 || a.length <= int64(m.MaxBody)
		if methodOK && pathOK && queryOK && bodyOK && refHeaders(m, a) {
			return true
		}
	}
	return false
}

func refDenyClause(m policy.Match, a asked) bool {
	if m.Methods != nil && !slices.Contains(m.Methods, a.method) || !refHeaders(m, a) {
		return false
	}
	pathOK := m.Paths == nil
	// Whether an escaped slash ends a segment is the server's to say, in the
	// request as in the pattern.
	for _, p := range m.Paths {
		for _, pattern := range []string{p, strings.ReplaceAll(p, "%2F", "/")} {
			for _, path := range []string{a.path, strings.ReplaceAll(a.path, "%2F", "/")} {
				pathOK = pathOK || refPath(refSplit(pattern), refSplit(path)) ||
					refPath(refFilled(refSplit(pattern), false), refFilled(refSplit(path), true))
			}
		}
	}
	for name, pattern := range m.Query {
		if !slices.ContainsFunc(refValues(a.query, name), func(v string) bool { return refGlob(pattern, v) }) {
			return false
		}
	}
	return pathOK
}

func refHeaders(m policy.Match, a asked) bool {
	for _, name := range m.Headers {
		if len(a.header[name]) == 0 {
			return false
		}
	}
	return true
}

// refValues gives the values of a parameter in any case, and of "name[…]", which
// PHP and Rails take for it.
func refValues(query url.Values, name string) []string {
	var all []string
	for n, values := range query {
		n = strings.Trim(strings.SplitN(n, "[", 2)[0], " ")
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
	genSlashed     = rapid.OneOf(genSegment, genSegment, rapid.SampledFrom([]string{"a%2Fb", "b%2Fa%2Fb", "a;x%2Fb"}))
	genPathSegment = rapid.SampledFrom([]string{"a", "b", "*", "**", "a*", "*b", "*a*b", "a%3Ab", "%C3%A9", "**"})
	genPath        = rapid.Map(rapid.SliceOfN(genSegment, 0, 5), func(s []string) string { return "/" + strings.Join(s, "/") })
	genSlashedPath = rapid.Map(rapid.SliceOfN(genSlashed, 0, 5), func(s []string) string { return "/" + strings.Join(s, "/") })
	genPathGlob    = rapid.Map(rapid.SliceOfN(genPathSegment, 0, 4), func(s []string) string { return "/" + strings.Join(s, "/") })
	genMethod      = rapid.SampledFrom([]string{"GET", "POST", "DELETE", "TRACE", "X-OWN", "OPTIONS", "PUT"})
	genOwnMethod   = rapid.SampledFrom([]string{"GET", "POST", "DELETE", "X-OWN"})
	genPort        = rapid.SampledFrom([]int{80, 443, 8080})
	genQuery       = rapid.MapOfN(rapid.SampledFrom([]string{"p", "q", "P", "p[]", " q"}), rapid.SliceOfN(rapid.SampledFrom([]string{"1", "12", ""}), 1, 2), 0, 3)
	genQueryGlob   = rapid.MapOfN(rapid.SampledFrom([]string{"p", "q"}), rapid.SampledFrom([]string{"1", "1*", "*"}), 1, 2)
)

// drawAsked draws a request. Half of them have no query, fields or body.
func drawAsked(t *rapid.T) asked {
	path, err := CanonicalPath(genSlashedPath.Draw(t, "path"))
	if err != nil {
		t.Fatal(err)
	}
	a := asked{
		host: genName.Draw(t, "host"), port: genPort.Draw(t, "port"), method: genMethod.Draw(t, "method"), path: path,
		query: url.Values(genQuery.Draw(t, "query")),
	}
	if rapid.Bool().Draw(t, "more") {
		a.length = rapid.SampledFrom([]int64{-1, 1, 10, 11}).Draw(t, "length")
		a.header = rapid.SampledFrom([]map[string][]string{nil, {"X-A": {"1"}}, {"X-A": {}}, {"X-B": {""}}}).Draw(t, "header")
	}
	return a
}

func drawMatch(t *rapid.T, slashes, denies bool) policy.Match {
	var m policy.Match
	if rapid.Bool().Draw(t, "has methods") {
		m.Methods = rapid.SliceOfN(genOwnMethod, 1, 2).Draw(t, "methods")
	}
	if rapid.Bool().Draw(t, "has paths") {
		m.Paths = rapid.SliceOfN(genPathGlob, 1, 2).Draw(t, "paths")
		if slashes && rapid.Bool().Draw(t, "has slashes") {
			m.Paths = append(m.Paths, m.Paths[0]+rapid.SampledFrom([]string{"/a%2Fb", "/*%2F*", "/a%2F*"}).Draw(t, "slash"))
		}
	}
	if rapid.Bool().Draw(t, "has query") {
		m.Query = genQueryGlob.Draw(t, "query")
	}
	if rapid.IntRange(0, 3).Draw(t, "has headers") == 0 {
		m.Headers = []string{rapid.SampledFrom([]string{"X-A", "X-B"}).Draw(t, "header")}
	}
	if !denies && rapid.IntRange(0, 3).Draw(t, "has max body") == 0 {
		m.MaxBody = 10
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
	r.EncodedSlash = rapid.IntRange(0, 3).Draw(t, "slashes") == 0
	r.Access = rapid.SampledFrom([]string{"", "", "read-only", "read-write", "full"}).Draw(t, "access")
	if rapid.Bool().Draw(t, "has allow") {
		r.Allow = []policy.Match{}
		for range rapid.IntRange(0, 2).Draw(t, "allow") {
			r.Allow = append(r.Allow, drawMatch(t, r.EncodedSlash, false))
		}
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "deny") {
		r.Deny = append(r.Deny, drawMatch(t, r.EncodedSlash, true))
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
	property.Compare(t, requestsAgree)
}

// requestsAgree compares the engine with the reference, and gives how many
// requests both allowed.
func requestsAgree(t *rapid.T) (allowed int) {
	n := drawNetwork(t)
	e, err := Compile(n)
	if err != nil {
		return 0 // an access shorthand and a method that exclude each other
	}
	for range 8 {
		a := drawAsked(t)
		want := refRequest(n, a)
		got := e.Request(Request{
			Host: mustHost(t, a.host), Port: uint16(a.port), Method: a.method, Path: a.path, Query: a.query, Header: a.header, Length: a.length,
		})
		if (got.Verdict == Allow) != want {
			t.Fatalf("%+v: got %v (%s), want allow %v\n%+v", a, got.Verdict, got.Reason, want, n)
		}
		if got.Verdict == Allow {
			allowed++
		}
	}
	return allowed
}

func TestConnectionAgreesWithReference(t *testing.T) { rapid.Check(t, connectionsAgree) }

func connectionsAgree(t *rapid.T) {
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
}

func TestOrderDoesNotMatter(t *testing.T) { rapid.Check(t, orderDoesNotMatter) }

func orderDoesNotMatter(t *rapid.T) {
	n := drawNetwork(t)
	forward, err := Compile(n)
	if err != nil {
		return
	}
	slices.Reverse(n.Rules)
	slices.Reverse(n.Deny)
	backward := mustCompile(t, n)
	a := drawAsked(t)
	r := Request{
		Host: mustHost(t, a.host), Port: uint16(a.port), Method: a.method, Path: a.path, Query: a.query, Header: a.header, Length: a.length,
	}
	if a, b := forward.Request(r), backward.Request(r); a.Verdict != b.Verdict || a.MaxBody != b.MaxBody {
		t.Fatalf("got %v forward and %v backward for %+v\n%+v", a.Verdict, b.Verdict, r, n)
	}
	if a, b := forward.Connection(r.Host, r.Port), backward.Connection(r.Host, r.Port); a.Verdict != b.Verdict || a.Mode != b.Mode {
		t.Fatalf("got %v forward and %v backward for %v\n%+v", a, b, r.Host, n)
	}
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

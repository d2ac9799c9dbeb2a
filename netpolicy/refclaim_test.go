package netpolicy

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/test/property"
	"pgregory.net/rapid"
)

// attempt is a request with one message in it, for all protocols at once.
type attempt struct {
	host    string
	port    int
	method  string
	path    string
	grpc    bool
	socket  bool
	call    string
	tool    string
	arg     string // the value at "/p"; "" for none
	text    bool
	size    int64
	refs    []string
	kind    string
	fields  []string
	opName  string
	message string // the JSON text at "/p" of a WebSocket message; "" for no JSON
}

// head is the request without what is spoken in it.
func (a attempt) head() asked {
	return asked{host: a.host, port: a.port, method: a.method, path: a.path}
}

// refAllows judges head and message together, from the policy as it is written.
func refAllows(n policy.Network, a attempt) bool {
	if refDenied(n, a.host, a.port) || a.method == "TRACE" {
		return false
	}
	var claiming []policy.Rule
	for _, r := range n.Rules {
		if !refRuleHost(r, a.host) || !refPort(r.Ports, a.port, 80, 443) {
			continue
		}
		if !r.Protocol.InHTTP() {
			if slices.ContainsFunc(r.Deny, func(m policy.Match) bool { return refDenyClause(m, a.head()) }) {
				return false
			}
			continue
		}
		if refClaims(r, a) {
			claiming = append(claiming, r)
		}
	}
	if len(claiming) == 0 {
		return !a.socket && slices.ContainsFunc(n.Rules, func(r policy.Rule) bool {
			return !r.Protocol.InHTTP() && refRuleHost(r, a.host) && refPort(r.Ports, a.port, 80, 443) && refRuleAllows(r, a.head())
		})
	}
	allowed := false
	for _, r := range claiming {
		if r.Protocol != claiming[0].Protocol || slices.ContainsFunc(r.Deny, func(m policy.Match) bool { return refClause(r.Protocol, m, a, refTouches) }) {
			return false
		}
		here := r.Paths == nil || refAnyPath(r.Paths, a.path, false)
		fits := r.Allow == nil || slices.ContainsFunc(r.Allow, func(m policy.Match) bool {
			return r.Protocol == policy.ProtocolMCP && a.call == "ping" || refClause(r.Protocol, m, a, refFits)
		})
		allowed = allowed || here && fits
	}
	return allowed && refForm(claiming[0].Protocol, a)
}

func refClaims(r policy.Rule, a attempt) bool {
	switch r.Protocol {
	case policy.ProtocolWebSocket:
		return a.socket && (r.Paths == nil || refAnyPath(r.Paths, a.path, true))
	case policy.ProtocolGRPC:
		return a.grpc && !a.socket
	case policy.ProtocolGit:
		segments := refFilled(refSplit(a.path), true)
		return !a.socket && len(segments) > 0 && segments[len(segments)-1] == "git-receive-pack"
	}
	return !a.socket && (r.Paths == nil || refAnyPath(r.Paths, a.path, true))
}

// refAnyPath compares loosely to claim and to deny, strictly to allow.
func refAnyPath(patterns []string, path string, loose bool) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return refPath(refSplit(p), refSplit(path)) || loose && refPath(refFilled(refSplit(p), false), refFilled(refSplit(path), true))
	})
}

// refForm is what the protocol asks of a head.
func refForm(p policy.Protocol, a attempt) bool {
	segments := refSplit(a.path)
	switch p {
	case policy.ProtocolWebSocket:
		return a.method == "GET"
	case policy.ProtocolGRPC:
		return a.method == "POST" && len(segments) == 2 && segments[0] != "" && segments[1] != "" && !strings.ContainsAny(a.path, "%;")
	case policy.ProtocolGit:
		return a.method == "POST" && len(segments) >= 2 && segments[len(segments)-1] == "git-receive-pack" && !strings.Contains(a.path, ";") && !strings.Contains(a.path, "%3B")
	default:
		return a.method == "POST"
	}
}

// refClause compares one clause. What same says tells "allow" (refFits) from
// "deny" (refTouches).
func refClause(p policy.Protocol, m policy.Match, a attempt, same func(pattern, s string) bool) bool {
	denies := same("a", "A")
	one := func(patterns []string, s string) bool {
		return patterns == nil || slices.ContainsFunc(patterns, func(p string) bool { return same(p, s) })
	}
	at := func(places map[string]string, v string) bool {
		return places == nil || v != "" && same(places["/p"], v)
	}
	switch p {
	case policy.ProtocolMCP:
		if (m.Tools != nil || m.Args != nil) && m.Calls == nil && a.call != "tools/call" {
			return false
		}
		return one(m.Calls, a.call) && (m.Tools == nil || one(m.Tools, a.tool)) && at(m.Args, a.arg)
	case policy.ProtocolGRPC:
		return one(m.Calls, strings.TrimPrefix(a.path, "/"))
	case policy.ProtocolGit:
		repo := strings.TrimSuffix(strings.TrimPrefix(a.path, "/"), "/git-receive-pack")
		if m.Op == "fetch" || !one(m.Repos, strings.NewReplacer("%3A", ":", "%C3%A9", "é", "%20", " ").Replace(repo)) {
			return false
		}
		if denies {
			return m.Refs == nil || slices.ContainsFunc(a.refs, func(r string) bool { return one(m.Refs, r) })
		}
		return !slices.ContainsFunc(a.refs, func(r string) bool { return !one(m.Refs, r) })
	case policy.ProtocolGraphQL:
		if m.Operations != nil && !slices.Contains(m.Operations, a.kind) || m.Names != nil && (a.opName == "" || !one(m.Names, a.opName)) {
			return false
		}
		if denies {
			return m.Fields == nil || slices.ContainsFunc(a.fields, func(f string) bool { return one(m.Fields, f) })
		}
		return !slices.ContainsFunc(a.fields, func(f string) bool { return !one(m.Fields, f) })
	}
	if m.Paths != nil && !refAnyPath(m.Paths, a.path, denies) {
		return false
	}
	if denies {
		return m.JSON == nil || a.message == "" || same(m.JSON["/p"], a.message)
	}
	return a.size <= 1<<20 && (m.MaxMessage == 0 || a.size <= int64(m.MaxMessage)) && (m.JSON == nil || a.text && a.message != "" && same(m.JSON["/p"], a.message))
}

// refFits is strict: what a wildcard stands for is an ordinary segment.
func refFits(pattern, s string) bool {
	return refText(strings.Split(pattern, "/"), strings.Split(s, "/"), func(s string) bool {
		return s != "" && s != "." && s != ".." && !strings.Contains(s, `\`)
	})
}

// refTouches is lenient, as far as the generators go.
func refTouches(pattern, s string) bool {
	anything := func(string) bool { return true }
	pattern, s = strings.ToLower(pattern), strings.ToLower(s)
	cleaned := strings.Trim(path.Clean("/"+strings.ReplaceAll(s, `\`, "/")), "/")
	filled := slices.DeleteFunc(strings.Split(pattern, "/"), func(s string) bool { return s == "" })
	segments := slices.DeleteFunc(strings.Split(cleaned, "/"), func(s string) bool { return s == "" })
	for i, s := range segments {
		if kept := strings.TrimRight(s, " ."); kept != "" {
			segments[i] = kept
		}
	}
	return refText(strings.Split(pattern, "/"), strings.Split(s, "/"), anything) || refText(filled, segments, anything)
}

func refText(pattern, segments []string, plain func(string) bool) bool {
	switch {
	case len(pattern) == 0:
		return len(segments) == 0
	case pattern[0] == "**":
		return refText(pattern[1:], segments, plain) || len(segments) > 0 && plain(segments[0]) && refText(pattern, segments[1:], plain)
	case len(segments) == 0:
		return false
	case !strings.Contains(pattern[0], "*"):
		return pattern[0] == segments[0] && refText(pattern[1:], segments[1:], plain)
	}
	return plain(segments[0]) && refGlob(pattern[0], segments[0]) && refText(pattern[1:], segments[1:], plain)
}

var (
	genWord    = rapid.SampledFrom([]string{"a", "b", "A", "ab", "..", ".", "", `a\b`, `..\a`})
	genText    = rapid.Map(rapid.SliceOfN(genWord, 1, 4), func(s []string) string { return strings.Join(s, "/") })
	genPiece   = rapid.SampledFrom([]string{"a", "b", "*", "a*", "**", "*b"})
	genPatText = rapid.Map(rapid.SliceOfN(genPiece, 1, 3), func(s []string) string { return strings.Join(s, "/") })
	genCall    = rapid.SampledFrom([]string{"tools/call", "tools/list2", "ping", "a/b", "a"})
	genCallPat = rapid.SampledFrom([]string{"tools/*", "a/*", "**", "ping", "a", "a/b"})
	genSpoken  = rapid.SampledFrom([]policy.Protocol{
		policy.ProtocolMCP, policy.ProtocolMCP, policy.ProtocolWebSocket, policy.ProtocolGRPC, policy.ProtocolGit, policy.ProtocolGraphQL,
	})
)

func maybe(t *rapid.T, name string) bool { return rapid.Bool().Draw(t, name) }

func drawMessageMatch(t *rapid.T, p policy.Protocol, denies bool) (m policy.Match) {
	list := func(g *rapid.Generator[string], name string) []string {
		if maybe(t, "has "+name) {
			return rapid.SliceOfN(g, 1, 2).Draw(t, name)
		}
		return nil
	}
	places := func(name string) map[string]string {
		if maybe(t, "has "+name) {
			return map[string]string{"/p": genPatText.Draw(t, name)}
		}
		return nil
	}
	switch p {
	case policy.ProtocolMCP:
		m.Calls, m.Args = list(genCallPat, "calls"), places("args")
		if m.Calls == nil {
			m.Tools = list(genPatText, "tools")
		}
	case policy.ProtocolGRPC:
		m.Calls = list(genPatText, "calls")
	case policy.ProtocolGit:
		m.Op = rapid.SampledFrom([]string{"", "push", "push", "fetch"}).Draw(t, "op")
		m.Repos = list(genPatText, "repos")
		if m.Op != "fetch" {
			m.Refs = list(genPatText, "refs")
		}
	case policy.ProtocolGraphQL:
		m.Operations = list(rapid.SampledFrom(operationKinds), "operations")
		m.Names, m.Fields = list(genPatText, "names"), list(genPatText, "fields")
	case policy.ProtocolWebSocket:
		m.Paths, m.JSON = list(genPathGlob, "paths"), places("json")
		if !denies && maybe(t, "has max_message") {
			m.MaxMessage = 10
		}
	}
	return m
}

func drawProtocolRule(t *rapid.T, name string) policy.Rule {
	r := drawRule(t, name)
	r.Access, r.Allow, r.Deny = "", nil, nil
	r.Protocol = genSpoken.Draw(t, "protocol")
	if slices.Contains(atPaths, r.Protocol) && (r.Protocol == policy.ProtocolGraphQL || maybe(t, "has paths")) {
		r.Paths = rapid.SliceOfN(genPathGlob, 1, 2).Draw(t, "paths")
	}
	if maybe(t, "has allow") {
		r.Allow = []policy.Match{}
		for range rapid.IntRange(0, 2).Draw(t, "allow") {
			r.Allow = append(r.Allow, drawMessageMatch(t, r.Protocol, false))
		}
	}
	for range rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "deny") {
		r.Deny = append(r.Deny, drawMessageMatch(t, r.Protocol, true))
	}
	return r
}

func drawSpokenNetwork(t *rapid.T) policy.Network {
	n := drawNetwork(t)
	for i := range n.Rules {
		for _, list := range [][]policy.Match{n.Rules[i].Allow, n.Rules[i].Deny} {
			for j := range list {
				list[j].Query = nil
			}
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "spoken") {
		n.Rules = append(n.Rules, drawProtocolRule(t, string(rune('p'+i))))
	}
	return n
}

func drawAttempt(t *rapid.T) attempt {
	a := attempt{
		host: genName.Draw(t, "host"), port: genPort.Draw(t, "port"), path: genPath.Draw(t, "path"),
		method: rapid.SampledFrom([]string{"POST", "POST", "POST", "GET", "DELETE"}).Draw(t, "method"),
		grpc:   maybe(t, "grpc"), call: genCall.Draw(t, "call"),
		arg: genText.Draw(t, "arg"), text: maybe(t, "text"), size: rapid.SampledFrom([]int64{1, 10, 11}).Draw(t, "size"),
		refs:   rapid.SliceOfN(genText, 1, 2).Draw(t, "refs"),
		kind:   rapid.SampledFrom(operationKinds).Draw(t, "kind"),
		fields: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "B"}), 1, 2).Draw(t, "fields"),
		opName: rapid.SampledFrom([]string{"", "a", "AB"}).Draw(t, "name"),
	}
	if a.call == "tools/call" {
		a.tool = rapid.SampledFrom([]string{"a", "b", "ab", "A", "a/b"}).Draw(t, "tool")
	}
	if maybe(t, "socket") {
		a.socket, a.method = true, rapid.SampledFrom([]string{"GET", "GET", "POST"}).Draw(t, "method")
		a.message = genText.Draw(t, "message")
	}
	if maybe(t, "git") {
		a.path = strings.TrimSuffix(a.path, "/") + "/git-receive-pack"
	}
	return a
}

// engineAllows judges head and message together.
func engineAllows(t fataler, e *Engine, a attempt) bool {
	path, err := CanonicalPath(a.path)
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Host: mustHost(t, a.host), Port: uint16(a.port), Method: a.method, Path: path, WebSocket: a.socket}
	if a.grpc {
		r.Header = map[string][]string{"Content-Type": {"application/grpc"}}
	}
	d := e.Request(r)
	if d.Verdict != Allow || d.Claim == nil {
		return d.Verdict == Allow
	}
	object := func(v string) strictjson.Value {
		if v == "" {
			return strictjson.Value{}
		}
		return strictjson.ObjectOf(strictjson.Member{Name: "p", Value: strictjson.TextOf(v)})
	}
	switch c := d.Claim; c.Protocol {
	case policy.ProtocolMCP:
		return c.Call(Call{Method: a.call, Tool: a.tool, Args: object(a.arg)}).Verdict == Allow
	case policy.ProtocolGRPC:
		return true
	case policy.ProtocolGit:
		g := c.Target()
		g.Refs = a.refs
		return c.Git(g).Verdict == Allow
	case policy.ProtocolGraphQL:
		return c.Operation(Operation{Kind: a.kind, Name: a.opName, Fields: a.fields}).Verdict == Allow
	case policy.ProtocolWebSocket:
		return c.Message(Message{Size: a.size, Text: a.text, JSON: object(a.message)}).Verdict == Allow
	}
	return false
}

func TestMessagesAgreeWithReference(t *testing.T) {
	property.Compare(t, messagesAgree)
}

// messagesAgree gives how many messages of protocols both allowed.
func messagesAgree(t *rapid.T) (spoken int) {
	n := drawSpokenNetwork(t)
	e, err := Compile(n)
	if err != nil {
		return 0 // two protocols at one place
	}
	for range 8 {
		a := drawAttempt(t)
		a.path, _ = CanonicalPath(a.path)
		if a.method == "GET" && !a.socket || a.method == "DELETE" {
			continue // a stream, or the end of a session: there is no message
		}
		want := refAllows(n, a)
		if got := engineAllows(t, e, a); got != want {
			t.Fatalf("%+v: got allow %v, want %v\n%+v", a, got, want, n)
		}
		if want && (a.socket || a.grpc) {
			spoken++
		}
	}
	return spoken
}

// One clause of "deny" more, or one of "allow" less, never allows anything.
func TestTighterNeverAllows(t *testing.T) {
	property.Compare(t, tighterDenies)
}

// tighterDenies gives how many messages the tighter policy denied.
func tighterDenies(t *rapid.T) (denied int) {
	n := drawSpokenNetwork(t)
	before, err := Compile(n)
	if err != nil {
		return 0
	}
	i := rapid.IntRange(0, len(n.Rules)-1).Draw(t, "rule")
	r := n.Rules[i]
	if len(r.Allow) > 0 && maybe(t, "remove") {
		r.Allow = slices.Delete(slices.Clone(r.Allow), 0, 1)
	} else if r.Protocol.InHTTP() {
		r.Deny = append(slices.Clone(r.Deny), drawMessageMatch(t, r.Protocol, true))
	} else {
		r.Deny = append(slices.Clone(r.Deny), policy.Match{Paths: []string{genPathGlob.Draw(t, "denied")}})
	}
	n.Rules = slices.Clone(n.Rules)
	n.Rules[i] = r
	after, err := Compile(n)
	if err != nil {
		return 0
	}
	for range 8 {
		a := drawAttempt(t)
		was, is := engineAllows(t, before, a), engineAllows(t, after, a)
		if !was && is {
			t.Fatalf("%+v is allowed by the tighter\n%+v", a, n)
		}
		if was && !is {
			denied++
		}
	}
	return denied
}

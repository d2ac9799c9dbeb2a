package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// coversRule tells whether some rules of a floor allow all that a rule allows.
// Where that cannot be seen from the text, the answer is no.
func coversRule(floor []Rule, r Rule) bool {
	for _, host := range r.hosts() {
		for _, port := range r.Ports {
			ok := slices.ContainsFunc(floor, func(f Rule) bool {
				return slices.ContainsFunc(f.hosts(), func(h string) bool { return coversHost(h, host) }) &&
					slices.Contains(f.ports(), port) && coversRequests(f, r, port)
			})
			if !ok {
				return false
			}
		}
	}
	return true
}

// coversRequests compares what two rules for one host and port allow.
func coversRequests(f, r Rule, port int) bool {
	switch {
	case f.Protocol == ProtocolTCP:
		return true // any bytes
	case r.Protocol == ProtocolTCP, f.Credential != "" && r.Credential != f.Credential:
		return false
	case !f.inspected():
		// Unread TLS can hold anything; on port 80 there is none, and what is
		// spoken without it is judged as http.
		return port != 80 || f.TLS == TLSPass || !r.Protocol.InHTTP() && !r.EncodedSlash
	case !r.inspected() || f.TLS == TLSInspect && r.TLS != TLSInspect && !r.Protocol.InHTTP():
		return false
	case protocolOf(f) != protocolOf(r), r.EncodedSlash && !f.EncodedSlash, !coversPlace(f, r), !coversAccess(f, r):
		return false
	}
	return !f.AllowSet || r.AllowSet && everyOf(r.Allow, func(m Match) bool {
		return slices.ContainsFunc(f.Allow, func(o Match) bool { return coversMatch(protocolOf(f), o, m) })
	})
}

func protocolOf(r Rule) Protocol { return cmp.Or(r.Protocol, ProtocolHTTP) }

func everyOf[T any](items []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(items, func(v T) bool { return !holds(v) })
}

// coversAccess compares the shorthand.
func coversAccess(f, r Rule) bool {
	levels := []string{"", "read-only", "read-write", "full"}
	return f.Access == "" || r.Access != "" && slices.Index(levels, r.Access) <= slices.Index(levels, f.Access)
}

// coversPlace compares where on the host a protocol is spoken and how much one
// answer may hold.
func coversPlace(f, r Rule) bool {
	return coversPatterns(placesOf(f), placesOf(r)) && sizeOr(r.MaxResponse, 16<<20) <= sizeOr(f.MaxResponse, 16<<20)
}

func placesOf(r Rule) []string {
	if len(r.Paths) == 0 && r.Protocol == ProtocolGraphQL {
		return []string{"/graphql"}
	}
	return r.Paths
}

func sizeOr(s, absent Size) Size { return cmp.Or(s, absent) }

// coversMatch tells whether a clause of "allow" allows all that another allows,
// field by field. An absent field allows everything.
func coversMatch(p Protocol, f, m Match) bool {
	return coversList(f.Methods, m.Methods) && coversPatterns(f.Paths, m.Paths) &&
		coversValues(f.Query, m.Query, coversName) && coversHeaders(f.Headers, m.Headers) &&
		coversSizes(p, f, m) && coversValues(f.JSON, m.JSON, coversPattern) &&
		coversCalls(f, m) && coversPatterns(f.Tools, m.Tools) && coversValues(f.Args, m.Args, coversPattern) &&
		(f.Op == "" || f.Op == m.Op) && coversPatterns(f.Repos, m.Repos) && coversPatterns(f.Refs, m.Refs) &&
		coversList(f.Operations, m.Operations) && coversPatterns(f.Names, m.Names) && coversPatterns(f.Fields, m.Fields)
}

// coversCalls takes into account that tools mean calls: [tools/call].
func coversCalls(f, m Match) bool {
	calls := func(m Match) []string {
		if len(m.Calls) == 0 && len(m.Tools) > 0 {
			return []string{"tools/call"}
		}
		return m.Calls
	}
	return coversPatterns(calls(f), calls(m))
}

func coversSizes(p Protocol, f, m Match) bool {
	if p == ProtocolWebSocket {
		return sizeOr(m.MaxMessage, 1<<20) <= sizeOr(f.MaxMessage, 1<<20)
	}
	return f.MaxBody == 0 || m.MaxBody != 0 && m.MaxBody <= f.MaxBody
}

func coversList(f, m []string) bool {
	return len(f) == 0 || len(m) > 0 && everyOf(m, func(v string) bool { return slices.Contains(f, v) })
}

// coversHeaders compares fields that must be there: more of them allow less.
func coversHeaders(f, m []string) bool {
	return everyOf(f, func(name string) bool {
		return slices.ContainsFunc(m, func(o string) bool { return strings.EqualFold(o, name) })
	})
}

// coversPatterns compares lists of which one entry must fit.
func coversPatterns(f, m []string) bool {
	return len(f) == 0 || len(m) > 0 && everyOf(m, func(v string) bool { return anyOf(f, v, coversPattern) })
}

// coversValues compares places that must be there, each with a fitting value.
func coversValues(f, m map[string]string, covers func(f, m string) bool) bool {
	return everyOf(slices.Collect(maps.Keys(f)), func(key string) bool {
		v, ok := m[key]
		return ok && covers(f[key], v)
	})
}

// coversPattern tells whether every text that p stands for is one that f stands
// for, where "*" stands for a run within one segment between slashes and "**"
// for any number of segments. Where that cannot be seen, the answer is no.
func coversPattern(f, p string) bool {
	if f == p || f == "**" {
		return true
	}
	fs, ps := strings.Split(f, "/"), strings.Split(p, "/")
	if fs[len(fs)-1] == "**" {
		if fs = fs[:len(fs)-1]; len(ps) <= len(fs) {
			return false
		}
		ps = ps[:len(fs)]
	}
	if len(fs) != len(ps) || slices.Contains(fs, "**") || slices.Contains(ps, "**") {
		return false
	}
	for i := range fs {
		if !coversName(fs[i], ps[i]) {
			return false
		}
	}
	return true
}

// coversRoute tells whether a route of the floor allows all that a route allows.
func coversRoute(f, r Route) bool {
	r.complete(0)
	f.complete(0)
	if f.Provider != r.Provider || f.Host != r.Host || f.Port != r.Port || f.Base != r.Base || r.Plain && !f.Plain || r.RemoteFetch && !f.RemoteFetch {
		return false
	}
	if f.Credential != "" && f.Credential != r.Credential {
		return false
	}
	if f.MaxOutputTokens != 0 && (r.MaxOutputTokens == 0 || r.MaxOutputTokens > f.MaxOutputTokens) {
		return false
	}
	tools := everyOf(r.ServerTools, func(t string) bool { return coversSome(f.ServerTools, t) })
	headers := everyOf(r.Headers, func(h string) bool {
		return slices.ContainsFunc(f.Headers, func(o string) bool { return strings.EqualFold(o, h) })
	})
	return tools && headers && coversPatterns(f.Models, r.Models)
}

// asRule is the network rule that a route stands for, seen from a floor that
// speaks of rules only.
func (r Route) asRule() Rule {
	r.complete(0)
	return Rule{Host: r.Host, Ports: []int{r.Port}, Access: "full", Credential: r.Credential}
}

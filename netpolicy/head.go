package netpolicy

import (
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// judgeClaim judges a request that some rule claims, as far as its head goes.
func (e *Engine) judgeClaim(r *Request, f *candidates) Decision {
	if f.rival != nil {
		return explainRivals(f.claimed, f.rival)
	}
	c := &Claim{Protocol: f.claimed.protocol, host: r.Host, path: r.Path}
	var buf [maxLists][]*rule
	for _, list := range e.rules.lists(r.Host, buf[:0]) {
		for _, rule := range list {
			if rule.protocol == c.Protocol && rule.hasPort(r.Port) && rule.claims(r) && !slices.Contains(c.rules, rule) {
				c.rules = append(c.rules, rule)
			}
		}
	}
	slices.SortFunc(c.rules, func(a, b *rule) int { return a.index - b.index })
	if c.Protocol == protocolInference {
		return c.judgeInference(r)
	}
	at := c.rulesAt(r)
	if len(at) == 0 {
		return f.claimed.explainForm(r, "the path")
	}
	if d, refused := c.judgeForm(r, at[0]); refused {
		return d
	}
	if d := c.denyHead(r); d != nil {
		return *d
	}
	for _, rule := range at {
		if rule.mayAllow(c) {
			c.allowing = append(c.allowing, rule)
		}
	}
	if len(c.allowing) == 0 {
		return at[0].explainHead(c, r)
	}
	best, d := choose(c.allowing, r.Host)
	if best == nil {
		return d
	}
	c.allowing = slices.DeleteFunc(c.allowing, func(o *rule) bool { return o.credential != best[0].credential })
	d = granted(best[0], ModeInspect)
	d.Credential, d.Claim = best[0].credential, c
	return d
}

// rulesAt lists the claiming rules whose protocol is spoken exactly there.
func (c *Claim) rulesAt(r *Request) (at []*rule) {
	for _, rule := range c.rules {
		if rule.isAt(r) {
			at = append(at, rule)
		}
	}
	return at
}

// judgeForm refuses what looks like the protocol and is not in its form, and
// reads what the head says.
func (c *Claim) judgeForm(r *Request, rule *rule) (Decision, bool) {
	ok := true
	what := "method " + clip(r.Method)
	switch c.Protocol {
	case policy.ProtocolWebSocket:
		ok = r.Method == "GET"
	case policy.ProtocolGRPC:
		var call bool
		if c.method, call = grpcCall(r.Path); !call {
			ok, what = false, "the path"
		} else {
			ok = r.Method == "POST"
		}
	case policy.ProtocolGit:
		c.git, ok = gitRequest(r)
		what = "the request"
	case policy.ProtocolMCP:
		ok = r.Method == "POST" || r.Method == "GET" || r.Method == "DELETE"
	case policy.ProtocolJSONRPC:
		ok = r.Method == "POST"
	case policy.ProtocolGraphQL:
		ok = r.Method == "POST" || r.Method == "GET"
	}
	if ok {
		return Decision{}, false
	}
	return rule.explainForm(r, what), true
}

// denyHead gives the denial for which the head is enough.
func (c *Claim) denyHead(r *Request) *Decision {
	for _, rule := range c.rules {
		for i := range rule.denyMessages {
			m := &rule.denyMessages[i]
			var hit bool
			switch c.Protocol {
			case policy.ProtocolWebSocket:
				hit = m.touchesPath(r) && m.json == nil
			case policy.ProtocolGRPC:
				hit = m.touchesCall(&Call{Method: c.method})
			case policy.ProtocolGit:
				hit = m.touchesGit(&c.git)
			}
			if hit {
				d := rule.deniedBy(m, c.headText(r))
				return &d
			}
		}
	}
	return nil
}

// mayAllow tells whether the rule allows the request, or could allow some
// message of it.
func (c *rule) mayAllow(claim *Claim) bool {
	if !c.allowSet {
		return true
	}
	return slices.ContainsFunc(c.allowMessages, func(m message) bool {
		switch claim.Protocol {
		case policy.ProtocolWebSocket:
			return m.fitsPath(claim.path)
		case policy.ProtocolGRPC:
			return m.fitsCall(&Call{Method: claim.method})
		case policy.ProtocolGit:
			return m.fitsGit(&claim.git)
		default:
			return true
		}
	})
}

// judgeInference finds the route: the one whose base is the longest that the
// path begins with; where none is, the first.
func (c *Claim) judgeInference(r *Request) Decision {
	route := c.rules[0]
	for _, o := range c.rules {
		if o.isBelow(r.Path) && (!route.isBelow(r.Path) || len(o.base) > len(route.base)) {
			route = o
		}
	}
	if r.WebSocket {
		return route.explainForm(r, "an upgrade to WebSocket")
	}
	if r.split != "" {
		return route.explainForm(r, "an escaped slash")
	}
	c.Protocol, c.Inference, c.Route = "", true, route.route
	d := granted(route, ModeInspect)
	d.Credential, d.Claim = route.credential, c
	return d
}

package netpolicy

import (
	"fmt"
	"slices"
)

// settle chooses among rules that allow one request with different
// credentials.
func (e *Engine) settle(r *Request) Decision {
	var allowing []*rule
	var buf [maxLists][]*rule
	for _, list := range e.rules.lists(r.Host, buf[:0]) {
		for _, c := range list {
			if c.tcp || c.protocol != "" || !c.hasPort(r.Port) || slices.Contains(allowing, c) {
				continue
			}
			if ok, _ := c.allows(r); ok {
				allowing = append(allowing, c)
			}
		}
	}
	best, d := choose(allowing, r.Host)
	if best == nil {
		return d
	}
	d = granted(best[0], ModeInspect)
	d.Credential = best[0].credential
	// A limit holds for the rules that lend the credential: another one's larger
	// body would go out under a name that it has no right to.
	_, d.MaxBody = best[0].allows(r)
	for _, c := range best[1:] {
		_, limit := c.allows(r)
		d.MaxBody = larger(d.MaxBody, limit)
	}
	return d
}

// choose gives the rules, in file order, that are most specific about the host:
// a name before "*.", that before "**.", that before any, and then a rule with
// "allow" before one without. If they differ in their credential, nobody can
// tell whose request it is: the result is nil and a denial.
func choose(allowing []*rule, h Host) ([]*rule, Decision) {
	var best []*rule
	for _, c := range allowing {
		switch {
		case len(best) == 0 || c.rank(h) > best[0].rank(h):
			best = []*rule{c}
		case c.rank(h) == best[0].rank(h):
			best = append(best, c)
		}
	}
	slices.SortFunc(best, func(a, b *rule) int { return a.index - b.index })
	for _, c := range best[1:] {
		if c.credential != best[0].credential {
			return nil, explainCredentials(best[0], c)
		}
	}
	return best, Decision{}
}

// rank orders rules by how closely they describe the host.
func (c *rule) rank(h Host) int {
	closest := 0
	for _, g := range c.hosts {
		if g.match(h) {
			closest = max(closest, int(globAny)-int(g.kind)+1)
		}
	}
	rank := 2 * closest
	if c.allowSet { // not "deny": one denial more must not decide a tie
		rank++
	}
	return rank
}

func explainCredentials(a, b *rule) Decision {
	return Decision{
		Mode: ModeInspect, Rule: a.name, Pos: a.pos,
		Reason: fmt.Sprintf("rule %q allows it %s and rule %q %s, and neither is closer to the host", a.name, a.credentialText(), b.name, b.credentialText()),
		Hint:   fmt.Sprintf("give rules %q and %q the same credential, or one of them a closer host", a.name, b.name),
	}
}

func (c *rule) credentialText() string {
	if c.credential == "" {
		return "without a credential"
	}
	return fmt.Sprintf("with credential %q", c.credential)
}

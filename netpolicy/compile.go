package netpolicy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Compile checks the network section of a policy and indexes it, with the
// routes to models, each of which stands for a rule of its own. The error is a
// policy.Problems with every mistake.
func Compile(n policy.Network, routes ...policy.Route) (*Engine, error) {
	c := compiler{engine: &Engine{
		compiled:  true,
		rules:     newHostIndex[*rule](),
		denied:    newHostIndex[*denial](),
		ports:     []uint16{80, 443},
		httpPorts: []uint16{80, 443},
		pins:      map[Host][]netip.Addr{},
	}}
	all := c.addRules(n.Rules)
	for _, r := range c.addRoutes(routes, len(n.Rules)) {
		c.index(r)
		all = append(all, r)
	}
	c.checkContradictions(all)
	c.checkClaims(all)
	c.addDenials(n.Deny)
	c.addPrivate(n.Private)
	c.addHosts(n.Hosts)
	c.engine.ports = sorted(c.engine.ports)
	c.engine.httpPorts = sorted(c.engine.httpPorts)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return c.engine, nil
}

// compiler collects the engine and the mistakes.
type compiler struct {
	engine   *Engine
	problems policy.Problems
}

func (c *compiler) report(pos policy.Pos, path string, err error) {
	c.contradict(pos, path, err, "docs/policy-reference.md says what may stand here")
}

// contradict reports what is wrong with two entries together.
func (c *compiler) contradict(pos policy.Pos, path string, err error, hint string) {
	c.problems = append(c.problems, policy.Problem{Pos: pos, Path: path, What: err.Error(), Hint: hint})
}

func (c *compiler) addRules(rules []policy.Rule) (all []*rule) {
	byName := map[string]int{}
	for i, r := range rules {
		path := fmt.Sprintf("network.rules[%d]", i)
		compiled := newRule(i, r, func(field string, err error) {
			c.report(r.Pos, path+"."+field, err)
		})
		if first, ok := byName[r.Name]; ok && r.Name != "" {
			c.report(r.Pos, path+".name", fmt.Errorf("%q is also the name of network.rules[%d]", r.Name, first))
		} else {
			byName[r.Name] = i
		}
		for _, g := range compiled.hosts {
			if g.kind == globExact && g.host.name == InnerInference {
				c.report(r.Pos, path+".host", fmt.Errorf("%s is the inner name of inference.routes, and no rule is about it", InnerInference))
			}
		}
		c.index(compiled)
		all = append(all, compiled)
	}
	return all
}

// index makes the rule known to the engine.
func (c *compiler) index(r *rule) {
	e := c.engine
	for _, g := range r.hosts {
		e.rules.add(g, r)
	}
	e.ports = append(e.ports, r.ports...)
	if !r.tcp {
		e.httpPorts = append(e.httpPorts, r.ports...)
		e.inspects = true
	}
}

func sorted(ports []uint16) []uint16 {
	slices.Sort(ports)
	return slices.Compact(ports)
}

// checkContradictions refuses two rules of which one wants a connection
// unread and the other inspected: either choice would break a promise.
func (c *compiler) checkContradictions(rules []*rule) {
	var blind []*rule
	for _, r := range rules {
		if r.tcp || r.pass {
			blind = append(blind, r)
		}
	}
	for _, r := range rules {
		if !r.inspected {
			continue
		}
		for _, b := range blind {
			mine, theirs, ok := r.overlap(b)
			if !ok {
				continue
			}
			what := "tls: pass"
			if b.tcp {
				what = "protocol: tcp"
			}
			c.contradict(r.pos, r.path, fmt.Errorf(
				"rule %q inspects %s, but rule %q passes %s unread (%s)", r.name, mine, b.name, theirs, what),
				"let both look into requests, or give them different hosts or ports")
			break
		}
	}
}

func (c *compiler) addDenials(list []policy.HostRule) {
	for i, d := range list {
		path := fmt.Sprintf("network.deny[%d]", i)
		g, err := parseHostGlob(d.Host)
		if err != nil {
			c.report(d.Pos, path+".host", err)
			continue
		}
		ports, err := limitPorts(d.Ports)
		if err != nil {
			c.report(d.Pos, path+".ports", err)
			continue
		}
		c.engine.denied.add(g, &denial{path: path, pos: d.Pos, hosts: g, ports: ports, reason: suffix(d.Reason)})
	}
}

// limitPorts gives nil for all ports.
func limitPorts(list []int) ([]uint16, error) {
	if list == nil {
		return nil, nil
	}
	if len(list) == 0 {
		return nil, errors.New("empty list, which matches nothing")
	}
	return parsePorts(list)
}

func (c *compiler) addPrivate(list []policy.PrivateRange) {
	for i, p := range list {
		path := fmt.Sprintf("network.private[%d]", i)
		prefix, err := parseRange(p.CIDR)
		if err != nil {
			c.report(p.Pos, path+".cidr", err)
			continue
		}
		ports, err := limitPorts(p.Ports)
		if err != nil {
			c.report(p.Pos, path+".ports", err)
			continue
		}
		c.engine.private = append(c.engine.private, private{
			path: path, pos: p.Pos, prefix: prefix, ports: ports, reason: suffix(p.Reason),
		})
	}
}

// parseRange reads a range or one address, in normal form.
func parseRange(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a range like 10.1.2.0/24 or an address", s)
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("range %q is IPv4 in IPv6 clothes: write it as IPv4", s)
	}
	if m := prefix.Masked(); m != prefix {
		return netip.Prefix{}, fmt.Errorf("range %q is not in normal form: write %q", s, m)
	}
	if prefix.IsSingleIP() && Classify(prefix.Addr()) == ClassMetadata {
		return netip.Prefix{}, fmt.Errorf("address %s is a metadata service, which cannot be opened", prefix.Addr())
	}
	return prefix, nil
}

func (c *compiler) addHosts(hosts map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		path := fmt.Sprintf("network.hosts[%q]", name)
		g, err := parseHostGlob(name)
		if err == nil && (g.kind != globExact || g.host.IsAddr()) {
			err = fmt.Errorf("%q is not a plain name", name)
		}
		if err == nil && g.host.name == InnerInference {
			err = fmt.Errorf("%s is an inner name, which has no address", InnerInference)
		}
		if err != nil {
			c.report(policy.Pos{}, path, err)
			continue
		}
		for _, text := range hosts[name] {
			h, err := ParseHost(text)
			if err != nil || !h.IsAddr() {
				c.report(policy.Pos{}, path, fmt.Errorf("%q is not an address", text))
				continue
			}
			c.engine.pins[g.host] = append(c.engine.pins[g.host], h.Addr())
		}
	}
}

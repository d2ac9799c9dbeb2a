package netpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// addRoutes makes each route a rule that claims all of its host and port, and
// one more for the inner name.
func (c *compiler) addRoutes(routes []policy.Route, from int) (compiled []*rule) {
	for i, r := range routes {
		path := fmt.Sprintf("inference.routes[%d]", i)
		g, err := parseHostGlob(r.Host)
		if err == nil && g.kind != globExact {
			err = errors.New("a route has one host, without wildcards")
		}
		if err == nil && g.host.name == InnerInference {
			err = fmt.Errorf("%s is the inner name of all routes: write the provider's own host", InnerInference)
		}
		if err != nil {
			c.report(r.Pos, path+".host", err)
			continue
		}
		ports, err := parsePorts([]int{routePort(r)})
		if err != nil {
			c.report(r.Pos, path+".port", err)
			continue
		}
		added := newRouteRule(from+i, i, path, r)
		added.hosts, added.ports = []hostGlob{g}, ports
		for _, o := range compiled {
			if _, _, same := o.overlap(added); same && o.base == added.base {
				c.contradict(r.Pos, path, fmt.Errorf("%s has the same host, port and base", o.path), "make one route of the two, or give each a base of its own")
			}
		}
		compiled = append(compiled, added)
	}
	if len(routes) > 0 {
		inner := newRouteRule(from+len(routes), -1, "inference.routes", policy.Route{Name: "inference.routes"})
		inner.hosts, inner.ports = []hostGlob{{kind: globExact, host: Host{name: InnerInference}}}, []uint16{80, 443}
		compiled = append(compiled, inner)
		c.engine.inference = true
	}
	return compiled
}

func routePort(r policy.Route) int {
	switch {
	case r.Port != 0:
		return r.Port
	case r.Plain:
		return 80
	default:
		return 443
	}
}

func newRouteRule(index, route int, path string, r policy.Route) *rule {
	name := cmp.Or(r.Name, path)
	return &rule{
		index: index, name: name, pos: r.Pos, path: path, inspected: true, protocol: protocolInference,
		route: route, credential: r.Credential, base: strings.TrimSuffix(routeBase(r), "/"),
		granted: fmt.Sprintf("route %q serves it", name),
	}
}

// routeBase is the path before the provider's own.
func routeBase(r policy.Route) string {
	switch {
	case r.Base != "":
		return r.Base
	case r.Provider == "openai-compatible" || r.Provider == "local":
		return "/v1"
	default:
		return ""
	}
}

// isBelow tells whether a path begins with the route's base.
func (c *rule) isBelow(path string) bool {
	rest, ok := strings.CutPrefix(path, c.base)
	return ok && (rest == "" || rest[0] == '/')
}

// checkClaims refuses rules that would claim the same requests for different
// protocols, as far as it can be seen in them, and rules that name the host of
// a route, where they could never allow anything.
func (c *compiler) checkClaims(rules []*rule) {
	for _, a := range rules {
		if a.protocol == "" {
			continue
		}
		for _, b := range c.meeting(a, rules) {
			if b.tcp || a.protocol == b.protocol || b.protocol != "" && !a.before(b) {
				continue
			}
			c.checkPair(a, b)
		}
	}
}

// meeting narrows rules to those that can be about the same hosts as a.
func (c *compiler) meeting(a *rule, rules []*rule) (out []*rule) {
	for _, g := range a.hosts {
		if g.kind != globExact {
			return rules
		}
		for _, list := range c.engine.rules.lists(g.host, nil) {
			for _, b := range list {
				if !slices.Contains(out, b) {
					out = append(out, b)
				}
			}
		}
	}
	return out
}

// before orders two rules with protocols, so that each pair is looked at once.
func (c *rule) before(o *rule) bool {
	if inference := c.protocol == protocolInference; inference != (o.protocol == protocolInference) {
		return inference
	}
	return c.index < o.index
}

func (c *compiler) checkPair(a, b *rule) {
	mine, theirs, ok := a.overlap(b)
	if !ok {
		return
	}
	if a.protocol == protocolInference && slices.ContainsFunc(b.hosts, func(g hostGlob) bool { return g == a.hosts[0] }) {
		c.report(b.pos, b.path, fmt.Errorf("rule %q is for %s, where route %q allows inference alone: leave the host out, or drop the rule by network.remove: [%s]", b.name, mine, a.name, b.name))
		return
	}
	upgrades := a.protocol == policy.ProtocolWebSocket || b.protocol == policy.ProtocolWebSocket
	if b.protocol == "" || upgrades || !a.takesAll() && !b.takesAll() && !a.sharesPath(b) {
		return
	}
	c.report(b.pos, b.path, fmt.Errorf("rule %q speaks %s at %s, where rule %q speaks %s: give each its own paths",
		b.name, b.protocol, theirs, a.name, a.protocol))
}

// takesAll tells whether the rule claims whatever comes to its hosts.
func (c *rule) takesAll() bool {
	switch c.protocol {
	case protocolInference:
		return true
	case policy.ProtocolMCP, policy.ProtocolJSONRPC, policy.ProtocolGraphQL:
		return len(c.paths) == 0
	default:
		return false
	}
}

// sharesPath tells whether both rules name one path.
func (c *rule) sharesPath(o *rule) bool {
	for _, p := range c.paths {
		for _, q := range o.paths {
			if slices.EqualFunc(p, q, segment.equal) {
				return true
			}
		}
	}
	return false
}

func (s segment) equal(o segment) bool { return s.deep == o.deep && slices.Equal(s.glob, o.glob) }

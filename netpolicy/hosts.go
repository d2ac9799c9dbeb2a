package netpolicy

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Hosts is a list of host patterns, written as in a rule. The zero value
// matches nothing.
type Hosts struct{ globs []hostGlob }

// ParseHosts reads the patterns.
func ParseHosts(names []policy.Name) (Hosts, error) {
	var h Hosts
	for _, n := range names {
		g, err := parseHostGlob(n.Text)
		if err != nil {
			return Hosts{}, fmt.Errorf("%s: %w", n.Pos, err)
		}
		h.globs = append(h.globs, g)
	}
	return h, nil
}

// Match tells whether a pattern matches the host.
func (h Hosts) Match(host Host) bool {
	for _, g := range h.globs {
		if g.match(host) {
			return true
		}
	}
	return false
}

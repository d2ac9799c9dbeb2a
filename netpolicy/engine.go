package netpolicy

import (
	"net/netip"
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Engine is a compiled network section. It is immutable and safe for
// concurrent use; the zero value denies everything.
type Engine struct {
	compiled  bool
	rules     hostIndex[*rule]
	denied    hostIndex[*denial]
	private   []private
	ports     []uint16 // that any rule names, 80 and 443; sorted
	httpPorts []uint16 // that an http rule names, 80 and 443; sorted
	inspects  bool
	inference bool       // there are routes to models
	fallback  policy.Pos // where the list of rules stands, for what none matches
	pins      map[Host][]netip.Addr
}

// denial is one compiled policy.HostRule.
type denial struct {
	path   string // "network.deny[0]"
	pos    policy.Pos
	hosts  hostGlob
	ports  []uint16 // nil: all
	reason string   // ": reason" or ""
}

// private is one compiled policy.PrivateRange.
type private struct {
	path   string // "network.private[0]"
	pos    policy.Pos
	prefix netip.Prefix
	ports  []uint16 // nil: all
	reason string
}

func (p *private) covers(a netip.Addr, port uint16) bool {
	return p.prefix.Contains(a) && hasPort(p.ports, port)
}

func hasPort(ports []uint16, port uint16) bool {
	return ports == nil || slices.Contains(ports, port)
}

// WithPos gives an engine that names pos as the place of denials for want of a
// rule: where network.rules stands.
func (e *Engine) WithPos(pos policy.Pos) *Engine {
	changed := *e
	changed.fallback = pos
	return &changed
}

// Inspects tells whether the proxy needs a certificate authority: some rule
// speaks HTTP, so that TLS may have to be ended, for inspection or to answer a
// denial. Without one, denied TLS can only be closed.
func (e *Engine) Inspects() bool { return e.inspects }

// Ports lists the ports that rules name, and 80 and 443, in order. They are the
// ones to listen on where connections cannot be captured whatever their port.
func (e *Engine) Ports() []uint16 {
	if !e.compiled {
		return []uint16{80, 443}
	}
	return slices.Clone(e.ports)
}

// Pinned lists the addresses that network.hosts gives for a host, or nil. They
// are judged by Address like any other.
func (e *Engine) Pinned(h Host) []netip.Addr { return slices.Clone(e.pins[h]) }

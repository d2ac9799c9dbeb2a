package policy

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// coversPath tells whether a grant lies within another, by its literal and by
// its resolved name: a symlink must not lead out. A pattern lies only within
// the same pattern, since what it will match is not known here.
func coversPath(f, p Path) bool {
	if f.Abs == p.Abs && f.Glob == p.Glob {
		return true
	}
	if p.Glob {
		return false
	}
	return within(f, p.Abs) && within(f, resolve(p.Abs))
}

// within tells whether a path lies at or below a grant.
func within(f Path, abs string) bool {
	real := ""
	if !f.Glob {
		real = resolve(f.Abs)
	}
	for _, up := range ancestors(abs) {
		if f.Glob {
			if ok, err := doublestar.Match(f.Abs, up); ok && err == nil {
				return true
			}
		} else if f.Abs == up || real == up {
			return true
		}
	}
	return false
}

// ancestors lists a path and every directory above it.
func ancestors(abs string) []string {
	all := []string{abs}
	for i := len(abs) - 1; i > 0; i-- {
		if abs[i] == '/' {
			all = append(all, abs[:i])
		}
	}
	return append(all, "/")
}

// coversName tells whether every name that pattern p stands for is one that f
// stands for. A star in p is taken as a letter that only a star in f matches.
func coversName(f, p string) bool {
	head, rest, star := strings.Cut(f, "*")
	if !star {
		return f == p
	}
	p, ok := strings.CutPrefix(p, head)
	if !ok {
		return false
	}
	for i := range len(p) + 1 {
		if coversName(rest, p[i:]) {
			return true
		}
	}
	return false
}

// coversRange tells whether an address range and its ports lie within another.
func coversRange(f, p PrivateRange) bool {
	a, errA := parseRange(f.CIDR)
	b, errB := parseRange(p.CIDR)
	if errA != nil || errB != nil || !a.Contains(b.Addr()) || b.Bits() < a.Bits() {
		return false
	}
	return len(f.Ports) == 0 || len(p.Ports) > 0 && containsAll(f.Ports, p.Ports)
}

func containsAll(all, some []int) bool {
	for _, v := range some {
		if !slices.Contains(all, v) {
			return false
		}
	}
	return true
}

// coversRule tells whether some rules of a floor allow all that a rule allows.
// Where that cannot be seen from the text, the answer is no.
func coversRule(floor []Rule, r Rule) bool {
	for _, host := range r.hosts() {
		for _, port := range r.Ports {
			ok := slices.ContainsFunc(floor, func(f Rule) bool {
				return slices.ContainsFunc(f.hosts(), func(h string) bool { return coversHost(h, host) }) &&
					slices.Contains(f.ports(), port) && coversRequests(f, r)
			})
			if !ok {
				return false
			}
		}
	}
	return true
}

// coversHost compares host patterns; "" stands for any.
func coversHost(f, h string) bool {
	if f == "" || f == h {
		return true
	}
	if _, err := netip.ParseAddr(h); err == nil || h == "" {
		return false
	}
	if suffix, ok := strings.CutPrefix(f, "**"); ok {
		return strings.HasSuffix(strings.TrimPrefix(h, "**"), suffix)
	}
	suffix, ok := strings.CutPrefix(f, "*")
	label, found := strings.CutSuffix(h, suffix)
	return ok && found && label != "" && label != "**" && !strings.Contains(label, ".")
}

// coversRequests compares what two rules for one host and port allow.
func coversRequests(f, r Rule) bool {
	if f.Protocol == ProtocolTCP {
		return true
	}
	if r.Protocol == ProtocolTCP || f.TLS == TLSInspect && r.TLS != TLSInspect {
		return false
	}
	levels := []string{"", "read-only", "read-write", "full"}
	if f.Access != "" && (r.Access == "" || slices.Index(levels, r.Access) > slices.Index(levels, f.Access)) {
		return false
	}
	return !f.AllowSet || r.AllowSet && reflect.DeepEqual(withoutPos(f.Allow), withoutPos(r.Allow))
}

func withoutPos(ms []Match) []Match {
	out := make([]Match, len(ms))
	for i, m := range ms {
		m.Pos = Pos{}
		out[i] = m
	}
	return out
}

func (r Rule) ports() []int {
	if len(r.Ports) == 0 && r.Protocol != ProtocolTCP {
		return []int{80, 443}
	}
	return r.Ports
}

// hosts lists what the rule matches; "" stands for any.
func (r Rule) hosts() []string {
	if r.Any {
		return []string{""}
	}
	if len(r.Hosts) == 0 {
		return []string{r.Host}
	}
	var hs []string
	for _, h := range r.Hosts {
		hs = append(hs, h.Text)
	}
	return hs
}

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// place is a granted path with its symlinks resolved, once.
type place struct {
	Path
	real string // "" for a pattern
}

func newPlace(p Path) place {
	if p.Glob {
		return place{Path: p}
	}
	return place{p, resolve(p.Abs)}
}

func places(ps []Path) []place {
	all := make([]place, len(ps))
	for i, p := range ps {
		all[i] = newPlace(p)
	}
	return all
}

// covers tells whether a grant lies within another, by its literal and by its
// resolved name: a symlink must not lead out. A pattern lies only within the
// same pattern, since what it will match is not known here.
func (f place) covers(p place) bool {
	if f.Abs == p.Abs && f.Glob == p.Glob {
		return true
	}
	return !p.Glob && f.holds(p.Abs) && f.holds(p.real)
}

// holds tells whether a path lies at or below the place, by either name.
func (f place) holds(abs string) bool {
	for _, up := range ancestors(abs) {
		if f.Glob {
			if ok, err := doublestar.Match(f.Abs, up); ok && err == nil {
				return true
			}
		} else if f.Abs == up || f.real == up {
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
	i, j := 0, 0
	star, resume := -1, 0 // the last star in f, and where in p its run ends
	for j < len(p) {
		switch {
		case i < len(f) && f[i] == '*':
			star, resume = i, j
			i++
		case i < len(f) && f[i] == p[j]:
			i, j = i+1, j+1
		case star >= 0:
			resume++
			i, j = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(f[i:], "*") == ""
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

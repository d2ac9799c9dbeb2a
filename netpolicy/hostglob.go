package netpolicy

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/idna"
)

// hostGlob is the host part of a rule. The zero value matches nothing.
type hostGlob struct {
	kind   globKind
	host   Host   // of globExact
	suffix string // of globOne and globDeep, without the leading dot
}

type globKind uint8

const (
	globNone  globKind = iota
	globExact          // "example.org", "192.0.2.1"
	globOne            // "*.example.org": one label more
	globDeep           // "**.example.org": one label more or several
	globAny            // any: true
)

// parseHostGlob reads a host pattern. Patterns are in normal form, so that
// what is written is what is matched; the error gives the right spelling.
func parseHostGlob(s string) (hostGlob, error) {
	if s == "*" || s == "**" {
		return hostGlob{}, errors.New("a bare wildcard is refused: write any: true")
	}
	kind, name := globExact, s
	if rest, ok := strings.CutPrefix(s, "**."); ok {
		kind, name = globDeep, rest
	} else if rest, ok := strings.CutPrefix(s, "*."); ok {
		kind, name = globOne, rest
	}
	if strings.IndexByte(name, '*') >= 0 {
		return hostGlob{}, fmt.Errorf("host %q: a wildcard stands only for the whole first label", s)
	}
	h, err := ParseHost(name)
	if err != nil {
		return hostGlob{}, withSpelling(err, name)
	}
	if h.String() != name {
		return hostGlob{}, notNormal(name, h.String())
	}
	if kind == globExact {
		return hostGlob{kind: kind, host: h}, nil
	}
	if h.IsAddr() {
		return hostGlob{}, fmt.Errorf("host %q: a wildcard before an address", s)
	}
	return hostGlob{kind: kind, suffix: h.String()}, nil
}

func notNormal(got, want string) error {
	return fmt.Errorf("host %q is not in normal form: write %q", got, want)
}

// withSpelling offers the ASCII form of an international name.
func withSpelling(err error, name string) error {
	ascii, convErr := idna.Lookup.ToASCII(name)
	if convErr != nil || ascii == name {
		return err
	}
	if h, parseErr := ParseHost(ascii); parseErr != nil || h.IsAddr() {
		return err
	}
	return notNormal(name, ascii)
}

func (g hostGlob) match(h Host) bool {
	switch g.kind {
	case globExact:
		return g.host == h
	case globAny:
		return !h.IsZero()
	case globOne:
		_, parent, ok := strings.Cut(h.name, ".")
		return ok && parent == g.suffix
	case globDeep:
		return isBelow(h.name, g.suffix)
	default:
		return false
	}
}

// isBelow tells whether name is suffix with at least one label before it.
func isBelow(name, suffix string) bool {
	n := len(name) - len(suffix)
	return n > 1 && name[n-1] == '.' && name[n:] == suffix
}

// overlaps tells whether some host matches both.
func (g hostGlob) overlaps(o hostGlob) bool {
	switch {
	case g.kind == globNone || o.kind == globNone:
		return false
	case g.kind == globAny || o.kind == globAny:
		return true
	case g.kind == globExact:
		return o.match(g.host)
	case o.kind == globExact:
		return g.match(o.host)
	case g.suffix == o.suffix:
		return true
	case g.kind == globDeep && isBelow(o.suffix, g.suffix):
		return true
	default:
		return o.kind == globDeep && isBelow(g.suffix, o.suffix)
	}
}

// String gives the pattern as it is written.
func (g hostGlob) String() string {
	switch g.kind {
	case globExact:
		return g.host.String()
	case globOne:
		return "*." + g.suffix
	case globDeep:
		return "**." + g.suffix
	case globAny:
		return "any"
	default:
		return ""
	}
}

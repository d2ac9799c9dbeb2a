package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// checkHost holds the normal form of a host in a rule: a name in small ASCII
// letters, an IP literal, or a wildcard as the whole first label.
func checkHost(s string) (what, hint string) {
	switch s {
	case "*", "**":
		return fmt.Sprintf("%q would match every host", s), `spell it "any: true"`
	}
	rest, wild := strings.CutPrefix(s, "**.")
	if !wild {
		rest, wild = strings.CutPrefix(s, "*.")
	}
	if strings.Contains(rest, "*") {
		return fmt.Sprintf("%q: a wildcard must be the whole first label", s), `write "*.example.org" (one label) or "**.example.org" (any depth)`
	}
	what, hint = checkPlainHost(rest)
	if what == "" && wild {
		return checkWildSuffix(s, rest)
	}
	if after, ok := strings.CutPrefix(hint, "write "); ok && wild {
		hint = "write " + s[:len(s)-len(rest)] + after
	}
	return what, hint
}

// checkWildSuffix refuses wildcards over an address.
func checkWildSuffix(s, rest string) (what, hint string) {
	if _, err := netip.ParseAddr(rest); err == nil {
		return fmt.Sprintf("%q: an address has no wildcard", s), `allow a range with "network.private" and list the addresses as hosts`
	}
	return "", ""
}

// checkPlainHost holds the normal form of one host without wildcards.
func checkPlainHost(s string) (what, hint string) {
	if s == "" {
		return "the host is empty", "write a host name or an IP address"
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return checkLiteral(s, a)
	}
	if norm := normalHost(s); norm != s {
		if w, _ := checkPlainHost(norm); norm == "" || w != "" {
			return fmt.Sprintf("%q is not a host", s), "write a host name alone, without scheme, port or path"
		}
		return fmt.Sprintf("%q is not in normal form", s), "write " + norm
	}
	if len(s) > 253 {
		return "the host is longer than 253 characters", "no name in DNS is"
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if what, hint := checkLabel(s, l); what != "" {
			return what, hint
		}
	}
	// A number in the last place makes resolvers read the whole as an address.
	if last := labels[len(labels)-1]; isNumber(last) {
		return fmt.Sprintf("%q looks like an IP address in another notation", s), "write the address with four decimal numbers"
	}
	return "", ""
}

func checkLiteral(s string, a netip.Addr) (what, hint string) {
	if a.Zone() != "" {
		return "an address with a zone is not allowed", "remove the %zone"
	}
	if norm := a.Unmap().String(); norm != s {
		return fmt.Sprintf("%q is not in normal form", s), "write " + norm
	}
	return "", ""
}

// normalHost gives the spelling that was probably meant.
func normalHost(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	s, _, _ = strings.Cut(s, "/")
	if strings.HasPrefix(s, "[") {
		inner, _, _ := strings.Cut(s[1:], "]")
		return strings.ToLower(inner)
	}
	if host, port, ok := cutPort(s); ok {
		if what, _ := checkPort(port); what == "" {
			s = host
		}
	}
	// ASCII only: strings.ToLower would turn a Kelvin sign into a k.
	s = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
	return asciiHost(strings.TrimSuffix(s, "."))
}

// asciiHost gives the ASCII form of an international name. What maps to an
// address (full-width digits do) was no name.
func asciiHost(s string) string {
	ascii, err := idna.Lookup.ToASCII(s)
	if err != nil || isASCII(s) {
		return s
	}
	if _, err := netip.ParseAddr(ascii); err == nil {
		return s
	}
	return ascii
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] > 0x7f {
			return false
		}
	}
	return true
}

func checkLabel(s, label string) (what, hint string) {
	switch {
	case label == "":
		return fmt.Sprintf("%q has an empty label", s), "remove the extra dot"
	case len(label) > 63:
		return fmt.Sprintf("%q has a label longer than 63 characters", s), "no name in DNS has"
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Sprintf("%q has a label that starts or ends with a dash", s), "remove the dash"
	}
	for _, r := range label {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-', r == '_':
		case r > 0x7f:
			return fmt.Sprintf("%q is not ASCII", s), "write the name in its ASCII form, which starts with xn--"
		default:
			return fmt.Sprintf("%q is not a host: %q is not allowed in a name", s, r), "names have small letters, digits, dashes and dots"
		}
	}
	return "", ""
}

func isNumber(s string) bool {
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(s, "0123456789") == ""
}

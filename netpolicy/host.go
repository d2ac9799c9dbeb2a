package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The bounds of RFC 1035 in their textual form, without the trailing dot.
const (
	maxName  = 253
	maxLabel = 63
)

// Host is one canonical host: a name of letters, digits and hyphens in lower
// case without the trailing dot, or an IP address. Hosts are compared with ==.
// The zero value is no host and matches nothing.
type Host struct {
	name string
	addr netip.Addr
}

// ParseHost reads a host as it stands on the wire. It refuses whatever two
// readers could understand differently: bytes outside ASCII letters, digits,
// hyphens and dots, empty labels, IPv4 addresses in any spelling but four
// decimal numbers, zones, and brackets around anything but IPv6. One trailing
// dot after a name is accepted and dropped; an IPv4 address in IPv6 clothes
// (::ffff:a.b.c.d) is that IPv4 address.
func ParseHost(s string) (Host, error) {
	h, err := parseHost(s)
	if err != nil {
		return Host{}, fmt.Errorf("parse host %q: %w", clip(s), err)
	}
	return h, nil
}

func parseHost(s string) (Host, error) {
	switch {
	case s == "":
		return Host{}, errors.New("empty host")
	case s[0] == '[':
		if s[len(s)-1] != ']' || len(s) < 4 {
			return Host{}, errors.New("brackets do not enclose an IPv6 address")
		}
		return parseIPv6(s[1 : len(s)-1])
	case strings.IndexByte(s, ':') >= 0:
		return parseIPv6(s)
	}
	name := strings.TrimSuffix(s, ".")
	if err := checkName(name); err != nil {
		return Host{}, err
	}
	if !endsInNumber(name) {
		return Host{name: lower(name)}, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is4() {
		return Host{}, errors.New("looks like an IPv4 address but is not four decimal numbers")
	}
	return Host{addr: addr}, nil
}

// ParseHostPort reads "host:port" as it stands on the wire. IPv6 needs
// brackets. A missing port is def, and an error when def is 0; an empty port,
// 0, leading zeros and signs are refused.
func ParseHostPort(s string, def uint16) (Host, uint16, error) {
	host, port, found, err := cutPort(s)
	if err != nil {
		return Host{}, 0, fmt.Errorf("parse authority %q: %w", clip(s), err)
	}
	h, err := parseHost(host)
	if err != nil {
		return Host{}, 0, fmt.Errorf("parse authority %q: %w", clip(s), err)
	}
	if !found {
		if def == 0 {
			return Host{}, 0, fmt.Errorf("parse authority %q: no port", clip(s))
		}
		return h, def, nil
	}
	p, err := parsePort(port)
	if err != nil {
		return Host{}, 0, fmt.Errorf("parse authority %q: %w", clip(s), err)
	}
	return h, p, nil
}

// cutPort splits at the port's colon. What is left of it holds no other colon
// unless it is bracketed, so that "a:80:443" and "::1" are refused.
func cutPort(s string) (host, port string, found bool, err error) {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", false, errors.New("bracket is not closed")
		}
		host, rest := s[:end+1], s[end+1:]
		if rest == "" {
			return host, "", false, nil
		}
		if rest[0] != ':' {
			return "", "", false, errors.New("text after the bracket")
		}
		return host, rest[1:], true, nil
	}
	host, port, found = strings.Cut(s, ":")
	if strings.IndexByte(port, ':') >= 0 {
		return "", "", false, errors.New("more than one port, or IPv6 without brackets")
	}
	return host, port, found, nil
}

func parsePort(s string) (uint16, error) {
	if s == "" {
		return 0, errors.New("empty port")
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, errors.New("port is not a decimal number")
		}
	}
	if s[0] == '0' {
		return 0, errors.New("port starts with 0")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, errors.New("port is above 65535")
	}
	return uint16(n), nil
}

func parseIPv6(s string) (Host, error) {
	if strings.IndexByte(s, '%') >= 0 {
		return Host{}, errors.New("IPv6 zone")
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return Host{}, errors.New("not an IPv6 address")
	}
	return Host{addr: addr.Unmap()}, nil
}

func checkName(s string) error {
	if len(s) > maxName {
		return errors.New("name is longer than 253 bytes")
	}
	for rest, more := s, true; more; {
		var label string
		label, rest, more = strings.Cut(rest, ".")
		if err := checkLabel(label); err != nil {
			return err
		}
	}
	return nil
}

func checkLabel(s string) error {
	switch {
	case s == "":
		return errors.New("empty label")
	case len(s) > maxLabel:
		return errors.New("label is longer than 63 bytes")
	case s[0] == '-' || s[len(s)-1] == '-':
		return errors.New("label starts or ends with a hyphen")
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '-' {
			return fmt.Errorf("byte %q", c)
		}
	}
	return nil
}

// endsInNumber tells whether some readers would take the name for an IPv4
// address: inet_aton(3) and browsers go by the last label alone.
func endsInNumber(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	if len(last) >= 2 && last[0] == '0' && last[1]|0x20 == 'x' {
		return true
	}
	for i := range len(last) {
		if last[i] < '0' || last[i] > '9' {
			return false
		}
	}
	return true
}

// String gives the name, or the address without brackets; "" for the zero Host.
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// IsAddr tells whether the host is an address.
func (h Host) IsAddr() bool { return h.addr.IsValid() }

// Addr is the address, or the zero Addr for a name.
func (h Host) Addr() netip.Addr { return h.addr }

// IsZero tells whether h is no host at all.
func (h Host) IsZero() bool { return h == Host{} }

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// lower folds ASCII only: strings.ToLower also turns the Kelvin sign into k.
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if b[j] >= 'A' && b[j] <= 'Z' {
					b[j] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// clip bounds what an error message repeats of the other side's bytes.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}

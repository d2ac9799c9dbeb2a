package netpolicy

import "net/netip"

// Class says what an address is for. Only ClassGlobal may be dialled without a
// grant, and ClassMetadata and ClassInvalid may never be. The zero value is
// ClassInvalid.
type Class uint8

// The classes.
const (
	ClassInvalid       Class = iota // no address, or one with a zone
	ClassGlobal                     // reachable on the Internet
	ClassLoopback                   // 127.0.0.0/8, ::1
	ClassPrivate                    // RFC 1918, unique local, site-local
	ClassLinkLocal                  // 169.254.0.0/16, fe80::/10
	ClassMetadata                   // answers cloud credentials or host control
	ClassCGNAT                      // 100.64.0.0/10
	ClassMulticast                  // 224.0.0.0/4, ff00::/8
	ClassUnspecified                // 0.0.0.0/8, ::; Linux connects it to loopback
	ClassDocumentation              // RFC 5737, RFC 3849, RFC 9637
	ClassBenchmarking               // 198.18.0.0/15, 2001:2::/48
	ClassTransition                 // tunnels with a global IPv4 inside: 6to4, Teredo, local NAT64, IPv4-compatible
	ClassReserved                   // class E, broadcast, IETF protocol assignments, not allocated
)

var classNames = [...]string{
	ClassInvalid:       "invalid",
	ClassGlobal:        "global",
	ClassLoopback:      "loopback",
	ClassPrivate:       "private",
	ClassLinkLocal:     "link-local",
	ClassMetadata:      "a metadata service",
	ClassCGNAT:         "carrier-grade NAT",
	ClassMulticast:     "multicast",
	ClassUnspecified:   "unspecified",
	ClassDocumentation: "for documentation",
	ClassBenchmarking:  "for benchmarking",
	ClassTransition:    "a transition tunnel",
	ClassReserved:      "reserved",
}

// String completes the sentence "address a.b.c.d is …".
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassInvalid]
}

// block is one range of the IANA special-purpose registries.
type block struct {
	prefix netip.Prefix
	class  Class
}

// metadata4 and metadata6 answer any process on the machine with credentials
// or control. They are single addresses, so they come before every range.
var (
	metadata4 = []netip.Addr{
		netip.MustParseAddr("169.254.169.254"), // nearly every cloud
		netip.MustParseAddr("169.254.170.2"),   // ECS task credentials
		netip.MustParseAddr("169.254.170.23"),  // EKS pod identity
		netip.MustParseAddr("169.254.42.42"),   // Scaleway
		netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
		netip.MustParseAddr("168.63.129.16"),   // Azure host agent; a global address
		netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	}
	metadata6 = []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),      // EC2
		netip.MustParseAddr("fd00:ec2::23"),       // EKS pod identity
		netip.MustParseAddr("fd20:ce::254"),       // Google Compute Engine
		netip.MustParseAddr("fd00:42::42"),        // Scaleway
		netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle Cloud
		netip.MustParseAddr("fe80::a9fe:a9fe"),    // OpenStack
	}
)

// blocks4 and blocks6 are judged in order. What is in none of blocks4 is
// global; what is in none of blocks6 is global only inside 2000::/3, all that
// is allocated.
var (
	blocks4 = []block{
		{netip.MustParsePrefix("0.0.0.0/8"), ClassUnspecified},
		{netip.MustParsePrefix("10.0.0.0/8"), ClassPrivate},
		{netip.MustParsePrefix("100.64.0.0/10"), ClassCGNAT},
		{netip.MustParsePrefix("127.0.0.0/8"), ClassLoopback},
		{netip.MustParsePrefix("169.254.0.0/16"), ClassLinkLocal},
		{netip.MustParsePrefix("172.16.0.0/12"), ClassPrivate},
		{netip.MustParsePrefix("192.0.0.0/24"), ClassReserved},
		{netip.MustParsePrefix("192.0.2.0/24"), ClassDocumentation},
		{netip.MustParsePrefix("192.88.99.0/24"), ClassReserved}, // 6to4 relays
		{netip.MustParsePrefix("192.168.0.0/16"), ClassPrivate},
		{netip.MustParsePrefix("198.18.0.0/15"), ClassBenchmarking},
		{netip.MustParsePrefix("198.51.100.0/24"), ClassDocumentation},
		{netip.MustParsePrefix("203.0.113.0/24"), ClassDocumentation},
		{netip.MustParsePrefix("224.0.0.0/4"), ClassMulticast},
		{netip.MustParsePrefix("240.0.0.0/4"), ClassReserved},
	}
	blocks6 = []block{
		{netip.MustParsePrefix("::/128"), ClassUnspecified},
		{netip.MustParsePrefix("::1/128"), ClassLoopback},
		{netip.MustParsePrefix("2001:2::/48"), ClassBenchmarking},
		{netip.MustParsePrefix("2001:db8::/32"), ClassDocumentation},
		{netip.MustParsePrefix("2001::/23"), ClassReserved},
		{netip.MustParsePrefix("3fff::/20"), ClassDocumentation},
		{netip.MustParsePrefix("2000::/3"), ClassGlobal},
		{netip.MustParsePrefix("fc00::/7"), ClassPrivate},
		{netip.MustParsePrefix("fe80::/10"), ClassLinkLocal},
		{netip.MustParsePrefix("fec0::/10"), ClassPrivate},
		{netip.MustParsePrefix("ff00::/8"), ClassMulticast},
	}
)

// Classify says what an address is for. An IPv6 address that carries an IPv4
// address is judged by what it carries: ::ffff:10.0.0.5 and 64:ff9b::10.0.0.5
// are private. netip's own IsPrivate and IsLoopback see through the first form
// only.
func Classify(a netip.Addr) Class {
	switch {
	case !a.IsValid() || a.Zone() != "":
		return ClassInvalid
	case a.Unmap().Is4():
		return classify4(a.Unmap())
	}
	if c := lookup(a, metadata6, blocks6, ClassReserved); c != ClassReserved && c != ClassGlobal {
		return c
	}
	return classifyCarrier(a)
}

func classify4(a netip.Addr) Class { return lookup(a, metadata4, blocks4, ClassGlobal) }

func lookup(a netip.Addr, metadata []netip.Addr, blocks []block, rest Class) Class {
	for _, m := range metadata {
		if a == m {
			return ClassMetadata
		}
	}
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.class
		}
	}
	return rest
}

// The prefixes of IPv6 addresses that carry IPv4 addresses.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291, deprecated
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
)

// classifyCarrier judges what is neither special by itself nor certainly
// global. Only NAT64's well-known prefix leads to the global Internet today;
// the others stay closed even around a global address.
func classifyCarrier(a netip.Addr) Class {
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return classify4(v4(b[12:]))
	case localNAT64.Contains(a):
		// A /48 splits the address around the reserved byte 8; operators
		// also use /96 prefixes below it.
		return tunnel(v4([]byte{b[6], b[7], b[9], b[10]}), v4(b[12:]))
	case compatible.Contains(a):
		return tunnel(v4(b[12:]))
	case sixToFour.Contains(a):
		return tunnel(v4(b[2:6]))
	case teredo.Contains(a):
		return tunnel(v4(b[4:8]), v4([]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	return lookup(a, nil, blocks6, ClassReserved)
}

// tunnel is the worst class among the carried addresses.
func tunnel(carried ...netip.Addr) Class {
	worst := ClassTransition
	for _, a := range carried {
		switch c := classify4(a); {
		case c == ClassMetadata:
			return c
		case c != ClassGlobal:
			worst = c
		}
	}
	return worst
}

func v4(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b[:4])) }

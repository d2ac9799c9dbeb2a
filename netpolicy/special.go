package netpolicy

import (
	"net/netip"
	"strings"
)

// isLoopbackName tells whether hosts files and resolvers give the name a
// loopback address by custom (RFC 6761, Debian's /etc/hosts).
func isLoopbackName(name string) bool {
	switch name {
	case "localhost", "localhost.localdomain", "localhost4", "localhost6",
		"localhost4.localdomain4", "localhost6.localdomain6",
		"ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix",
		"ip6-allnodes", "ip6-allrouters", "ip6-allhosts":
		return true
	}
	return strings.HasSuffix(name, ".localhost")
}

// isMetadataName tells whether the name is known to answer cloud credentials.
// Its address is judged too; the name alone gives the better reason, and holds
// where the answer is a private address that the policy opened.
func isMetadataName(name string) bool {
	switch name {
	case "metadata.google.internal", "metadata.goog", "metadata.azure.internal",
		"instance-data.ec2.internal", "metadata.tencentyun.com":
		return true
	}
	return false
}

// The addresses that a loopback name stands for.
var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

// opensLoopback tells whether the policy opened this machine's own port.
func (e *Engine) opensLoopback(port uint16) bool {
	for i := range e.private {
		if p := &e.private[i]; p.covers(loopback4, port) || p.covers(loopback6, port) {
			return true
		}
	}
	return false
}

// embedded gives the IPv4 address that a dialled address leads to.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return v4(b[12:])
	}
	return a
}

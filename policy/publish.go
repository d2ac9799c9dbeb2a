package policy

import (
	"cmp"
	"net/netip"
	"strings"
)

// Publish forwards connections from the host to a port inside. It is written as
// a map, or in short as "[ADDR:]HOST:PORT".
type Publish struct {
	// Name identifies the entry in messages and in the audit record. Absent: what it listens on.
	Name string `yaml:"name" json:"name,omitzero" is:"rule-name"`
	// Listen is where the host listens: "[ADDR:]PORT", on 127.0.0.1 unless an
	// address is given, or the absolute path of a Unix socket, which is made with
	// mode 0600.
	Listen string `yaml:"listen" json:"listen,omitzero" is:"listen" required:"true"`
	// To is the port inside, or the absolute path of a Unix socket inside.
	To string `yaml:"to" json:"to,omitzero" is:"publish-to" required:"true"`
	// Expose lets the entry listen on an address beyond loopback, where the whole
	// network can reach it.
	Expose bool `yaml:"expose" json:"expose,omitzero"`
	// RequireKey names a variable of the command's environment that must hold a
	// real key: at least 16 characters, and none of the usual place holders.
	// Without it the launch stops. It is the service inside that asks for the key.
	RequireKey string `yaml:"require_key" json:"require_key,omitzero" is:"env-name"`
	// Bearer is where the token is kept that each request must show
	// ("Authorization: Bearer"). The proxy compares it and takes it out; what it
	// forwards is HTTP that it has parsed.
	Bearer *CredentialSource `yaml:"bearer" json:"bearer,omitzero"`
	// TLS ends TLS at the host's end.
	TLS PublishTLS `yaml:"tls" json:"tls,omitzero"`
	// From lists the addresses that may connect. Absent: any.
	From []string `yaml:"from" json:"from,omitzero" is:"cidr" nonempty:"true"`
	// MaxConnections bounds the open connections of this entry. 0: 512.
	MaxConnections int `yaml:"max_connections" json:"max_connections,omitzero" max:"100000"`
	Pos            Pos `yaml:"-" json:"pos,omitzero"`
}

// PublishTLS is the certificate that clients of a published port see.
type PublishTLS struct {
	// Cert is the certificate with its chain (PEM). It must lie outside every
	// granted path.
	Cert Path `yaml:"cert" json:"cert,omitzero" is:"no-glob"`
	// Key is its private key (PEM). It must lie outside every granted path.
	Key Path `yaml:"key" json:"key,omitzero" is:"no-glob"`
}

// maxPublished is what "max_connections" is when it is absent.
const maxPublished = 512

// shortPublish reads the short form, which was checked before.
func shortPublish(s string, pos Pos) Publish {
	i := strings.LastIndexByte(s, ':')
	return Publish{Listen: s[:max(i, 0)], To: s[i+1:], Pos: pos}
}

// Label names the entry: by its name, or by what it listens on.
func (e Publish) Label() string { return cmp.Or(e.Name, e.Listen) }

// Unix tells whether the entry listens on a Unix socket.
func (e Publish) Unix() bool { return strings.HasPrefix(e.Listen, "/") }

// Address is where the entry listens. It is not valid for a Unix socket, nor for
// what is no address.
func (e Publish) Address() netip.AddrPort {
	if !strings.Contains(e.Listen, ":") {
		a, _ := netip.ParseAddrPort("127.0.0.1:" + e.Listen)
		return a
	}
	a, _ := netip.ParseAddrPort(e.Listen)
	return a
}

// Exposed tells whether others than this machine can reach the entry: it listens
// neither on loopback nor on a Unix socket. What is no address counts as exposed.
func (e Publish) Exposed() bool { return !e.Unix() && !e.Address().Addr().IsLoopback() }

// Proxied tells whether the proxy reads what clients send. The launcher carries
// the bytes of the others.
func (e Publish) Proxied() bool { return e.Bearer != nil || e.TLS.Key.Abs != "" }

// Most is how many connections may be open at a time.
func (e Publish) Most() int { return cmp.Or(e.MaxConnections, maxPublished) }

// Prefixes are the ranges of "from". None: any address may connect.
func (e Publish) Prefixes() (out []netip.Prefix) {
	for _, s := range e.From {
		p, err := parseRange(s)
		if err != nil { // checked before; what is no range lets nobody in
			p = netip.PrefixFrom(netip.IPv4Unspecified(), 32)
		}
		out = append(out, p)
	}
	return out
}

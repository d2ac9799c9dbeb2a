package policy

import (
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
	// Without it nothing is published.
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
	MaxConnections int `yaml:"max_connections" json:"max_connections,omitzero"`
	Pos            Pos `yaml:"-" json:"pos,omitzero"`
}

// PublishTLS is the certificate that clients of a published port see.
type PublishTLS struct {
	// Cert is the certificate with its chain (PEM).
	Cert Path `yaml:"cert" json:"cert,omitzero" is:"no-glob"`
	// Key is its private key (PEM). It must lie outside every granted path.
	Key Path `yaml:"key" json:"key,omitzero" is:"no-glob"`
}

// shortPublish reads the short form, which was checked before.
func shortPublish(s string, pos Pos) Publish {
	i := strings.LastIndexByte(s, ':')
	return Publish{Listen: s[:max(i, 0)], To: s[i+1:], Pos: pos}
}

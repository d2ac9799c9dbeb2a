package policy

// Network is every connection, request and name. Without a rule nothing
// leaves; what is not matched is denied.
type Network struct {
	// Rules allow. A request is allowed when some rule allows it and none denies it.
	Rules []Rule `yaml:"rules" json:"rules,omitzero" tighten:"subset"`
	// Deny lists hosts that are refused whatever the rules say.
	Deny []HostRule `yaml:"deny" json:"deny,omitzero" tighten:"superset"`
	// Private opens address ranges that are otherwise refused even for an
	// allowed name: loopback, private, link-local, CGNAT and so on. Metadata
	// addresses stay refused.
	Private []PrivateRange `yaml:"private" json:"private,omitzero" tighten:"subset"`
	// CA lists files with additional certificate authorities for upstream
	// connections (PEM).
	CA []Path `yaml:"ca" json:"ca,omitzero" is:"no-glob" tighten:"subset"`
	// Hosts pins names to addresses, as in /etc/hosts, for the proxy's own
	// lookups. Each value is one address or several.
	Hosts map[string][]string `yaml:"hosts" json:"hosts,omitzero" key:"host-name" is:"ip" tighten:"fixed"`
	// Remove drops inherited rules by name. A locked rule cannot be dropped.
	Remove []Name `yaml:"remove" json:"remove,omitzero" is:"rule-name" tighten:"superset"`
	// Publish forwards host ports to ports inside: "[ADDR:]HOST:PORT".
	Publish []Name `yaml:"publish" json:"publish,omitzero" is:"publish" tighten:"subset"`
}

// Protocol is what a rule speaks.
type Protocol string

// The protocols. The zero value means http on ports 80 and 443, judged by
// host alone unless the rule says more.
const (
	ProtocolHTTP Protocol = "http"
	ProtocolTCP  Protocol = "tcp"
)

// TLSMode is what the proxy does with TLS.
type TLSMode string

// The modes. The zero value is inferred: a rule with methods, paths or a
// query is inspected, a plain host rule passes bytes after the SNI check.
const (
	TLSAuto    TLSMode = ""
	TLSPass    TLSMode = "pass"
	TLSInspect TLSMode = "inspect"
)

// Rule allows requests to a host.
type Rule struct {
	// Name identifies the rule in denials, in the audit record and for
	// "remove". Required, unique.
	Name string `yaml:"name" json:"name,omitzero" is:"rule-name" required:"true"`
	// Host is a host name, "*.example.org" (one label; not the apex),
	// "**.example.org" (any depth), or an IP literal. Absent with any: true.
	Host string `yaml:"host" json:"host,omitzero" is:"host"`
	// Hosts lists several hosts for one rule; "host" and "hosts" exclude each other.
	Hosts []Name `yaml:"hosts" json:"hosts,omitzero" is:"host" nonempty:"true"`
	// Any matches every host. It must be spelt out; "*" is refused.
	Any bool `yaml:"any" json:"any,omitzero"`
	// Ports defaults to [80, 443] for http; a tcp rule must list its ports.
	Ports []int `yaml:"ports" json:"ports,omitzero" min:"1" max:"65535" nonempty:"true"`
	// Protocol is http (the default) or tcp.
	Protocol Protocol `yaml:"protocol" json:"protocol,omitzero" enum:"http,tcp"`
	// TLS is pass or inspect; absent means inferred.
	TLS TLSMode `yaml:"tls" json:"tls,omitzero" enum:"pass,inspect"`
	// Access is a shorthand: read-only is GET, HEAD and OPTIONS; read-write adds
	// POST, PUT and PATCH; full is every method. It makes the rule inspected.
	Access string `yaml:"access" json:"access,omitzero" enum:"read-only,read-write,full"`
	// Allow lists what is allowed; absent means everything that "access" and
	// "tls" leave, an empty list means nothing.
	Allow []Match `yaml:"allow" json:"allow,omitzero"`
	// Deny lists what is denied all the same.
	Deny []Match `yaml:"deny" json:"deny,omitzero"`
	// Reason is shown to the agent and the operator.
	Reason string `yaml:"reason" json:"reason,omitzero"`
	// Locked rules cannot be removed by a policy that extends this one.
	Locked bool `yaml:"locked" json:"locked,omitzero"`
	// Pos is where the rule was written.
	Pos Pos `yaml:"-" json:"pos,omitzero"`

	// AllowSet tells an empty Allow from an absent one.
	AllowSet bool `yaml:"-" json:"allow_set,omitzero"`
}

// Match is one clause of a rule. Every field that is present must match.
type Match struct {
	// Methods lists HTTP methods in upper case. Absent: any.
	Methods []string `yaml:"methods" json:"methods,omitzero" is:"method" nonempty:"true"`
	// Paths lists path patterns: "/v1/*", "/repos/**". Absent: any.
	Paths []string `yaml:"paths" json:"paths,omitzero" is:"url-path" nonempty:"true"`
	// Query lists parameters and the pattern each of their values must match.
	Query map[string]string `yaml:"query" json:"query,omitzero" is:"query" nonempty:"true"`
	Pos   Pos               `yaml:"-" json:"pos,omitzero"`
}

// HostRule refuses hosts.
type HostRule struct {
	// Host is as in a rule.
	Host string `yaml:"host" json:"host,omitzero" is:"host" required:"true"`
	// Ports limits it to ports; absent means all.
	Ports []int `yaml:"ports" json:"ports,omitzero" min:"1" max:"65535" nonempty:"true"`
	// Reason is shown to the agent and the operator.
	Reason string `yaml:"reason" json:"reason,omitzero"`
	Pos    Pos    `yaml:"-" json:"pos,omitzero"`
}

// PrivateRange opens addresses that are otherwise never dialled.
type PrivateRange struct {
	// CIDR is the range ("10.1.2.0/24") or one address.
	CIDR string `yaml:"cidr" json:"cidr,omitzero" is:"cidr" required:"true"`
	// Ports limits it to ports; absent means all.
	Ports []int `yaml:"ports" json:"ports,omitzero" min:"1" max:"65535" nonempty:"true"`
	// Reason says why. Required.
	Reason string `yaml:"reason" json:"reason,omitzero" required:"true"`
	Pos    Pos    `yaml:"-" json:"pos,omitzero"`
}

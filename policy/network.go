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
	// Upstream is the way out: a proxy of the house, client certificates, bounds.
	Upstream Upstream `yaml:"upstream" json:"upstream,omitzero"`
	// Budget bounds all traffic of one run.
	Budget TrafficBudget `yaml:"budget" json:"budget,omitzero"`
	// Publish forwards ports and sockets of the host to ports inside.
	Publish []Publish `yaml:"publish" json:"publish,omitzero" is:"publish" tighten:"subset"`
	// Docker opens a container engine of the host, within bounds.
	Docker Docker `yaml:"docker" json:"docker,omitzero"`
}

// Protocol is what a rule speaks.
type Protocol string

// The protocols. The zero value means http on ports 80 and 443, judged by
// host alone unless the rule says more. All but http and tcp are spoken inside
// HTTP: what such a rule recognises as its protocol is judged by rules of that
// protocol alone, message by message, and no http rule can allow it.
const (
	ProtocolHTTP      Protocol = "http"
	ProtocolTCP       Protocol = "tcp"
	ProtocolWebSocket Protocol = "websocket"
	ProtocolGRPC      Protocol = "grpc"
	ProtocolGit       Protocol = "git"
	ProtocolMCP       Protocol = "mcp"
	ProtocolJSONRPC   Protocol = "jsonrpc"
	ProtocolGraphQL   Protocol = "graphql"
)

// InHTTP tells whether the protocol is one inside HTTP, whose messages are
// judged.
func (p Protocol) InHTTP() bool {
	return p != "" && p != ProtocolHTTP && p != ProtocolTCP
}

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
	// Protocol is http (the default), tcp, or a protocol inside HTTP, whose
	// messages are then judged: websocket, grpc, git (smart HTTP), mcp, jsonrpc
	// or graphql.
	Protocol Protocol `yaml:"protocol" json:"protocol,omitzero" enum:"http,tcp,websocket,grpc,git,mcp,jsonrpc,graphql"`
	// Paths says where on the host the protocol is spoken (websocket, mcp,
	// jsonrpc, graphql). Absent: "/graphql" for graphql, otherwise everywhere.
	Paths []string `yaml:"paths" json:"paths,omitzero" is:"url-path" nonempty:"true"`
	// Credential names the entry of "credentials" that is attached to what the
	// rule allows. It makes the rule inspected. Where several rules allow a
	// request, the closest host counts (a name, then "*.", then "**.", then any),
	// then a rule with "allow" before one without; if what is left has not one
	// credential, the request is denied.
	Credential string `yaml:"credential" json:"credential,omitzero" is:"rule-name"`
	// EncodedSlash lets "%2F" stand in a path, inside one segment (npm's scoped
	// packages), also in the rule's own patterns. Rules without it do not allow
	// such a request; what is denied of it is denied as one segment and as two.
	EncodedSlash bool `yaml:"encoded_slash" json:"encoded_slash,omitzero"`
	// MaxResponse bounds one answer of an mcp server (bytes). 0: 16M.
	MaxResponse Size `yaml:"max_response" json:"max_response,omitzero"`
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

// Match is one clause of a rule. Every field that is present must match; which
// fields have a meaning depends on the rule's protocol. In patterns "*" stands
// for any run of characters within one segment between slashes, "**" across.
//
// Patterns over text that is not a path of a request (calls, tools, args, json,
// repos, refs, names, fields) are strict in "allow": letter case counts, and a
// wildcard stands for no segment that is empty, consists of dots and spaces, or
// holds a backslash, a control character or an escape of one of these, so that
// "src/**" does not fit "src/../x". In "deny" they are loose: letter case does
// not count, backslashes are slashes, escapes are decoded, dot segments
// resolved, invisible characters dropped, and lists and objects searched.
type Match struct {
	// Methods lists HTTP methods in upper case. Absent: any.
	Methods []string `yaml:"methods" json:"methods,omitzero" is:"method" nonempty:"true"`
	// Paths lists path patterns: "/v1/*", "/repos/**". Absent: any.
	Paths []string `yaml:"paths" json:"paths,omitzero" is:"url-path" nonempty:"true"`
	// Query lists parameters and the pattern each of their values must match.
	Query map[string]string `yaml:"query" json:"query,omitzero" is:"query" nonempty:"true"`
	// Headers lists header fields that must be there (http).
	Headers []string `yaml:"headers" json:"headers,omitzero" is:"header-name" nonempty:"true"`
	// MaxBody is the largest request body (http, bytes). A body that turns out
	// longer is cut off, and the request fails. In "deny" it has no meaning.
	MaxBody Size `yaml:"max_body" json:"max_body,omitzero" min:"1"`
	// MaxMessage is the largest message of the client (websocket, bytes).
	// 0: 1M. In "deny" it has no meaning.
	MaxMessage Size `yaml:"max_message" json:"max_message,omitzero" min:"1"`
	// JSON lists places in a client's text message, as JSON pointers (RFC 6901),
	// and the pattern of the value there (websocket). A clause of "allow" with
	// it matches no message that is not JSON; one of "deny" matches if the value
	// is there and fits, and every message that is not JSON, because nobody can
	// tell what is in it.
	JSON map[string]string `yaml:"json" json:"json,omitzero" key:"json-pointer" nonempty:"true"`
	// Calls lists what may be called: JSON-RPC methods ("tools/list"; mcp,
	// jsonrpc) or gRPC methods ("pkg.Service/Method"; grpc). What an mcp session
	// itself needs is allowed beside any clause of "allow" and unless denied:
	// initialize, server/discover, ping, logging/setLevel, completion/complete,
	// notifications/**, subscriptions/listen, and tools/list where some tool may
	// be called.
	Calls []string `yaml:"calls" json:"calls,omitzero" is:"pattern" nonempty:"true"`
	// Tools lists names of tools (mcp). It means calls: [tools/call], and in
	// "allow" also which tools a list may show.
	Tools []string `yaml:"tools" json:"tools,omitzero" is:"pattern" nonempty:"true"`
	// Args lists places in a tool's arguments (mcp) or in params (jsonrpc), as
	// JSON pointers, and the pattern of the value there. In an mcp rule a clause
	// without "calls" is about tools/call. In "allow" the value
	// must be there and fit; in "deny" it is enough that it is there and fits.
	// Numbers and booleans are compared in their JSON spelling.
	Args map[string]string `yaml:"args" json:"args,omitzero" key:"json-pointer" nonempty:"true"`
	// Op is fetch or push (git). Absent: both.
	Op string `yaml:"op" json:"op,omitzero" enum:"fetch,push"`
	// Repos lists repositories, without ".git": "acme/*" (git).
	Repos []string `yaml:"repos" json:"repos,omitzero" is:"pattern" nonempty:"true"`
	// Refs lists the full names of refs that may be pushed: "refs/heads/agent/*"
	// (git). Absent: any.
	Refs []string `yaml:"refs" json:"refs,omitzero" is:"pattern" nonempty:"true"`
	// Operations lists kinds of operations (graphql).
	Operations []string `yaml:"operations" json:"operations,omitzero" enum:"query,mutation,subscription" nonempty:"true"`
	// Names lists names of operations (graphql). An operation without a name
	// fits no pattern.
	Names []string `yaml:"names" json:"names,omitzero" is:"pattern" nonempty:"true"`
	// Fields lists root fields (graphql). In "allow" every root field of the
	// operation must fit, in "deny" one is enough. Aliases do not count.
	Fields []string `yaml:"fields" json:"fields,omitzero" is:"pattern" nonempty:"true"`
	Pos    Pos      `yaml:"-" json:"pos,omitzero"`
}

// Upstream is the way from the proxy to the servers.
type Upstream struct {
	// Proxy is the house's own proxy: "env" reads HTTPS_PROXY, HTTP_PROXY and
	// NO_PROXY of the launcher, user and password included; otherwise a URL
	// like "http://proxy.example.org:3128". Absent: none.
	Proxy string `yaml:"proxy" json:"proxy,omitzero" is:"proxy-url" tighten:"fixed"`
	// Certificates are client certificates for servers that ask for one. The
	// keys stay in the proxy.
	Certificates []ClientCertificate `yaml:"certificates" json:"certificates,omitzero" tighten:"subset"`
	// ConnectionsPerHost bounds open connections to one host. 0: 128.
	ConnectionsPerHost int `yaml:"connections_per_host" json:"connections_per_host,omitzero" tighten:"limit"`
}

// ClientCertificate is shown to servers that ask for one.
type ClientCertificate struct {
	// Hosts are the hosts it is for, as in a rule.
	Hosts []Name `yaml:"hosts" json:"hosts,omitzero" is:"host" required:"true" nonempty:"true"`
	// Cert is the certificate with its chain (PEM).
	Cert Path `yaml:"cert" json:"cert,omitzero" is:"no-glob" required:"true"`
	// Key is its private key (PEM). It must lie outside every granted path.
	Key Path `yaml:"key" json:"key,omitzero" is:"no-glob" required:"true"`
	Pos Pos  `yaml:"-" json:"pos,omitzero"`
}

// TrafficBudget bounds all traffic of one run. 0 or absent: no limit.
type TrafficBudget struct {
	// BytesOut is what may be sent to servers, heads and bodies of inspected
	// requests and the bytes of tunnels.
	BytesOut Size `yaml:"bytes_out" json:"bytes_out,omitzero" tighten:"limit"`
	// Hosts is the number of different hosts that may be reached.
	Hosts int `yaml:"hosts" json:"hosts,omitzero" tighten:"limit"`
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

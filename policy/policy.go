// Package policy is what the user wrote: the types of a policy, its strict
// decoding, its layers, and the checks that need no kernel. It imports no
// sibling package.
//
// Data flows one way: bytes → Policy → sandbox.Plan and netpolicy.Engine →
// process. A Policy that came out of Load is complete (defaults filled in,
// variables expanded, paths absolute) and immutable by convention.
package policy

import "fmt"

// Version is the schema version that this package reads.
const Version = 1

// Policy is one resolved policy. The zero value grants nothing.
type Policy struct {
	// Version is the schema version; 1 is the only one. Required in every file.
	Version int `yaml:"version"`
	// Name identifies the policy in messages and in the audit record.
	Name string `yaml:"name"`
	// Description says in a sentence what the policy is for.
	Description string `yaml:"description"`
	// Extends names the policies this one builds on, in order: "builtin:NAME",
	// or a path relative to this file. Absent means [builtin:strict]; an empty
	// list means nothing is inherited.
	Extends []string `yaml:"extends"`
	// Require says which protections must be enforced.
	Require Require `yaml:"require"`
	// Workspace is the directory the agent works in.
	Workspace Workspace `yaml:"workspace"`
	// Filesystem is everything else that is visible inside.
	Filesystem Filesystem `yaml:"filesystem"`
	// Env is the environment of the command.
	Env Env `yaml:"env"`
	// Process is what processes inside may do to each other and the kernel.
	Process Process `yaml:"process"`
	// Syscalls changes the system call filter.
	Syscalls Syscalls `yaml:"syscalls"`
	// Limits bounds what the tree may use.
	Limits Limits `yaml:"limits"`
	// Network is every connection, request and name.
	Network Network `yaml:"network"`
	// Audit is where decisions are recorded.
	Audit Audit `yaml:"audit"`
	// Assert holds the policy's own tests, run by "hermes-wrap test" and at
	// each launch.
	Assert []Assertion `yaml:"assert"`

	// Sources lists every file and built-in that went in, base first.
	Sources []Source `yaml:"-"`
	// Digest is the SHA-256 (hex) of the resolved policy in canonical JSON.
	Digest string `yaml:"-"`
	// Vars are the values the path variables had (WORKSPACE, HOME, …).
	Vars map[string]string `yaml:"-"`
	// Warnings are findings that do not stop a launch, in file order.
	Warnings []Problem `yaml:"-"`
}

// Source is one file or built-in of a policy.
type Source struct {
	Name   string // "builtin:strict" or an absolute path
	Digest string // SHA-256 of the bytes, hex
}

// Pos is where a value was written. The zero value means "a default".
type Pos struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
}

// String gives file:line:col, or "default".
func (p Pos) String() string {
	if p.File == "" {
		return "default"
	}
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Layer is one protection that can be missing on a machine.
type Layer string

// The layers, as written in require.may_degrade.
const (
	LayerNamespaces Layer = "namespaces" // user, mount, pid, net, ipc, uts namespaces and the private root
	LayerLandlock   Layer = "landlock"   // the Landlock domain
	LayerSeccomp    Layer = "seccomp"    // the system call filter
	LayerMemory     Layer = "memory"     // limits.memory
	LayerPids       Layer = "pids"       // limits.pids
	LayerCPU        Layer = "cpu"        // limits.cpu
	LayerProc       Layer = "proc"       // a fresh /proc of the sandbox's own
	LayerCapture    Layer = "capture"    // capture of every TCP port (nftables TPROXY)
)

// Require says which protections must be enforced.
type Require struct {
	// MayDegrade names the layers that may be missing. Whatever is then missing
	// is said in the first line on stderr and in the audit record. Empty:
	// nothing may be missing, and the launch stops with exit 125 instead.
	MayDegrade []Layer `yaml:"may_degrade" enum:"namespaces,landlock,seccomp,memory,pids,cpu,proc,capture"`
	// LandlockABI is the lowest Landlock ABI to accept, 1 to 7. 0 accepts what
	// the profile needs (3: truncation is covered).
	LandlockABI int `yaml:"landlock_abi"`
}

// Access is what may be done with a tree.
type Access string

// The accesses. The zero value ("") grants nothing.
const (
	AccessNone  Access = "none"
	AccessRead  Access = "read"
	AccessWrite Access = "write"
)

// Workspace is the directory the agent works in.
type Workspace struct {
	// Path is the directory; "." is the directory hermes-wrap was started in.
	Path Path `yaml:"path"`
	// Access is none, read or write.
	Access Access `yaml:"access" enum:"none,read,write"`
	// Exec lets programs that lie in the workspace be executed.
	Exec bool `yaml:"exec"`
}

// Path is a path as written and as resolved. It is written as a plain string:
// absolute, starting with "~", or with one of the variables ${WORKSPACE},
// ${HERMES_HOME}, ${HOME}, ${TMP}, ${XDG_CONFIG_HOME}, ${XDG_CACHE_HOME},
// ${XDG_DATA_HOME}, ${XDG_STATE_HOME}, ${XDG_RUNTIME_DIR}. "*" stands for one
// path segment or a part of one, "**" for any number of segments.
type Path struct {
	// Text is the path as written.
	Text string `json:"text"`
	// Abs is the expanded, lexically clean, absolute path (symlinks kept).
	Abs string `json:"abs"`
	// Optional is true when the path was written with a trailing "?": it may
	// be missing without a warning.
	Optional bool `json:"optional,omitempty"`
	Pos      Pos  `json:"pos"`
}

// Filesystem is what is visible inside besides the workspace. The root is
// built up from nothing: what is not listed does not exist inside.
type Filesystem struct {
	// Read lists trees that can be read.
	Read []Path `yaml:"read"`
	// Write lists trees that can be read and written.
	Write []Path `yaml:"write"`
	// Exec lists trees whose files can be executed (and read). Writable trees
	// are not executable unless they are listed here too.
	Exec []Path `yaml:"exec"`
	// Hide lists entries inside visible trees that cannot be opened. Deny wins.
	Hide []Path `yaml:"hide"`
	// Protect lists entries inside writable trees that stay read-only, also
	// those that do not exist yet.
	Protect []Path `yaml:"protect"`
	// Home is what the home directory is inside: "private" is an empty tmpfs
	// that is gone afterwards, "persistent" a directory of this policy under
	// XDG state, "none" no home directory at all.
	Home string `yaml:"home" enum:"private,persistent,none"`
	// HomeSize bounds a private home (bytes, e.g. 512M).
	HomeSize Size `yaml:"home_size"`
	// TmpSize bounds the private /tmp.
	TmpSize Size `yaml:"tmp_size"`
	// ShmSize bounds the private /dev/shm.
	ShmSize Size `yaml:"shm_size"`
	// Inodes bounds the number of files in each private tmpfs. 0: 1 million.
	Inodes int `yaml:"inodes"`
	// TmpExec lets files in /tmp and in a private home be executed.
	TmpExec bool `yaml:"tmp_exec"`
	// Devices lists device nodes beyond null zero full random urandom tty ptmx
	// pts shm.
	Devices []Path `yaml:"devices"`
	// Sockets lists Unix sockets of the host that may be connected to. Each is
	// an opening of its own: reading a socket's path does not grant it.
	Sockets []Path `yaml:"sockets"`
}

// Env is the environment of the command: an allow-list.
type Env struct {
	// Allow lists the variables copied from the caller's environment; "*"
	// stands for any run of characters in a name ("LC_*").
	Allow []Name `yaml:"allow"`
	// Set sets variables. ${VAR} of the path variables is expanded.
	Set map[string]string `yaml:"set"`
	// Secret lists names that look like secrets to the built-in check but may
	// pass all the same.
	Secret []Name `yaml:"secret"`
}

// Name is a string with the place it was written.
type Name struct {
	Text string `json:"text"`
	Pos  Pos    `json:"pos"`
}

// Process is what processes inside may do.
type Process struct {
	// UserNamespaces lets programs create user namespaces of their own
	// (Chromium's inner sandbox). It widens the kernel surface considerably.
	UserNamespaces bool `yaml:"user_namespaces"`
	// Ptrace lets a process trace its own children (debuggers).
	Ptrace bool `yaml:"ptrace"`
	// Uid is the user id that shows inside: "self" (the caller's own) or "root".
	Uid string `yaml:"uid" enum:"self,root"`
	// Hostname is the host name inside.
	Hostname string `yaml:"hostname"`
	// StopGrace is how long the tree has after SIGTERM before SIGKILL.
	StopGrace Duration `yaml:"stop_grace"`
	// Umask is applied to the command; empty keeps the caller's. Octal, as
	// a quoted string: "0077".
	Umask string `yaml:"umask"`
}

// Syscalls changes the filter. Names are system calls, or sets written as
// "@set" (see docs/policy-reference.md).
type Syscalls struct {
	// Allow adds calls or sets to the base.
	Allow []Name `yaml:"allow"`
	// Deny removes calls or sets. Deny wins.
	Deny []Name `yaml:"deny"`
}

// Limits bounds what the whole tree may use. 0 or absent: no limit of ours.
type Limits struct {
	// Memory is the resident memory of the whole tree (bytes, e.g. 4G).
	Memory Size `yaml:"memory"`
	// Pids is the number of tasks (threads count).
	Pids int `yaml:"pids"`
	// CPU is in processors: 1.5 is one and a half.
	CPU float64 `yaml:"cpu"`
	// OpenFiles is RLIMIT_NOFILE of each process.
	OpenFiles int `yaml:"open_files"`
	// FileSize is RLIMIT_FSIZE of each process.
	FileSize Size `yaml:"file_size"`
	// Time ends the run after this long, with exit 124.
	Time Duration `yaml:"time"`
	// Connections is the number of open connections through the proxy.
	Connections int `yaml:"connections"`
}

// Network is every connection, request and name. Without a rule nothing
// leaves; what is not matched is denied.
type Network struct {
	// Rules allow. A request is allowed when some rule allows it and none denies it.
	Rules []Rule `yaml:"rules"`
	// Deny lists hosts that are refused whatever the rules say.
	Deny []HostRule `yaml:"deny"`
	// Private opens address ranges that are otherwise refused even for an
	// allowed name: loopback, private, link-local, CGNAT and so on. Metadata
	// addresses stay refused.
	Private []PrivateRange `yaml:"private"`
	// CA lists files with additional certificate authorities for upstream
	// connections (PEM).
	CA []Path `yaml:"ca"`
	// Hosts pins names to addresses, as in /etc/hosts, for the proxy's own
	// lookups. Each value is one address or several.
	Hosts map[string][]string `yaml:"hosts"`
	// Publish forwards host ports to ports inside: "[ADDR:]HOST:PORT".
	Publish []Name `yaml:"publish"`
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
	Name string `yaml:"name"`
	// Host is a host name, "*.example.org" (one label; not the apex),
	// "**.example.org" (any depth), or an IP literal. Absent with any: true.
	Host string `yaml:"host"`
	// Hosts lists several hosts for one rule; Host and Hosts exclude each other.
	Hosts []Name `yaml:"hosts"`
	// Any matches every host. It must be spelt out; "*" is refused.
	Any bool `yaml:"any"`
	// Ports defaults to [80, 443] for http; a tcp rule must list its ports.
	Ports []int `yaml:"ports"`
	// Protocol is http (the default) or tcp.
	Protocol Protocol `yaml:"protocol" enum:"http,tcp"`
	// TLS is pass or inspect; absent means inferred.
	TLS TLSMode `yaml:"tls" enum:"pass,inspect"`
	// Access is a shorthand: read-only is GET, HEAD and OPTIONS; read-write adds
	// POST, PUT and PATCH; full is every method. It makes the rule inspected.
	Access string `yaml:"access" enum:"read-only,read-write,full"`
	// Allow lists what is allowed; absent means everything that Access and TLS
	// leave, an empty list means nothing.
	Allow []Match `yaml:"allow"`
	// Deny lists what is denied all the same.
	Deny []Match `yaml:"deny"`
	// Reason is shown to the agent and the operator.
	Reason string `yaml:"reason"`
	// Locked rules cannot be removed by a policy that extends this one.
	Locked bool `yaml:"locked"`
	// Pos is where the rule was written.
	Pos Pos `yaml:"-"`

	// AllowSet tells an empty Allow from an absent one.
	AllowSet bool `yaml:"-"`
}

// Match is one clause of a rule. Every field that is present must match.
type Match struct {
	// Methods lists HTTP methods in upper case. Absent: any.
	Methods []string `yaml:"methods"`
	// Paths lists path patterns: "/v1/*", "/repos/**". Absent: any.
	Paths []string `yaml:"paths"`
	// Query lists parameters and the pattern each of their values must match.
	Query map[string]string `yaml:"query"`
	Pos   Pos               `yaml:"-"`
}

// HostRule refuses hosts.
type HostRule struct {
	// Host is as in a rule.
	Host string `yaml:"host"`
	// Ports limits it to ports; absent means all.
	Ports []int `yaml:"ports"`
	// Reason is shown to the agent and the operator.
	Reason string `yaml:"reason"`
	Pos    Pos    `yaml:"-"`
}

// PrivateRange opens addresses that are otherwise never dialled.
type PrivateRange struct {
	// CIDR is the range ("10.1.2.0/24") or one address.
	CIDR string `yaml:"cidr"`
	// Ports limits it to ports; absent means all.
	Ports []int `yaml:"ports"`
	// Reason says why. Required.
	Reason string `yaml:"reason"`
	Pos    Pos    `yaml:"-"`
}

// Audit is where decisions are recorded: one JSON object a line.
type Audit struct {
	// File is the record. Absent: $XDG_STATE_HOME/hermes-wrap/audit.jsonl. It
	// must lie outside every granted path.
	File Path `yaml:"file"`
	// Required stops the run when a record cannot be written.
	Required bool `yaml:"required"`
}

// Assertion is one test of the policy: what must be allowed or denied.
type Assertion struct {
	// Allow is what must be allowed. Exactly one of Allow and Deny.
	Allow *Probe `yaml:"allow"`
	// Deny is what must be denied.
	Deny *Probe `yaml:"deny"`
	Pos  Pos    `yaml:"-"`
}

// Probe is one question to the policy. Exactly one field is set.
type Probe struct {
	Read    string `yaml:"read"`    // a path
	Write   string `yaml:"write"`   // a path
	Exec    string `yaml:"exec"`    // a path
	Connect string `yaml:"connect"` // host:port
	URL     string `yaml:"url"`     // "GET https://host/path"
	Env     string `yaml:"env"`     // a variable name
	Syscall string `yaml:"syscall"` // a system call name
}

// Size is a number of bytes, written 4096, 64K, 512M or 2G (powers of 1024).
type Size int64

// Duration is nanoseconds, written 30s, 5m or 1h.
type Duration int64

// Problem is one mistake or finding in a policy.
type Problem struct {
	Pos  Pos    `json:"pos"`
	Path string `json:"path"` // "network.rules[2].host"
	What string `json:"what"` // lower case, no full stop
	Hint string `json:"hint,omitempty"`
}

// Error gives "file:line:col: path: what".
func (p Problem) Error() string {
	s := p.Pos.String() + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	return s + p.What
}

// Problems is every mistake found in one run, in file order.
type Problems []Problem

// Error gives one mistake a line.
func (ps Problems) Error() string {
	s := ""
	for i, p := range ps {
		if i > 0 {
			s += "\n"
		}
		s += p.Error()
	}
	return s
}

// Granted tells whether a path lies at or below one that the policy makes
// visible or writable; Load uses it to keep our own files outside.
func (p Policy) Granted() []Path {
	all := append([]Path{}, p.Filesystem.Read...)
	all = append(all, p.Filesystem.Write...)
	all = append(all, p.Filesystem.Exec...)
	if p.Workspace.Access != AccessNone && p.Workspace.Access != "" {
		all = append(all, p.Workspace.Path)
	}
	return all
}

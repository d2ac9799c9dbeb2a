// Package policy is what the user wrote: the types of a policy, its strict
// decoding, its layers, and the checks that need no kernel. It imports no
// sibling package.
//
// Data flows one way: bytes → Policy → sandbox.Plan and netpolicy.Engine →
// process. A Policy that came out of Load is complete (defaults filled in,
// variables expanded, paths absolute) and immutable by convention.
package policy

// Version is the schema version that this package reads.
const Version = 1

// Policy is one resolved policy. The zero value grants nothing.
type Policy struct {
	// Version is the schema version; 1 is the only one. Required in every file.
	Version int `yaml:"version" json:"version,omitzero" required:"true" tighten:"label"`
	// Name identifies the policy in messages and in the audit record. It is not
	// inherited; absent, it is the file's name without ".yaml".
	Name string `yaml:"name" json:"name,omitzero" is:"name" tighten:"label"`
	// Description says in a sentence what the policy is for.
	Description string `yaml:"description" json:"description,omitzero" tighten:"label"`
	// Enable switches fragments on, built-in pieces of policy for one purpose:
	// "provider/openrouter", "channel/telegram", "packages/npm". They count like
	// policies named in "extends", after them.
	Enable []Name `yaml:"enable" json:"enable,omitzero" is:"fragment" tighten:"absent"`
	// Extends names the policies this one builds on, in order: "builtin:NAME",
	// or a path relative to this file. Absent means [builtin:strict]; an empty
	// list means nothing is inherited.
	Extends []string `yaml:"extends" json:"extends,omitzero" is:"extends" tighten:"absent"`
	// Require says which protections must be enforced.
	Require Require `yaml:"require" json:"require,omitzero"`
	// Workspace is the directory the agent works in.
	Workspace Workspace `yaml:"workspace" json:"workspace,omitzero"`
	// Filesystem is everything else that is visible inside.
	Filesystem Filesystem `yaml:"filesystem" json:"filesystem,omitzero"`
	// Env is the environment of the command.
	Env Env `yaml:"env" json:"env,omitzero"`
	// State says what becomes of copy-on-write layers when the run ends:
	// "ephemeral" (the default) drops them, "persistent" keeps them in the
	// session's directory, where the next run of that name finds them: --name, or
	// the policy's name.
	State string `yaml:"state" json:"state,omitzero" enum:"ephemeral,persistent" tighten:"lower"`
	// Process is what processes inside may do to each other and the kernel.
	Process Process `yaml:"process" json:"process,omitzero"`
	// Syscalls changes the system call filter.
	Syscalls Syscalls `yaml:"syscalls" json:"syscalls,omitzero"`
	// Limits bounds what the tree may use.
	Limits Limits `yaml:"limits" json:"limits,omitzero"`
	// Network is every connection, request and name.
	Network Network `yaml:"network" json:"network,omitzero"`
	// Credentials are secrets that stay outside, by name.
	Credentials map[string]Credential `yaml:"credentials" json:"credentials,omitzero" key:"rule-name" tighten:"fixed"`
	// Inference is every call of a model.
	Inference Inference `yaml:"inference" json:"inference,omitzero"`
	// Supervise keeps the command and further services running.
	Supervise Supervise `yaml:"supervise" json:"supervise,omitzero"`
	// Audit is where decisions are recorded.
	Audit Audit `yaml:"audit" json:"audit,omitzero"`
	// Metrics are numbers about the run.
	Metrics Metrics `yaml:"metrics" json:"metrics,omitzero"`
	// Assert holds the policy's own tests, run by "hermes-wrap test" and at
	// each launch.
	Assert []Assertion `yaml:"assert" json:"assert,omitzero" tighten:"superset"`

	// Sources lists every file and built-in that went in, base first.
	Sources []Source `yaml:"-" json:"sources,omitzero"`
	// Digest is the SHA-256 (hex) of the resolved policy in canonical JSON.
	Digest string `yaml:"-" json:"digest,omitzero"`
	// Vars are the values the path variables had (WORKSPACE, HOME, …).
	Vars map[string]string `yaml:"-" json:"vars,omitzero"`
	// Where holds the place of each key that was written, by its path
	// ("limits.memory"); the last layer that wrote it counts.
	Where map[string]Pos `yaml:"-" json:"where,omitzero"`
	// Warnings are findings that do not stop a launch, in file order.
	Warnings []Problem `yaml:"-" json:"warnings,omitzero"`
}

// Source is one file or built-in of a policy.
type Source struct {
	Name   string `json:"name"`   // "builtin:strict", an absolute path, or "flags"
	Digest string `json:"digest"` // SHA-256 of the bytes, hex
}

// Layer is one protection that can be missing on a machine.
type Layer string

// The layers. All but seccomp and proc can be named in require.may_degrade:
// nothing could stand in for those two.
const (
	LayerNamespaces Layer = "namespaces" // user, mount, pid, net, ipc, uts namespaces and the private root
	LayerLandlock   Layer = "landlock"   // the Landlock domain
	LayerSeccomp    Layer = "seccomp"    // the system call filter
	LayerMemory     Layer = "memory"     // limits.memory
	LayerPids       Layer = "pids"       // limits.pids
	LayerCPU        Layer = "cpu"        // limits.cpu
	LayerProc       Layer = "proc"       // a fresh /proc of the sandbox's own
	LayerCapture    Layer = "capture"    // capture of every TCP port (nftables TPROXY)
	LayerSockets    Layer = "sockets"    // local and listening sockets and /dev/shm kept shut where there are no namespaces
)

// Require says which protections must be enforced.
type Require struct {
	// MayDegrade names the layers that may be missing. Whatever is then missing
	// is said in the first line on stderr and in the audit record. Empty:
	// nothing may be missing, and the launch stops with exit 125 instead.
	// "sockets" has a meaning without namespaces only, where local sockets and
	// listening are otherwise refused: with it they are allowed, so that every
	// local socket of the host that the caller's user can open is reached, servers
	// inside listen on the machine's own addresses, and /dev/shm is the host's.
	MayDegrade []Layer `yaml:"may_degrade" json:"may_degrade,omitzero" enum:"namespaces,landlock,memory,pids,cpu,capture,sockets" tighten:"subset"`
	// LandlockABI is the lowest Landlock ABI to accept, see landlock(7). 0
	// means 2: with 1 no file can be moved between directories.
	LandlockABI int `yaml:"landlock_abi" json:"landlock_abi,omitzero" max:"16" tighten:"higher"`
}

// Access is what may be done with a tree.
type Access string

// The accesses. The zero value ("") grants nothing.
const (
	AccessNone  Access = "none"
	AccessRead  Access = "read"
	AccessWrite Access = "write"
	// AccessCow is write access to a copy: what is written goes into a layer of
	// the session and not into the tree, until it is committed.
	AccessCow Access = "cow"
)

// Workspace is the directory the agent works in.
type Workspace struct {
	// Path is the directory; "." is the directory hermes-wrap was started in.
	Path Path `yaml:"path" json:"path,omitzero" is:"no-glob" tighten:"absent"`
	// Access is none, read, cow (copy-on-write: what is written goes into a layer
	// of the session, to be reviewed and committed) or write.
	Access Access `yaml:"access" json:"access,omitzero" enum:"none,read,cow,write" tighten:"lower"`
	// Exec lets programs that lie in the workspace be executed.
	Exec bool `yaml:"exec" json:"exec,omitzero" tighten:"lower"`
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
	// Glob is true when the text has wildcards. Abs is then a pattern in which
	// a backslash stands before each character of a variable's value that would
	// otherwise be a wildcard; without Glob, Abs is to be taken literally.
	Glob bool `json:"glob,omitempty"`
	Pos  Pos  `json:"pos"`
}

// Filesystem is what is visible inside besides the workspace. The root is
// built up from nothing: what is not listed does not exist inside.
type Filesystem struct {
	// Read lists trees that can be read.
	Read []Path `yaml:"read" json:"read,omitzero" tighten:"subset"`
	// Write lists trees that can be read and written.
	Write []Path `yaml:"write" json:"write,omitzero" tighten:"subset"`
	// Cow lists trees that can be read and written copy-on-write: what is written
	// goes into a layer of the session and not into the tree, until it is committed.
	// They must be directories, cannot be listed under "write" too, and do not nest.
	Cow []Path `yaml:"cow" json:"cow,omitzero" is:"no-glob" tighten:"subset"`
	// Exec lists trees whose files can be executed (and read). Writable trees
	// are not executable unless they are listed here too.
	Exec []Path `yaml:"exec" json:"exec,omitzero" tighten:"subset"`
	// Hide lists entries inside visible trees that cannot be opened. Deny wins.
	Hide []Path `yaml:"hide" json:"hide,omitzero" tighten:"superset"`
	// Protect lists entries inside writable trees that stay read-only, also
	// those that do not exist yet.
	Protect []Path `yaml:"protect" json:"protect,omitzero" tighten:"superset"`
	// Home is what the home directory is inside: "private" is an empty tmpfs
	// that is gone afterwards, "persistent" a directory of this policy under
	// XDG state, "none" no home directory at all.
	Home string `yaml:"home" json:"home,omitzero" enum:"none,private,persistent" tighten:"lower"`
	// WholeHome lets a tree of "write" or "cow" hold a whole home directory, with whatever
	// keys and start-up files lie there: for an account that the agent has to itself,
	// as in a container. The root directory stays refused.
	WholeHome bool `yaml:"whole_home" json:"whole_home,omitzero" tighten:"lower"`
	// HomeSize bounds a private home (bytes, e.g. 512M).
	HomeSize Size `yaml:"home_size" json:"home_size,omitzero" min:"65536" tighten:"limit"`
	// TmpSize bounds the private /tmp.
	TmpSize Size `yaml:"tmp_size" json:"tmp_size,omitzero" min:"65536" tighten:"limit"`
	// ShmSize bounds the private /dev/shm.
	ShmSize Size `yaml:"shm_size" json:"shm_size,omitzero" min:"65536" tighten:"limit"`
	// Inodes bounds the number of files in each private tmpfs. 0: 1 million.
	Inodes int `yaml:"inodes" json:"inodes,omitzero" tighten:"limit"`
	// TmpExec lets files in /tmp and in a private home be executed.
	TmpExec bool `yaml:"tmp_exec" json:"tmp_exec,omitzero" tighten:"lower"`
	// Devices lists device nodes beyond null zero full random urandom tty ptmx
	// pts shm.
	Devices []Path `yaml:"devices" json:"devices,omitzero" tighten:"subset"`
	// Sockets lists Unix sockets of the host that may be connected to. Each is
	// an opening of its own: reading a socket's path does not grant it.
	Sockets []Path `yaml:"sockets" json:"sockets,omitzero" tighten:"subset"`
}

// Env is the environment of the command: an allow-list.
type Env struct {
	// Allow lists the variables copied from the caller's environment; "*"
	// stands for any run of characters in a name ("LC_*").
	Allow []Name `yaml:"allow" json:"allow,omitzero" is:"env-pattern" tighten:"subset"`
	// Set sets variables. ${VAR} of the path variables is expanded.
	Set map[string]string `yaml:"set" json:"set,omitzero" key:"env-name" tighten:"fixed"`
	// Secret lists names that look like secrets to the built-in check but may
	// pass all the same.
	Secret []Name `yaml:"secret" json:"secret,omitzero" is:"env-pattern" tighten:"subset"`
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
	UserNamespaces bool `yaml:"user_namespaces" json:"user_namespaces,omitzero" tighten:"lower"`
	// Ptrace lets a process trace its own children (debuggers).
	Ptrace bool `yaml:"ptrace" json:"ptrace,omitzero" tighten:"lower"`
	// Uid is the user id that shows inside: "self" (the caller's own) or "root".
	Uid string `yaml:"uid" json:"uid,omitzero" enum:"self,root" tighten:"fixed"`
	// Hostname is the host name inside.
	Hostname string `yaml:"hostname" json:"hostname,omitzero" is:"hostname" tighten:"fixed"`
	// StopGrace is how long the tree has after SIGTERM before SIGKILL.
	StopGrace Duration `yaml:"stop_grace" json:"stop_grace,omitzero" tighten:"lower"`
	// Umask is applied to the command; empty keeps the caller's. Octal, as
	// a quoted string: "0077".
	Umask string `yaml:"umask" json:"umask,omitzero" is:"umask" tighten:"fixed"`
}

// Syscalls changes the filter. Names are system calls, or sets written as
// "@set" (see docs/policy-reference.md).
type Syscalls struct {
	// Allow adds calls or sets to the base.
	Allow []Name `yaml:"allow" json:"allow,omitzero" is:"syscall" tighten:"subset"`
	// Deny removes calls or sets. Deny wins.
	Deny []Name `yaml:"deny" json:"deny,omitzero" is:"syscall" tighten:"superset"`
}

// Limits bounds what the whole tree may use. 0 or absent: no limit of ours.
type Limits struct {
	// Memory is the resident memory of the whole tree (bytes, e.g. 4G).
	Memory Size `yaml:"memory" json:"memory,omitzero" tighten:"limit"`
	// Pids is the number of tasks (threads count).
	Pids int `yaml:"pids" json:"pids,omitzero" tighten:"limit"`
	// CPU is in processors: 1.5 is one and a half.
	CPU float64 `yaml:"cpu" json:"cpu,omitzero" tighten:"limit"`
	// OpenFiles is RLIMIT_NOFILE of each process.
	OpenFiles int `yaml:"open_files" json:"open_files,omitzero" tighten:"limit"`
	// FileSize is RLIMIT_FSIZE of each process.
	FileSize Size `yaml:"file_size" json:"file_size,omitzero" tighten:"limit"`
	// Disk is what all copy-on-write layers of the run may hold together (bytes).
	// With "state: ephemeral" the kernel holds it, and absent means 1G; with
	// "persistent" the launcher measures and ends the run, see docs/state.md.
	Disk Size `yaml:"disk" json:"disk,omitzero" min:"65536" tighten:"limit"`
	// DiskFiles is the number of files and directories that they may hold. Absent:
	// 500,000 with "state: ephemeral".
	DiskFiles int `yaml:"disk_files" json:"disk_files,omitzero" tighten:"limit"`
	// Time ends the run after this long, with exit 124.
	Time Duration `yaml:"time" json:"time,omitzero" tighten:"limit"`
	// Connections is the number of open connections through the proxy.
	Connections int `yaml:"connections" json:"connections,omitzero" tighten:"limit"`
}

// Audit is where decisions are recorded: one JSON object a line.
type Audit struct {
	// File is the record. Absent: $XDG_STATE_HOME/hermes-wrap/audit.jsonl. It
	// must lie outside every granted path.
	File Path `yaml:"file" json:"file,omitzero" is:"no-glob" tighten:"fixed"`
	// Required stops the run when a record cannot be written.
	Required bool `yaml:"required" json:"required,omitzero" tighten:"higher"`
	// MaxSize is where the file is rotated (bytes). 0: 64M.
	MaxSize Size `yaml:"max_size" json:"max_size,omitzero" min:"65536" tighten:"fixed"`
	// Keep is how many rotated files are kept. 0: 8.
	Keep int `yaml:"keep" json:"keep,omitzero" max:"1000" tighten:"fixed"`
}

// Assertion is one test of the policy: what must be allowed or denied.
type Assertion struct {
	// Allow is what must be allowed. Exactly one of "allow" and "deny".
	Allow *Probe `yaml:"allow" json:"allow,omitzero"`
	// Deny is what must be denied.
	Deny *Probe `yaml:"deny" json:"deny,omitzero"`
	Pos  Pos    `yaml:"-" json:"pos,omitzero"`
}

// Probe is one question to the policy. Exactly one field is set.
type Probe struct {
	Read    string `yaml:"read" json:"read,omitzero"`                      // a path
	Write   string `yaml:"write" json:"write,omitzero"`                    // a path
	Exec    string `yaml:"exec" json:"exec,omitzero"`                      // a path
	Connect string `yaml:"connect" json:"connect,omitzero" is:"host-port"` // host:port
	URL     string `yaml:"url" json:"url,omitzero" is:"url"`               // "GET https://host/path"; ws and wss for WebSocket
	Env     string `yaml:"env" json:"env,omitzero" is:"env-name"`          // a variable name
	Syscall string `yaml:"syscall" json:"syscall,omitzero" is:"syscall"`   // a system call name
}

// Size is a number of bytes, written 4096, 64K, 512M or 2G (powers of 1024).
type Size int64

// Duration is nanoseconds, written 30s, 5m or 1h.
type Duration int64

// Granted tells whether a path lies at or below one that the policy makes
// visible or writable; Load uses it to keep our own files outside.
func (p Policy) Granted() []Path {
	all := append([]Path{}, p.Filesystem.Read...)
	all = append(all, p.Filesystem.Write...)
	all = append(all, p.Filesystem.Cow...)
	all = append(all, p.Filesystem.Exec...)
	if p.Workspace.Access != AccessNone && p.Workspace.Access != "" {
		all = append(all, p.Workspace.Path)
	}
	return all
}

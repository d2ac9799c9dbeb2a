// Package sandbox turns a policy into a plan and a plan into a confined
// process: Policy → Plan → process. Compile is pure; Run touches the kernel.
//
// Roles of one run: the launcher (host, holds the policy and the terminal),
// init (PID 1 inside, outside the agent's Landlock domain, without
// capabilities once the agent runs) and the agent tree.
package sandbox

import (
	"path/filepath"
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// EntryKind is what an entry of the private root is.
type EntryKind string

// The kinds. The zero value is invalid and stops the launch.
const (
	KindDir     EntryKind = "dir"     // an empty directory on the root's own tmpfs
	KindFile    EntryKind = "file"    // a file with Data, read-only
	KindSymlink EntryKind = "symlink" // a symlink to Data
	KindBind    EntryKind = "bind"    // Source, recursively, from the host
	KindOverlay EntryKind = "overlay" // Source from the host, copy-on-write into the layer Layer
	KindPart    EntryKind = "part"    // a part of a copy-on-write tree, with rights of its own
	KindTmpfs   EntryKind = "tmpfs"   // a private tmpfs with Size and Inodes
	KindMask    EntryKind = "mask"    // an empty, unreadable cover over an existing entry
	KindProtect EntryKind = "protect" // a read-only cover of the entry by itself
	KindPin     EntryKind = "pin"     // the directory bound onto itself, so that it cannot be renamed
	KindProc    EntryKind = "proc"    // a fresh /proc of the sandbox's pid namespace
	KindDev     EntryKind = "dev"     // the tmpfs of /dev
	KindPts     EntryKind = "pts"     // a devpts instance of its own
	KindMqueue  EntryKind = "mqueue"  // POSIX message queues of its own
	KindNode    EntryKind = "node"    // the device node Source
	KindSeal    EntryKind = "seal"    // the mount at Target becomes read-only, those below it do not
	KindAlias   EntryKind = "alias"   // Source, a path inside, bound read-only over Target
)

// Blob names content that only the running launcher has, too large for a plan.
type Blob string

// The blobs of a run that inspects TLS.
const (
	BlobBundle     Blob = "certificate bundle" // PEM
	BlobTruststore Blob = "Java trust store"   // as JavaTruststore makes it
)

// Entry is one thing in the private root. The list in a Plan is ordered:
// parents come before children and covers after what they cover.
type Entry struct {
	Kind   EntryKind `json:"kind"`
	Target string    `json:"target"`           // absolute path inside
	Source string    `json:"source,omitempty"` // host path without symlinks
	// Dev and Ino identify Source as it was judged; another inode at mount
	// time stops the launch.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
	Dir bool   `json:"dir,omitempty"`
	// Write and Exec open the tree for writing and for execution. Both are
	// held by the mount's own flags and by Landlock.
	Write bool   `json:"write,omitempty"`
	Exec  bool   `json:"exec,omitempty"`
	Data  string `json:"data,omitempty"`
	Blob  Blob   `json:"blob,omitempty"` // file: the launcher sends the content of that name
	// Layer is the id of the layer that takes what is written (overlay).
	Layer  string `json:"layer,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Inodes int    `json:"inodes,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
	// Rule is the policy path that asked for it ("filesystem.read[3]"), or a
	// word for what the launcher adds by itself.
	Rule string     `json:"rule"`
	Pos  policy.Pos `json:"pos"`
}

// Grant is one Landlock rule.
type Grant struct {
	Path  string     `json:"path"`
	Write bool       `json:"write,omitempty"`
	Exec  bool       `json:"exec,omitempty"`
	Ioctl bool       `json:"ioctl,omitempty"` // device ioctls (terminals)
	List  bool       `json:"list,omitempty"`  // directory listing only
	Rule  string     `json:"rule"`
	Pos   policy.Pos `json:"pos"`
}

// Guarded is one name that may not come into existence. With Rest it is what
// may not appear below Name, a directory that is not there yet and may be made.
type Guarded struct {
	Parent string     `json:"parent"` // directory inside
	Name   string     `json:"name"`
	Rest   string     `json:"rest,omitempty"` // below name, which is then a directory that may be made
	Hide   bool       `json:"hide,omitempty"` // it would be hidden if it existed
	Rule   string     `json:"rule"`
	Pos    policy.Pos `json:"pos"`
}

// path is what may not come into existence.
func (g Guarded) path() string { return filepath.Join(g.Parent, g.Name, g.Rest) }

// Rlimit is one resource limit of each process, see setrlimit(2).
type Rlimit struct {
	Name     string `json:"name"`
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Plan is everything that a launch does, decided before anything is done. It
// is what explain prints and what init carries out.
type Plan struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`

	Argv    []string `json:"argv"`
	Program string   `json:"program"` // path inside of what is executed
	Cwd     string   `json:"cwd"`
	Env     []string `json:"env"`
	Dropped []string `json:"dropped,omitempty"` // names that were not passed on
	Home    string   `json:"home"`

	View []Entry `json:"view"`
	// Cow says how copy-on-write trees keep what is written; nil without any.
	Cow    *Cow      `json:"cow,omitempty"`
	Grants []Grant   `json:"grants"`
	Guard  []Guarded `json:"guard,omitempty"`

	Filter   FilterSpec `json:"filter"`
	Rlimits  []Rlimit   `json:"rlimits,omitempty"`
	Limits   LimitPlan  `json:"limits"`
	Hostname string     `json:"hostname"`
	ShmSize  int64      `json:"shm_size"`          // bytes of /dev/shm
	Devices  []string   `json:"devices,omitempty"` // nodes beyond the standard ones

	Uid        int  `json:"uid"` // shown inside
	Gid        int  `json:"gid"`
	Umask      int  `json:"umask"` // -1 keeps the caller's
	UserNS     bool `json:"userns,omitempty"`
	Abi        int  `json:"abi"` // Landlock ABI the plan is made for
	Inspect    bool `json:"inspect,omitempty"`
	CaptureAll bool `json:"capture_all"` // every TCP port by TPROXY; else Ports
	// MayCaptureLess lets init fall back to Ports when the kernel refuses
	// TPROXY; it is then said like every degradation.
	MayCaptureLess bool `json:"may_capture_less,omitempty"`
	// Ports are captured one listener each where nf_tables is missing.
	Ports []uint16 `json:"ports,omitempty"`

	// Hold is set by the launcher when the run has no command of its own: every
	// process is started through the Sandbox, and the run goes on until it is
	// stopped or ended.
	Hold bool `json:"hold,omitempty"`

	// Docker is the path of the socket inside that leads to the container engine;
	// "" without one. Init listens on it before the command starts.
	Docker string `json:"docker,omitempty"`

	// Hidden are host paths that the self-test must fail to open.
	Hidden []string `json:"hidden,omitempty"`
	// Weak is set when the plan makes do without namespaces.
	Weak *Weak `json:"weak,omitempty"`
	// Degraded lists the layers that are missing with the policy's consent.
	Degraded []Degradation `json:"degraded,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
}

// Wants tells whether some entry of the plan has this blob as its content.
func (p Plan) Wants(b Blob) bool {
	return slices.ContainsFunc(p.View, func(e Entry) bool { return e.Blob == b })
}

// Degradation is one missing protection that the policy allows to be missing.
type Degradation struct {
	Layer policy.Layer `json:"layer"`
	Needs string       `json:"needs"`
	Found string       `json:"found"`
}

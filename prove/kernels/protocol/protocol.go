// Package protocol is what the machine and a guest say to each other.
package protocol

// The lines of the serial console by which the machine follows a guest.
const (
	Begin = "HERMES-GUEST begin"
	Step  = "HERMES-GUEST step"
	End   = "HERMES-GUEST end"
	Lost  = "HERMES-GUEST lost"
)

// The disks of a guest, by their serial numbers: the root file system, the
// kernel's modules, what is under test, and where the results go.
const (
	DiskRoot    = "/dev/vda"
	DiskModules = "/dev/vdb"
	DiskIn      = "/dev/vdc"
	DiskOut     = "/dev/vdd"
)

// The accounts of a guest.
const (
	Root = "root"
	User = "user"
)

// UserGroup is where the user's commands run when a subtree is delegated.
const UserGroup = "/sys/fs/cgroup/user/session/cgroup.procs"

// Job is what a guest does.
type Job struct {
	// Systemd starts the distribution's service manager as the first process,
	// which runs the steps as a service.
	Systemd bool `json:"systemd,omitempty"`
	// Minimal leaves the root file system away: all there is is the initramfs with
	// a static shell and what is under test.
	Minimal bool `json:"minimal,omitempty"`
	// Cgroups is what is mounted at /sys/fs/cgroup: "v2", "v1", "none", or
	// "delegated" for v2 with a subtree of the user's.
	Cgroups string   `json:"cgroups,omitempty"`
	Setup   []string `json:"setup,omitempty"` // shell commands of root's before the steps
	Steps   []Ask    `json:"steps"`
}

// Ask is one command of a guest.
type Ask struct {
	Name string `json:"name"`
	// User is Root or User.
	User string `json:"user"`
	// Script is run by /bin/sh, in the account's own work directory.
	Script string `json:"script"`
	// Seconds bounds it.
	Seconds int `json:"seconds"`
}

// Answer is how it went.
type Answer struct {
	Name   string  `json:"name"`
	User   string  `json:"user"`
	Exit   int     `json:"exit"` // -1: ended by a signal or late
	Late   bool    `json:"late,omitempty"`
	Stdout string  `json:"stdout,omitempty"`
	Stderr string  `json:"stderr,omitempty"`
	Took   float64 `json:"took"` // seconds of the guest's clock
}

// Report is all that a guest says.
type Report struct {
	Kernel  string   `json:"kernel"`
	Uptime  float64  `json:"uptime"` // seconds when the steps began
	Lost    string   `json:"lost,omitempty"`
	Log     string   `json:"log,omitempty"` // the kernel's, its last part
	Answers []Answer `json:"answers"`
}

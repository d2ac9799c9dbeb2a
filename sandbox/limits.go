package sandbox

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// LimitPlan says for each limit of a policy which mechanism enforces it. The
// zero value enforces nothing and claims nothing.
type LimitPlan struct {
	// Limits is every limit the policy asks for, in the order of the schema.
	Limits []Limit `json:"limits,omitempty"`
	// Degraded says what nothing enforces here although the policy asks for it;
	// require.may_degrade accepts that. It is said on stderr and in the audit
	// header.
	Degraded []Degradation `json:"degraded,omitempty"`
	// Watch is the number of bytes to hand to WatchMemory. 0: no watcher.
	Watch int64 `json:"watch,omitempty"`

	group   groupKind
	slice   string
	plain   bool
	memory  int64
	swapCap bool
	pids    int64
	cpu     float64
	rlimits []Rlimit
}

// Limit is one limit and what enforces it.
type Limit struct {
	// Name is the field of the policy: "memory", "pids", "tmp_size" and so on.
	Name string `json:"name"`
	// Value is in the unit of the field: bytes, tasks, nanoseconds; for cpu it
	// is in thousandths of a processor.
	Value int64 `json:"value"`
	// Mechanism is what enforces it, or MechanismNone.
	Mechanism string `json:"mechanism"`
	// Pos is where it was written, as far as that is known.
	Pos policy.Pos `json:"pos"`
}

// MechanismNone is the mechanism of a limit that nothing enforces.
const MechanismNone = "none"

// groupKind is how the sandbox gets a cgroup with controllers.
type groupKind int

const (
	groupNone       groupKind = iota // no controller is used
	groupDirect                      // a directory below (v1) or beside (v2) our own group
	groupUserScope                   // a transient scope of the systemd user manager
	groupSystemUnit                  // a transient scope of the system's systemd
)

// initTasks is what a pids cgroup holds besides the agent's tree: the threads
// of PID 1 and of the stages before it. A Go process that cannot start a
// thread dies, so they are added on top of the limit.
const initTasks = 16

// Rlimits is what the agent sets on itself before execve(2), inside its own
// user namespace. RLIMIT_CORE is always 0: a core file would hold what the
// agent had in memory. Signals that wait are always bounded.
func (lp LimitPlan) Rlimits() []Rlimit {
	return slices.Concat(lp.rlimits, []Rlimit{{Name: "RLIMIT_CORE", Resource: unix.RLIMIT_CORE}})
}

// PlanLimits decides which mechanism enforces each limit of p on a machine
// with the facts f. The error is a *LackError when nothing can enforce a limit
// and require.may_degrade does not name its layer.
func PlanLimits(p policy.Policy, f LimitFacts) (LimitPlan, error) {
	lp := LimitPlan{plain: !f.Root}
	steps := []struct {
		layer policy.Layer
		limit Limit
		plan  func(*LimitPlan, Limit, LimitFacts) (Limit, *LackError)
	}{
		{policy.LayerMemory, Limit{Name: "memory", Value: int64(p.Limits.Memory)}, planMemory},
		{policy.LayerPids, Limit{Name: "pids", Value: int64(p.Limits.Pids)}, planPids},
		{policy.LayerCPU, Limit{Name: "cpu", Value: int64(math.Round(p.Limits.CPU * 1000))}, planCPU},
	}
	for _, s := range steps {
		if s.limit.Value <= 0 {
			continue
		}
		l, lack := s.plan(&lp, s.limit, f)
		if lack != nil {
			lack.Layer = s.layer
			if !slices.Contains(p.Require.MayDegrade, s.layer) {
				return LimitPlan{}, lack
			}
			l = s.limit
			l.Mechanism = MechanismNone
			lp.Degraded = append(lp.Degraded, Degradation{s.layer, lack.Needed, lack.Found})
		}
		lp.Limits = append(lp.Limits, l)
	}
	lp.planProcess(p, f)
	lp.planElsewhere(p)
	return lp, nil
}

func planMemory(lp *LimitPlan, l Limit, f LimitFacts) (Limit, *LackError) {
	if how := lp.useGroup(f, "memory"); how != "" {
		lp.memory, lp.swapCap = l.Value, f.SwapAccounting
		l.Mechanism = how
		return l, nil
	}
	lp.Watch = l.Value
	l.Mechanism = fmt.Sprintf("watcher (sums the tree every %v to %v, kills it)", watchFastest, watchSlowest)
	return l, nil
}

func planPids(lp *LimitPlan, l Limit, f LimitFacts) (Limit, *LackError) {
	if how := lp.useGroup(f, "pids"); how != "" {
		lp.pids = l.Value + initTasks
		l.Mechanism = fmt.Sprintf("%s (and %d for init)", how, initTasks)
		return l, nil
	}
	switch {
	case f.HostRoot:
		lack := &LackError{
			Feature: "limits.pids",
			Needed:  "a cgroup with the pids controller (RLIMIT_NPROC does not bind user 0)",
			Found:   f.describe(),
			Hint:    "run hermes-wrap as an ordinary user, for whom RLIMIT_NPROC holds",
		}
		if f.Cgroup == LayoutNone {
			lack.Hint = mountCgroup // without it an ordinary user gets no further
		}
		return l, lack
	case !f.NprocPerUserns:
		return l, &LackError{
			Feature: "limits.pids",
			Needed:  "a cgroup with the pids controller, or a kernel that counts RLIMIT_NPROC for each user namespace (5.14)",
			Found:   f.describe() + ", kernel " + f.Kernel,
			Hint:    f.hint("pids"),
		}
	}
	l.Mechanism = lp.rlimit("RLIMIT_NPROC", unix.RLIMIT_NPROC, l.Value, f) + " in the agent's own user namespace"
	return l, nil
}

func planCPU(lp *LimitPlan, l Limit, f LimitFacts) (Limit, *LackError) {
	how := lp.useGroup(f, "cpu")
	if how == "" {
		return l, &LackError{
			Feature: "limits.cpu",
			Needed:  "a cgroup with the cpu controller",
			Found:   f.describe(),
			Hint:    f.hint("cpu"),
		}
	}
	lp.cpu = float64(l.Value) / 1000
	l.Mechanism = how
	return l, nil
}

// hint is the one thing to do for a controller that cannot be had.
func (f LimitFacts) hint(controller string) string {
	switch {
	case f.Cgroup == LayoutNone:
		return mountCgroup
	case f.Root:
		return fmt.Sprintf("hand the %s controller to the group that hermes-wrap runs in (cgroup.subtree_control of those above it)", controller)
	}
	return fmt.Sprintf("start it from a login session with a systemd user manager on cgroup v2 that has the %s controller (Delegate=%[1]s for user@.service)", controller)
}

// useGroup picks the group for a controller and names the mechanism, "" if no
// group offers it. All controllers come from one group.
func (lp *LimitPlan) useGroup(f LimitFacts, controller string) string {
	if !f.Controllers[controller] {
		return ""
	}
	switch {
	case f.Root && f.SystemScope:
		lp.group, lp.slice = groupSystemUnit, f.Slice
		return "systemd scope (cgroup v2 " + controller + ")"
	case f.UserScope:
		lp.group = groupUserScope
		return "systemd user scope (cgroup v2 " + controller + ")"
	case f.Cgroup == LayoutV2:
		lp.group = groupDirect
		return "cgroup v2 " + controller
	case f.Cgroup == LayoutV1, f.Cgroup == LayoutHybrid:
		lp.group = groupDirect
		return "cgroup v1 " + controller
	}
	return ""
}

// maxPending bounds the signals that wait in the sandbox. The kernel counts them
// for the user on the whole machine: without a bound an agent could use up what
// the caller's other programs need, the next launch among them.
const maxPending = 4096

// planProcess adds the limits that each process carries.
func (lp *LimitPlan) planProcess(p policy.Policy, f LimitFacts) {
	lp.rlimit("RLIMIT_SIGPENDING", unix.RLIMIT_SIGPENDING, maxPending, f)
	for _, l := range []struct {
		name, rlimit string
		resource     int
		value        int64
	}{
		{"open_files", "RLIMIT_NOFILE", unix.RLIMIT_NOFILE, int64(p.Limits.OpenFiles)},
		{"file_size", "RLIMIT_FSIZE", unix.RLIMIT_FSIZE, int64(p.Limits.FileSize)},
	} {
		if l.value > 0 {
			how := lp.rlimit(l.rlimit, l.resource, l.value, f) + " of each process"
			lp.Limits = append(lp.Limits, Limit{Name: l.name, Value: l.value, Mechanism: how})
		}
	}
}

// rlimit adds one resource limit and names it. A lower hard limit of the
// caller's cannot be raised and stays.
func (lp *LimitPlan) rlimit(name string, resource int, value int64, f LimitFacts) string {
	v := uint64(value)
	if hard, known := f.Hard[resource]; known && hard < v {
		v = hard
	}
	lp.rlimits = append(lp.rlimits, Rlimit{Name: name, Resource: resource, Soft: v, Hard: v})
	if v < uint64(value) {
		return fmt.Sprintf("%s (the caller's own %d)", name, v)
	}
	return name
}

// planElsewhere lists the limits that other parts of a run enforce, so that one
// table shows all of them.
func (lp *LimitPlan) planElsewhere(p policy.Policy) {
	home := p.Filesystem.HomeSize
	if p.Filesystem.Home != "private" {
		home = 0
	}
	for _, l := range []Limit{
		{Name: "time", Value: int64(p.Limits.Time), Mechanism: "timer of the launcher (exit 124)"},
		{Name: "connections", Value: int64(p.Limits.Connections), Mechanism: "proxy"},
		{Name: "disk", Value: int64(p.Limits.Disk), Mechanism: layerMechanism(p)},
		{Name: "disk_files", Value: int64(p.Limits.DiskFiles), Mechanism: layerMechanism(p)},
		{Name: "home_size", Value: int64(home), Mechanism: "tmpfs size"},
		{Name: "tmp_size", Value: int64(p.Filesystem.TmpSize), Mechanism: "tmpfs size"},
		{Name: "shm_size", Value: int64(p.Filesystem.ShmSize), Mechanism: "tmpfs size"},
	} {
		if l.Value > 0 {
			lp.Limits = append(lp.Limits, l)
		}
	}
}

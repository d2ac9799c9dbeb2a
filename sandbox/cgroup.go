package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

const (
	groupPrefix = "hermes-wrap-"
	cpuPeriod   = 100_000 // microseconds; the kernel's default
)

// Cgroup is the group of one run, for libcontainer. id tells runs apart; the
// name also holds the launcher's pid, by which SweepCgroups knows the dead.
//
// There is no parent of ours: the group lies directly below (v1) or beside (v2)
// the caller's own, so it stays under every limit that binds the caller and
// removing it leaves nothing behind.
func (lp LimitPlan) Cgroup(id string) *cgroups.Cgroup {
	cg := &cgroups.Cgroup{
		Name:      groupPrefix + strconv.Itoa(os.Getpid()) + "-" + id,
		Resources: lp.resources(),
		// Where no limit rests on it, a group that cannot be made is no error.
		Rootless: lp.plain || lp.group == groupNone,
	}
	switch lp.group {
	case groupUserScope:
		cg.Systemd = true
	case groupSystemUnit:
		cg.Systemd, cg.Parent = true, lp.slice
	}
	if cg.Systemd {
		cg.ScopePrefix, cg.Name = strings.TrimSuffix(groupPrefix, "-"), strings.TrimPrefix(cg.Name, groupPrefix)
	}
	return cg
}

func (lp LimitPlan) resources() *cgroups.Resources {
	r := &cgroups.Resources{Memory: lp.memory}
	if lp.memory > 0 && lp.swapCap {
		r.MemorySwap = lp.memory // memory and swap together: no swap on top
	}
	if lp.pids > 0 {
		r.PidsLimit = &lp.pids
	}
	if lp.cpu > 0 {
		r.CpuPeriod = cpuPeriod
		// The kernel refuses a quota under one millisecond.
		r.CpuQuota = max(int64(lp.cpu*cpuPeriod), 1000)
	}
	return r
}

// OOMKills counts the processes of a run that the kernel killed for memory. Ask
// before the group is removed. 0 where the memory limit is not a group's.
func (lp LimitPlan) OOMKills(id string) (uint64, error) {
	if lp.memory == 0 {
		return 0, nil
	}
	m, err := manager.New(lp.Cgroup(id))
	if err != nil {
		return 0, fmt.Errorf("open cgroup %q: %w", id, err)
	}
	n, err := m.OOMKillCount()
	if err != nil {
		return 0, fmt.Errorf("count out-of-memory kills of %q: %w", id, err)
	}
	return n, nil
}

// sweepAge is how long a group is left alone. A launcher in another PID namespace,
// whose number means nobody here, may be about to enter the one it made.
const sweepAge = time.Minute

// SweepCgroups removes empty groups that launchers killed with SIGKILL left
// beside ours. A group whose launcher lives, that has processes, or that is new is
// not touched. systemd removes its own scopes.
func SweepCgroups(f LimitFacts) {
	eachGroup(CgroupDirs(f), func(group string, launcher int) {
		made, err := os.Stat(group)
		if err != nil || time.Since(made.ModTime()) < sweepAge {
			return
		}
		if unix.Kill(launcher, 0) == unix.ESRCH {
			// EBUSY is the answer for a group in use: then it stays.
			_ = unix.Rmdir(group)
		}
	})
}

// CgroupDirs is where the groups of a run lie.
func CgroupDirs(f LimitFacts) (dirs []string) {
	if f.Delegated != "" {
		dirs = append(dirs, f.Delegated)
	}
	if f.Cgroup == LayoutV1 || f.Cgroup == LayoutHybrid {
		dirs = append(dirs, ownV1Groups(f)...)
	}
	return dirs
}

// SweepCgroupsOf removes the groups of one launcher that is gone. Its tree dies
// a moment later than it, so this waits, for a second at most.
func SweepCgroupsOf(dirs []string, launcher int) {
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		eachGroup(dirs, func(group string, of int) {
			if of == launcher && unix.Rmdir(group) != nil {
				left++
			}
		})
		if left == 0 || time.Now().After(end) {
			return
		}
	}
}

func eachGroup(dirs []string, visit func(group string, launcher int)) {
	for _, dir := range dirs {
		groups, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*"))
		for _, g := range groups {
			if pid, ok := launcherOf(g); ok {
				visit(g, pid)
			}
		}
	}
}

// launcherOf reads the pid out of a group's name.
func launcherOf(group string) (pid int, ok bool) {
	text, _, found := strings.Cut(strings.TrimPrefix(filepath.Base(group), groupPrefix), "-")
	pid, err := strconv.Atoi(text)
	return pid, found && err == nil && pid > 0
}

// ownV1Group is the directory of our own group in a controller's hierarchy.
func ownV1Group(controller string) (string, error) {
	return cgroups.GetOwnCgroupPath(controller)
}

// ownV1Groups is our own directory in every hierarchy the library uses.
func ownV1Groups(f LimitFacts) []string {
	if !f.Root {
		return nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return nil
	}
	var dirs []string
	for _, m := range mounts {
		for _, s := range m.Subsystems {
			if dir, err := cgroups.GetOwnCgroupPath(s); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	// The hierarchy without a controller, in which libcontainer makes a group too.
	if dir, err := cgroups.GetOwnCgroupPath("name=systemd"); err == nil {
		dirs = append(dirs, dir)
	}
	if f.Cgroup == LayoutHybrid {
		dirs = append(dirs, filepath.Join(cgroupRoot, "unified"))
	}
	return dirs
}

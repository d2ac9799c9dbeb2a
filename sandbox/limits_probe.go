package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The cgroup layouts of a machine.
const (
	LayoutNone   = "none"
	LayoutV1     = "v1"
	LayoutV2     = "v2"
	LayoutHybrid = "hybrid" // controllers on v1, an empty v2 tree beside them
)

// LimitFacts is what this machine offers for limits.
type LimitFacts struct {
	Root     bool   `json:"root"`      // effective user 0, in whatever user namespace
	HostRoot bool   `json:"host_root"` // user 0 of the machine: no RLIMIT_NPROC
	Kernel   string `json:"kernel"`    // release, for messages
	Cgroup   string `json:"cgroup"`    // one of the layouts
	// Delegated is a v2 directory in which groups can be made, or "".
	Delegated string `json:"delegated,omitempty"`
	// UserScope says that a systemd user manager answers, SystemScope that the
	// system's one does and we may ask it.
	UserScope   bool `json:"user_scope"`
	SystemScope bool `json:"system_scope"`
	// Slice is the systemd slice we run in; a scope stays under its limits.
	Slice string `json:"slice,omitempty"`
	// Controllers are those a new group can have.
	Controllers map[string]bool `json:"controllers"`
	// SwapAccounting says that swap can be limited along with memory.
	SwapAccounting bool `json:"swap_accounting"`
	// NprocPerUserns says that RLIMIT_NPROC is counted for each user namespace.
	NprocPerUserns bool `json:"nproc_per_userns"`
	// Hard are the caller's own hard limits by resource (unix.RLIMIT_*).
	Hard map[int]uint64 `json:"hard,omitempty"`
}

// limitControllers are the controllers that a limit can need.
var limitControllers = []string{"memory", "pids", "cpu"}

const cgroupRoot = "/sys/fs/cgroup"

// ProbeLimits looks at what this machine offers. It changes nothing and asks no
// daemon for anything but a connection.
func ProbeLimits() LimitFacts {
	f := LimitFacts{
		Root:        os.Geteuid() == 0,
		Kernel:      kernelRelease(),
		Cgroup:      cgroupLayout(),
		Controllers: map[string]bool{},
	}
	f.HostRoot = f.Root && inInitialUserNamespace()
	f.NprocPerUserns = kernelAtLeast(f.Kernel, 5, 14)
	f.Hard = hardLimits()
	switch f.Cgroup {
	case LayoutV2:
		f.probeV2(ownV2Group())
	case LayoutV1, LayoutHybrid:
		f.probeV1()
	}
	return f
}

// probeV1 finds the controllers below whose directory of ours a child can be
// made. The child stays under every limit that already binds us.
func (f *LimitFacts) probeV1() {
	for _, c := range limitControllers {
		dir, err := ownV1Group(c)
		if err != nil || !writableDir(dir) {
			continue
		}
		f.Controllers[c] = true
		if c == "memory" {
			_, err := os.Stat(filepath.Join(dir, "memory.memsw.limit_in_bytes"))
			f.SwapAccounting = err == nil
		}
	}
}

func (f *LimitFacts) probeV2(own string) {
	f.SwapAccounting = true // memory.swap.max; where it is missing there is no swap to limit
	f.Slice = sliceOf(own)
	if booted := isDir("/run/systemd/system"); booted && f.HostRoot {
		if f.SystemScope = answers("/run/dbus/system_bus_socket"); f.SystemScope {
			f.addControllers(filepath.Join(cgroupRoot, "cgroup.controllers"))
			return
		}
	}
	if !f.Root && userManagerAnswers() {
		uid := strconv.Itoa(os.Geteuid())
		manager := filepath.Join(cgroupRoot, "user.slice", "user-"+uid+".slice", "user@"+uid+".service")
		if f.addControllers(filepath.Join(manager, "cgroup.controllers")); len(f.Controllers) > 0 {
			f.UserScope = true
			return
		}
	}
	f.probeDelegated(filepath.Join(cgroupRoot, filepath.Dir(own)))
}

// probeDelegated looks at the directory above our own group, where the library
// makes new ones. Moving a process needs its cgroup.procs too (cgroups(7)).
func (f *LimitFacts) probeDelegated(parent string) {
	procs := filepath.Join(parent, "cgroup.procs")
	if !writableDir(parent) || unix.Access(procs, unix.W_OK) != nil {
		return
	}
	f.Delegated = parent
	f.addControllers(filepath.Join(parent, "cgroup.subtree_control"))
	// Further controllers can be enabled only where no process lives in the
	// directory itself; the machine's own root, which has no type, is exempt.
	members, err := os.ReadFile(procs)
	_, typeErr := os.Stat(filepath.Join(parent, "cgroup.type"))
	if (err == nil && len(bytes.TrimSpace(members)) == 0) || os.IsNotExist(typeErr) {
		f.addControllers(filepath.Join(parent, "cgroup.controllers"))
	}
}

func (f *LimitFacts) addControllers(file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	for _, c := range strings.Fields(string(b)) {
		if slices.Contains(limitControllers, c) {
			f.Controllers[c] = true
		}
	}
}

// describe says what was found, for messages.
func (f LimitFacts) describe() string {
	who := "an ordinary user"
	if f.Root {
		who = "root"
	}
	usable := slices.Sorted(maps.Keys(f.Controllers))
	if len(usable) == 0 {
		return fmt.Sprintf("cgroup layout %s, no controller usable by %s", f.Cgroup, who)
	}
	return fmt.Sprintf("cgroup layout %s, only %s usable by %s", f.Cgroup, strings.Join(usable, ", "), who)
}

// cgroupLayout tells the layouts apart by file system type, as systemd does.
func cgroupLayout() string {
	switch {
	case isFilesystem(cgroupRoot, unix.CGROUP2_SUPER_MAGIC):
		return LayoutV2
	case isFilesystem(filepath.Join(cgroupRoot, "unified"), unix.CGROUP2_SUPER_MAGIC):
		return LayoutHybrid
	}
	if f, err := os.Open("/proc/self/cgroup"); err == nil {
		defer f.Close()
		if groups := parseCgroups(f); groups["memory"] != "" || groups["pids"] != "" {
			return LayoutV1
		}
	}
	return LayoutNone
}

// parseCgroups reads /proc/PID/cgroup: controller → path, "" for v2.
func parseCgroups(r io.Reader) map[string]string {
	groups := map[string]string{}
	for s := bufio.NewScanner(r); s.Scan(); {
		part := strings.SplitN(s.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		for _, c := range strings.Split(part[1], ",") {
			groups[c] = part[2]
		}
	}
	return groups
}

func ownV2Group() string {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "/"
	}
	defer f.Close()
	return filepath.Join("/", parseCgroups(f)[""])
}

// sliceOf gives the innermost systemd slice of a group, "" if there is none.
func sliceOf(group string) string {
	for dir := group; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if strings.HasSuffix(dir, ".slice") {
			return filepath.Base(dir)
		}
	}
	return ""
}

// userManagerAnswers connects to the user's bus and leaves again.
func userManagerAnswers() bool {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	return dir != "" && isDir(filepath.Join(dir, "systemd")) && answers(filepath.Join(dir, "bus"))
}

func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, 100*time.Millisecond)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// inInitialUserNamespace knows the initial namespace by its map of all ids.
func inInitialUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func kernelAtLeast(release string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || (a == major && b >= minor)
}

func hardLimits() map[int]uint64 {
	hard := map[int]uint64{}
	for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_FSIZE, unix.RLIMIT_NPROC, unix.RLIMIT_SIGPENDING} {
		var l unix.Rlimit
		if unix.Getrlimit(r, &l) == nil {
			hard[r] = l.Max
		}
	}
	return hard
}

// writableDir asks with the effective ids; a read-only mount says no too.
func writableDir(dir string) bool {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func isFilesystem(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && int64(st.Type) == magic
}

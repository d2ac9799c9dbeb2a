package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Finding is one feature of this machine that a sandbox needs, found by trying.
type Finding struct {
	// Feature is what was tried: "user namespace", "fresh /proc" and so on.
	Feature string `json:"feature"`
	// NeededBy says what rests on it.
	NeededBy string `json:"needed_by,omitempty"`
	// Needed and Found are what it takes and what is there.
	Needed string `json:"needed,omitempty"`
	Found  string `json:"found"`
	OK     bool   `json:"ok"`
	// Untried says that an earlier finding made the attempt impossible.
	Untried bool `json:"untried,omitempty"`
	// Info findings are never wrong; they help to read the others.
	Info bool `json:"info,omitempty"`
	// Remedy is one thing to do; never to weaken the sandbox.
	Remedy string `json:"remedy,omitempty"`
	// Layer is the protection that is missing when OK is false; "" where
	// another mechanism takes over.
	Layer policy.Layer `json:"layer,omitempty"`
}

// Findings is what Preflight found, in the order in which a launch needs it.
type Findings []Finding

// Missing gives the findings that a launch under the strict profile stops for.
func (fs Findings) Missing() Findings {
	var bad Findings
	for _, f := range fs {
		if !f.OK && !f.Info && !f.Untried && f.Layer != "" {
			bad = append(bad, f)
		}
	}
	return bad
}

// leastLandlock is the ABI that lets files be moved between directories; see
// landlock(7). Truncation, which it does not cover, is held by read-only mounts.
const leastLandlock = 2

// abiName says which Landlock a kernel has.
func abiName(abi int) string {
	if abi == 0 {
		return "no Landlock"
	}
	return fmt.Sprintf("Landlock ABI %d", abi)
}

// landlockSince is the kernel that an ABI came with.
func landlockSince(abi int) string {
	since := []string{"5.13", "5.19", "6.2", "6.7", "6.10", "6.12", "6.15"}
	return since[min(max(abi, 1), len(since))-1]
}

// preflightTime bounds one preflight; a healthy machine needs some 20 ms.
const preflightTime = 5 * time.Second

// Preflight tries what a launch needs in a throw-away sandbox, without root,
// and changes nothing. Versions and settings are not judged: they say little
// about what works. It is for "hermes-wrap doctor" and for explaining a launch
// that failed, and is no part of one that succeeds. The process it starts is
// our own executable again, which must call ProbeStage first.
func Preflight(ctx context.Context) Findings {
	ctx, cancel := context.WithTimeout(ctx, preflightTime)
	defer cancel()
	m := lookAround()
	fs := namespaceFindings(probeNamespaces(ctx), m)
	fs = append(fs, landlockFinding(landlockVersion()), seccompFinding(seccompAvailable()))
	fs = append(fs, limitFindings(ProbeLimits())...)
	return append(fs, m.findings()...)
}

// Explain says which missing feature of this machine made a launch fail: what
// it is, what it takes, what was found, and one thing to do. All are empty when
// the machine is not the cause. Unless the error says it itself, it tries again
// what a launch needs, so call it only for errors.
func Explain(ctx context.Context, err error) (feature, needed, found, remedy string) {
	if err == nil {
		return "", "", "", ""
	}
	var lack *LackError
	if errors.As(err, &lack) {
		return lack.Feature, lack.Needed, lack.Found, lack.Hint
	}
	for _, bad := range Preflight(ctx).Missing() {
		switch bad.Layer {
		case policy.LayerCPU, policy.LayerMemory, policy.LayerPids, policy.LayerCapture:
			// What nothing enforces here is known before a launch is tried, or
			// said by the one that needs it.
			continue
		}
		return bad.Feature, bad.Needed, bad.Found, bad.Remedy
	}
	return "", "", "", ""
}

// landlockVersion gives the ABI, or the kernel's reason.
func landlockVersion() (int, error) {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

func landlockFinding(abi int, err error) Finding {
	f := Finding{
		Feature: "Landlock", NeededBy: "read, write and exec rules below the mounts",
		Needed: fmt.Sprintf("Landlock ABI %d", leastLandlock), Layer: policy.LayerLandlock,
	}
	switch {
	case err == nil:
		f.Found, f.OK = fmt.Sprintf("ABI %d", abi), abi >= leastLandlock
		if !f.OK {
			f.Remedy = "use a kernel of at least " + landlockSince(leastLandlock)
		}
	case errors.Is(err, unix.ENOSYS):
		f.Found = "not built into this kernel, or refused by a container's filter (ENOSYS)"
		f.Remedy = "use a kernel of at least " + landlockSince(leastLandlock) + " with CONFIG_SECURITY_LANDLOCK; in a container, a seccomp profile that knows the landlock calls"
	case errors.Is(err, unix.EOPNOTSUPP):
		f.Found = "built in, but not switched on at boot (EOPNOTSUPP)"
		f.Remedy = `add "landlock" to the lsm= list on the kernel's command line and reboot`
	default:
		f.Found = err.Error()
		f.Remedy = "in a container, use a seccomp profile that allows the landlock calls"
	}
	return f
}

// seccompAvailable asks whether a filter may answer with an errno.
func seccompAvailable() error {
	const getActionAvail, retErrno = 2, 0x00050000 // SECCOMP_GET_ACTION_AVAIL, SECCOMP_RET_ERRNO
	action := uint32(retErrno)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, getActionAvail, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}

func seccompFinding(err error) Finding {
	f := Finding{
		Feature: "seccomp filter", NeededBy: "the system call filter", Needed: "CONFIG_SECCOMP_FILTER",
		Found: "available", OK: err == nil, Layer: policy.LayerSeccomp,
	}
	if err != nil {
		f.Found = err.Error()
		f.Remedy = "use a kernel with CONFIG_SECCOMP_FILTER; every distribution's own has it"
	}
	return f
}

// limitFindings shows the mechanism that would hold each limit.
func limitFindings(facts LimitFacts) []Finding {
	var all []Finding
	for _, l := range []struct {
		layer policy.Layer
		p     policy.Limits
	}{
		{policy.LayerMemory, policy.Limits{Memory: 1}},
		{policy.LayerPids, policy.Limits{Pids: 1}},
		{policy.LayerCPU, policy.Limits{CPU: 1}},
	} {
		f := Finding{Feature: string(l.layer) + " limit", NeededBy: "limits." + string(l.layer), Layer: l.layer}
		plan, err := PlanLimits(policy.Policy{Limits: l.p}, facts)
		var lack *LackError
		if errors.As(err, &lack) {
			f.Needed, f.Found, f.Remedy = lack.Needed, lack.Found, lack.Hint
		} else {
			f.OK, f.Found = true, plan.Limits[0].Mechanism
		}
		all = append(all, f)
	}
	return all
}

// machine is what helps to read the findings. Nothing is decided by it but the
// wording of a remedy.
type machine struct {
	kernel    string
	cgroup    string
	container string // "docker", "podman", … or ""
	wsl       bool
	root      bool
	apparmor  bool // user namespaces need an AppArmor profile
	// noUsersUserns says that Debian's own switch refuses user namespaces to all
	// but root of the machine, so also to init inside, which root starts.
	noUsersUserns bool
	// noPtrace: nobody may look into another process.
	noPtrace bool
	// noDevices: controllers on v1, but not that of devices.
	noDevices bool
}

func lookAround() machine {
	m := machine{kernel: kernelRelease(), cgroup: cgroupLayout(), root: os.Geteuid() == 0}
	m.wsl = strings.Contains(strings.ToLower(m.kernel), "microsoft")
	m.apparmor = readWord("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" || confinedByAppArmor(readWord("/proc/self/attr/apparmor/current"))
	m.noUsersUserns = readWord("/proc/sys/kernel/unprivileged_userns_clone") == "0"
	m.noPtrace = readWord("/proc/sys/kernel/yama/ptrace_scope") == "3"
	if m.cgroup == LayoutV1 || m.cgroup == LayoutHybrid {
		_, err := ownV1Group("devices")
		m.noDevices = err != nil
	}
	for file, name := range map[string]string{"/.dockerenv": "docker", "/run/.containerenv": "podman"} {
		if _, err := os.Stat(file); err == nil {
			m.container = name
		}
	}
	if m.container == "" {
		m.container = readWord("/run/systemd/container")
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	switch {
	case m.container != "":
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		m.container = "Kubernetes"
	case masksProc(string(mounts)):
		m.container = "of an engine"
	}
	return m
}

// confinedByAppArmor tells from the label of a process whether a profile refuses
// it what the profile does not name.
func confinedByAppArmor(label string) bool { return strings.HasSuffix(label, " (enforce)") }

// maskedInProc are what every engine mounts something over and nobody else does;
// which of them exist depends on the kernel.
var maskedInProc = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger"}

// masksProc tells whether an engine's mounts lie over parts of /proc.
func masksProc(mountinfo string) bool {
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && slices.Contains(maskedInProc, f[4]) {
			return true
		}
	}
	return false
}

func readWord(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mountCgroup is the remedy where there are no cgroups at all.
const mountCgroup = "mount the cgroup file system at " + cgroupRoot + ", as every service manager and container engine does"

// cgroupFinding: any layout will do, but libcontainer gives up without one, and
// on v1 without the controller of devices.
func (m machine) cgroupFinding() Finding {
	f := Finding{Feature: "cgroup layout", Found: m.cgroup, OK: true, Info: true}
	switch {
	case m.cgroup == LayoutNone:
		f.Needed, f.Remedy = "a cgroup file system at "+cgroupRoot, mountCgroup
	case m.noDevices:
		f.Found += " without the devices controller"
		f.Needed, f.Remedy = "the devices controller, where others are on v1", "mount the devices controller below "+cgroupRoot+" too, as every service manager and container engine does"
	default:
		return f
	}
	f.OK, f.Info, f.Layer, f.NeededBy = false, false, policy.LayerNamespaces, "libcontainer"
	return f
}

func (m machine) findings() []Finding {
	where := "on the machine itself"
	switch {
	case m.container != "":
		where = "in a container (" + m.container + ")"
	case m.wsl:
		where = "in WSL"
	case !inInitialUserNamespace():
		where = "in a user namespace of somebody else's"
	}
	who := "an ordinary user"
	if m.root {
		who = "root"
	}
	return []Finding{
		{Feature: "kernel", Found: m.kernel, OK: true, Info: true},
		m.cgroupFinding(),
		{Feature: "running as", Found: who + ", " + where, OK: true, Info: true},
	}
}

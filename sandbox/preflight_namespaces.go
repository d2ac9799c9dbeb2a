package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The steps of the throw-away sandbox, in their order.
const (
	probeClone    = "clone"    // all namespaces at once
	probeMap      = "map"      // uid and gid maps
	probeLoopback = "loopback" // raise lo
	probeTproxy   = "tproxy"   // capture of every TCP port
	probeMount    = "mount"    // private mounts and a tmpfs
	probeProc     = "proc"     // a fresh /proc
	probeNested   = "nested"   // a second user namespace, for the agent's own uid
	probeLook     = "look"     // a descriptor of another process of ours
	probeOverlay  = "overlay"  // an overlay of two directories
	probePivot    = "pivot"    // another root in the place of the first
)

// probeResult is how one step went. The zero Errno is success.
type probeResult struct {
	Step  string `json:"step"`
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"`
}

func newProbeResult(step string, err error) probeResult {
	r := probeResult{Step: step}
	if err == nil {
		return r
	}
	r.Error = err.Error()
	var no unix.Errno
	if errors.As(err, &no) {
		r.Errno = int(no)
	}
	return r
}

func (r probeResult) is(numbers ...unix.Errno) bool {
	for _, n := range numbers {
		if r.Errno == int(n) {
			return true
		}
	}
	return false
}

// namespaceSteps says what each step means for a launch.
var namespaceSteps = []struct {
	step string
	Finding
}{
	{probeClone, Finding{
		Feature: "user namespace", NeededBy: "every namespace and the private root",
		Needed: "clone(2) of user, mount, pid, network, ipc and uts namespaces", Layer: policy.LayerNamespaces,
	}},
	{probeMap, Finding{
		Feature: "id map", NeededBy: "your own user id inside",
		Needed: "writing uid_map and gid_map of the new namespace", Layer: policy.LayerNamespaces,
	}},
	{probeLoopback, Finding{
		Feature: "loopback inside", NeededBy: "the proxy's doors",
		Needed: "CAP_NET_ADMIN in the new namespace", Layer: policy.LayerNamespaces,
	}},
	{probeTproxy, Finding{
		Feature: "nf_tables TPROXY", NeededBy: "capture of every TCP port",
		Needed: "nf_tables with nft_tproxy", Layer: policy.LayerCapture,
	}},
	{probeMount, Finding{
		Feature: "mounts inside", NeededBy: "the private root",
		Needed: "CAP_SYS_ADMIN in the new namespace, and mount_setattr(2)", Layer: policy.LayerNamespaces,
	}},
	{probeProc, Finding{
		Feature: "fresh /proc", NeededBy: "hiding other processes",
		Needed: "mounting proc in the new pid namespace", Layer: policy.LayerProc,
	}},
	{probeNested, Finding{
		Feature: "nested user namespace", NeededBy: "init outside the agent's reach; the limit of tasks",
		Needed: "a user namespace inside the first", Layer: policy.LayerNamespaces,
	}},
	{probeLook, Finding{
		Feature: "descriptors of our own processes", NeededBy: "names that must not come into existence",
		Needed: "pidfd_getfd(2)", Layer: policy.LayerSeccomp,
	}},
	{probeOverlay, Finding{
		Feature: "overlay", NeededBy: "copy-on-write trees, which are copied without it",
		Needed: "mounting overlay over a tmpfs in the new namespace", Info: true,
	}},
	{probePivot, Finding{
		Feature: "another root", NeededBy: "the private root",
		Needed: "pivot_root(2)", Layer: policy.LayerNamespaces,
	}},
}

// namespaceFindings turns the results of the steps into findings. A step
// without a result was not reached: because of one that failed, or because it is
// the one that did not come back.
func namespaceFindings(results []probeResult, m machine) []Finding {
	byStep, last := map[string]probeResult{}, ""
	for _, r := range results {
		byStep[r.Step], last = r, r.Step
	}
	var all []Finding
	failed, beyond := "", false
	for _, s := range namespaceSteps {
		f := s.Finding
		r, tried := byStep[s.step]
		switch {
		case !tried && failed == "" && beyond && !f.Info:
			failed = f.Feature
			f.Found = "no answer in " + preflightTime.String()
			f.Remedy = m.remedy(probeResult{Step: s.step})
			if f.Remedy == "" {
				f.Remedy = "try again on a machine that is less busy"
			}
		case !tried:
			f.Untried, f.Found = true, "not tried"
			if failed != "" {
				f.Found = fmt.Sprintf("not tried: no %s", failed)
			}
		case r.Error == "":
			f.OK, f.Found = true, "works"
		default:
			f.Found, f.Remedy = r.Error, m.remedy(r)
			if failed == "" || s.step == probeMount {
				failed = f.Feature
			}
		}
		all = append(all, f)
		beyond = beyond || s.step == last
	}
	return all
}

// remedy is one thing to do about a failed step.
func (m machine) remedy(r probeResult) string {
	refused := r.is(unix.EPERM, unix.EACCES)
	switch {
	case r.Step == probeTproxy:
		return "load the kernel modules nf_tables and nft_tproxy; without them only the ports that the policy names are captured"
	case r.Step == probeOverlay:
		return ""
	case r.Step == probeLook && m.noPtrace:
		return "have the administrator set kernel.yama.ptrace_scope to 2 or less (3 stays until the next boot)"
	case r.Step == probeLook:
		return "start it where pidfd_getfd(2) is allowed: Linux 5.6, and in a container a seccomp profile that has it"
	case r.Step == probeMount && r.is(unix.ENOSYS):
		return "use a kernel of at least 5.12"
	case r.Step == probePivot && r.Error != "":
		return "start hermes-wrap from a root file system that is mounted: the initramfs cannot be replaced by another"
	case r.Step == probeProc && refused && m.container != "":
		return "give the container an unmasked /proc (in Kubernetes: procMount: Unmasked with hostUsers: false); for Hermes without it there is the policy hermes-in-container, which says what it does not hold"
	case r.Step == probeProc && refused:
		return "start hermes-wrap where nothing is mounted over parts of /proc"
	case r.is(unix.ENOSPC) && m.container != "":
		return "have the administrator of the machine allow user namespaces (user.max_user_namespaces is 0 or used up); for Hermes without them there is the policy hermes-in-container, which says what it does not hold"
	case r.is(unix.ENOSPC):
		return "have the administrator allow user namespaces for you (user.max_user_namespaces is 0 or used up)"
	case r.is(unix.EINVAL, unix.ENOSYS):
		return "use a kernel with CONFIG_USER_NS and the pid, network, ipc and uts namespaces"
	case refused && m.noUsersUserns && m.container != "":
		return "have the administrator of the machine allow user namespaces (kernel.unprivileged_userns_clone is 0); for Hermes without them there is the policy hermes-in-container, which says what it does not hold"
	case refused && m.noUsersUserns:
		return "have the administrator allow user namespaces for users (kernel.unprivileged_userns_clone is 0)"
	case refused && m.apparmor:
		return `install an AppArmor profile with "userns," for the installed path of hermes-wrap`
	case refused && m.container != "":
		return "start the container with a seccomp profile of the engine's that allows clone, unshare and mount for namespaces; for Hermes without them there is the policy hermes-in-container, which says what it does not hold"
	case refused && m.root:
		return "have the administrator allow user namespaces for hermes-wrap"
	case refused:
		return "have the administrator allow user namespaces for hermes-wrap, or run it as root"
	}
	return ""
}

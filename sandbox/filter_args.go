package sandbox

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// filterCheck judges the arguments of one call. A check can only refuse: what
// it passes still has to be allowed by its number.
type filterCheck struct {
	call string
	// says is the rule in words, for explanations and the golden file.
	says string
	// pass is one set of arguments that passes; explanations are computed
	// with it.
	pass [6]uint64
	// emit writes the check. It ends by jumping to the label pass or to an
	// "errno N" label made by filterErrnoLabel.
	emit func(c *filterCode, pass string)
}

// Socket types carry two flags beside the type itself.
const filterSocketFlags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK

// filterNamespaces are all flags of clone(2) and unshare(2) that make a
// namespace. CLONE_NEWTIME lies where clone(2) takes the exit signal, so only
// unshare(2) knows it.
const filterNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// filterInner are the namespaces that Chromium's sandbox makes. A mount
// namespace is not among them, so the view of files cannot be rearranged.
const filterInner = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// filterChecks gives the checks for a filter, the busiest call first.
func filterChecks(userNamespaces bool) []filterCheck {
	refused, words := uint32(filterNamespaces), "flags that make no namespace"
	if userNamespaces {
		refused &^= filterInner
		words = "flags that make no namespace except CLONE_NEWUSER, CLONE_NEWPID and CLONE_NEWNET"
	}
	return append([]filterCheck{
		{call: "ioctl", says: "any request except TIOCSTI, TIOCLINUX, TIOCSETD and TIOCCONS", emit: filterIoctl},
		{call: "setsockopt", says: "any option except TCP_ULP and those of the tables of iptables, arptables and ebtables", emit: filterSockopt},
		{call: "clone", says: words, emit: func(c *filterCode, pass string) {
			c.emit(filterLoad, filterLow(0)) // clone(2) itself reads no more than the low half
			c.branch(filterIfAny, refused, filterErrnoLabel(unix.EPERM), pass)
		}},
		{
			call: "socket", says: "AF_UNIX; AF_INET and AF_INET6 with TCP or UDP; AF_NETLINK with NETLINK_ROUTE",
			pass: [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, emit: filterSocket,
		},
		{
			call: "socketpair", says: "AF_UNIX only",
			pass: [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, emit: filterSocketpair,
		},
		{call: "prctl", says: "any option except PR_SET_MM", emit: filterPrctl},
		{call: "personality", says: "the default (0) and the query (0xffffffff) only", emit: filterPersonality},
		{call: "unshare", says: words, emit: func(c *filterCode, pass string) {
			c.emit(filterLoad, filterHigh(0)) // a real 64-bit argument: both halves count
			c.branch(filterJumpEq, 0, "", filterErrnoLabel(unix.EPERM))
			c.emit(filterLoad, filterLow(0))
			c.branch(filterIfAny, refused|unix.CLONE_NEWTIME, filterErrnoLabel(unix.EPERM), pass)
		}},
	}, filterModeChecks()...)
}

// filterIoctl refuses the requests that type into a terminal (TIOCSTI,
// CVE-2017-5226; TIOCLINUX, CVE-2023-1523), load a line discipline (TIOCSETD,
// CVE-2023-6546) or take over the console's output.
func filterIoctl(c *filterCode, pass string) {
	c.emit(filterLoad, filterLow(1))
	for _, request := range []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD} {
		c.branch(filterJumpEq, request, filterErrnoLabel(unix.EPERM), "")
	}
	c.branch(filterJumpEq, unix.TIOCCONS, filterErrnoLabel(unix.EPERM), pass)
}

// filterSockopt refuses upper layer protocols on TCP sockets: asking for one
// loads a kernel module (tls, espintcp, smc) that no user here turns on. And it
// refuses to replace the tables of iptables, arptables and ebtables: whoever made
// a network namespace may do that through any socket (CVE-2021-22555), and nobody
// has a use for it.
func filterSockopt(c *filterCode, pass string) {
	const replace4, counters4, replaceARP, countersARP, replaceBridge, countersBridge = 64, 65, 96, 97, 128, 129
	c.emit(filterLoad, filterLow(1))
	c.branch(filterJumpEq, unix.SOL_TCP, "", "not tcp")
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpEq, unix.TCP_ULP, filterErrnoLabel(unix.ENOPROTOOPT), pass)
	c.label("not tcp")
	c.branch(filterJumpEq, unix.SOL_IP, "ip", "")
	c.branch(filterJumpEq, unix.SOL_IPV6, "", pass)
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpEq, replace4, filterErrnoLabel(unix.ENOPROTOOPT), "")
	c.branch(filterJumpEq, counters4, filterErrnoLabel(unix.ENOPROTOOPT), pass)
	c.label("ip")
	c.emit(filterLoad, filterLow(2))
	for _, option := range []uint32{replace4, counters4, replaceARP, countersARP, replaceBridge} {
		c.branch(filterJumpEq, option, filterErrnoLabel(unix.ENOPROTOOPT), "")
	}
	c.branch(filterJumpEq, countersBridge, filterErrnoLabel(unix.ENOPROTOOPT), pass)
}

// filterSocket allows pairs of family and type and, for each, the protocols
// that carry plain TCP, UDP or route queries. Everything else of a known
// family answers EPERM as the kernel does for raw sockets, and an unknown
// family EAFNOSUPPORT, so that programs that probe (OpenSSL for AF_ALG) go on.
func filterSocket(c *filterCode, pass string) {
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, unix.AF_UNIX, "unix", "")
	c.branch(filterJumpEq, unix.AF_INET, "inet", "")
	c.branch(filterJumpEq, unix.AF_INET6, "inet", "")
	c.branch(filterJumpEq, unix.AF_NETLINK, "netlink", filterErrnoLabel(unix.EAFNOSUPPORT))

	c.label("unix")
	filterUnixType(c, pass)

	c.label("inet")
	filterSocketType(c)
	c.branch(filterJumpEq, unix.SOCK_STREAM, "tcp", "")
	c.branch(filterJumpEq, unix.SOCK_DGRAM, "udp", filterErrnoLabel(unix.EPERM))
	c.label("tcp") // MPTCP (262) would go round the rules of Landlock
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpEq, unix.IPPROTO_IP, pass, "")
	c.branch(filterJumpEq, unix.IPPROTO_TCP, pass, filterErrnoLabel(unix.EPERM))
	c.label("udp") // neither ping sockets nor UDP-Lite
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpEq, unix.IPPROTO_IP, pass, "")
	c.branch(filterJumpEq, unix.IPPROTO_UDP, pass, filterErrnoLabel(unix.EPERM))

	c.label("netlink")
	filterSocketType(c)
	c.branch(filterJumpEq, unix.SOCK_RAW, "route", "")
	c.branch(filterJumpEq, unix.SOCK_DGRAM, "route", filterErrnoLabel(unix.EPERM))
	c.label("route") // getifaddrs(3) in glibc, Go, Node and Chromium
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpEq, unix.NETLINK_ROUTE, pass, filterErrnoLabel(unix.EPERM))
}

// filterSocketpair allows AF_UNIX. The other families of socketpair(2) are
// those of socket(2) that are refused there.
func filterSocketpair(c *filterCode, pass string) {
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, unix.AF_UNIX, "", filterErrnoLabel(unix.EAFNOSUPPORT))
	filterUnixType(c, pass)
}

// filterSocketType loads the type without its flags.
func filterSocketType(c *filterCode) {
	c.emit(filterLoad, filterLow(1))
	c.emit(filterAnd, ^uint32(filterSocketFlags))
}

// filterUnixType checks type and protocol of an AF_UNIX socket; the kernel
// knows protocol 0 and, as a synonym, 1.
func filterUnixType(c *filterCode, pass string) {
	ok := fmt.Sprintf("unix %d", len(c.instrs))
	filterSocketType(c)
	c.branch(filterJumpEq, unix.SOCK_STREAM, ok, "")
	c.branch(filterJumpEq, unix.SOCK_DGRAM, ok, "")
	c.branch(filterJumpEq, unix.SOCK_SEQPACKET, ok, filterErrnoLabel(unix.EPERM))
	c.label(ok)
	c.emit(filterLoad, filterLow(2))
	c.branch(filterJumpGt, unix.AF_UNIX, filterErrnoLabel(unix.EPERM), pass)
}

// filterPrctl refuses rewriting the process's memory map, with which a
// process changes what /proc shows of it; only checkpoint tools need it.
func filterPrctl(c *filterCode, pass string) {
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, unix.PR_SET_MM, filterErrnoLabel(unix.EPERM), pass)
}

// filterPersonality refuses READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE and the
// personalities of other systems.
func filterPersonality(c *filterCode, pass string) {
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, 0, pass, "")
	c.branch(filterJumpEq, 0xffffffff, pass, filterErrnoLabel(unix.EPERM))
}

// filterErrnos are the answers that filterStage makes labels for.
func filterErrnos() []syscall.Errno {
	return []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.EAFNOSUPPORT, unix.ENOPROTOOPT}
}

// filterErrnoLabel names the instruction that answers an errno.
func filterErrnoLabel(e syscall.Errno) string { return fmt.Sprintf("errno %d", int(e)) }

// filterStage is the first part of the program: it judges arguments and the
// numbers that libseccomp does not know. Everything else goes on to "tree",
// the instruction after its last.
//
// Arguments are judged here and not by libseccomp's conditions, because there
// a call that misses every condition gets the same answer as an unknown
// number, and two rules of one call can combine in unexpected ways.
func filterStage(arch string, numbers map[string]uint32, actions map[string]filterAction, userNamespaces bool) ([]filterInstr, error) {
	audit, err := filterAudit(arch)
	if err != nil {
		return nil, err
	}
	c := &filterCode{}
	c.emit(filterLoad, filterArch)
	c.branch(filterJumpEq, audit, "", "tree") // libseccomp's part kills the process
	c.emit(filterLoad, filterNr)
	c.branch(filterJumpGe, filterX32, "tree", "") // and here too
	c.branch(filterJumpGe, syscallFirstLate, "late", "")
	checks := filterChecks(userNamespaces)
	late := syscallLate()
	for _, check := range checks {
		// A call may be missing on an architecture, as open(2) on arm64.
		if nr, ok := numbers[check.call]; ok && nr < syscallFirstLate {
			c.branch(filterJumpEq, nr, check.call, "")
		}
	}
	if arch == "amd64" {
		filterNumbers(c, syscallTrampolines(), actions)
	}
	c.branch(filterJump, 0, "tree", "")
	for _, check := range checks {
		if _, ok := late[check.call]; !ok {
			c.label(check.call)
			check.emit(c, "tree")
		}
	}
	filterLateStage(c, checks, actions)
	c.label("allow")
	c.emit(filterReturn, unix.SECCOMP_RET_ALLOW)
	for _, e := range filterErrnos() {
		c.label(filterErrnoLabel(e))
		c.emit(filterReturn, unix.SECCOMP_RET_ERRNO|uint32(e))
	}
	c.label("tree")
	return c.link()
}

// filterLateStage judges what the tree does not know.
func filterLateStage(c *filterCode, checks []filterCheck, actions map[string]filterAction) {
	rest := syscallLate()
	checked := slices.DeleteFunc(slices.Clone(checks), func(check filterCheck) bool { return rest[check.call] == 0 })
	c.label("late")
	for _, check := range checked {
		c.branch(filterJumpEq, rest[check.call], check.call, "")
		delete(rest, check.call)
	}
	filterNumbers(c, rest, actions)
	c.branch(filterJump, 0, filterErrnoLabel(unix.ENOSYS), "")
	for _, check := range checked {
		c.label(check.call)
		check.emit(c, filterActionLabel(actions[check.call]))
	}
}

// filterX32 is the bit that marks a call of the x32 ABI.
const filterX32 = 0x40000000

// filterNumbers answers each call of a table by its number.
func filterNumbers(c *filterCode, table map[string]uint32, actions map[string]filterAction) {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(table[a]) - int(table[b]) })
	for _, name := range names {
		c.branch(filterJumpEq, table[name], filterActionLabel(actions[name]), "")
	}
}

// filterActionLabel is where a decided call goes.
func filterActionLabel(a filterAction) string {
	if a.allow {
		return "allow"
	}
	return filterErrnoLabel(a.errno)
}

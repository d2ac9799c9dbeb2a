package sandbox

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Tier is what the filter must hold besides its base because namespaces do not.
// The zero value is the full tier, in which a network namespace and an IPC
// namespace stand behind the filter.
type Tier string

// The weaker tiers.
const (
	// TierOffline has no internet sockets.
	TierOffline Tier = "offline"
	// TierProxied has TCP sockets only, whose ports Landlock restricts.
	TierProxied Tier = "proxied"
)

// weakRefused are whole calls. Landlock has no rule for listening, and what is
// shared by key or by name reaches the host's own processes.
func weakRefused(sockets bool) map[string]uint32 {
	calls := map[string]uint32{
		"listen": unix.SYS_LISTEN, "io_uring_setup": unix.SYS_IO_URING_SETUP,
		"shmget": unix.SYS_SHMGET, "shmat": unix.SYS_SHMAT, "shmctl": unix.SYS_SHMCTL,
		"semget": unix.SYS_SEMGET, "semctl": unix.SYS_SEMCTL,
		"semop": unix.SYS_SEMOP, "semtimedop": unix.SYS_SEMTIMEDOP,
		"msgget": unix.SYS_MSGGET, "msgsnd": unix.SYS_MSGSND, "msgrcv": unix.SYS_MSGRCV, "msgctl": unix.SYS_MSGCTL,
		"mq_open": unix.SYS_MQ_OPEN, "mq_unlink": unix.SYS_MQ_UNLINK,
	}
	if sockets {
		delete(calls, "listen")
	}
	return calls
}

// weakSends are the calls whose flags can hold MSG_FASTOPEN, which connects
// without connect(2) and so without Landlock; the number is the argument's.
func weakSends() map[string][2]uint32 {
	return map[string][2]uint32{
		"sendto": {unix.SYS_SENDTO, 3}, "sendmsg": {unix.SYS_SENDMSG, 2}, "sendmmsg": {unix.SYS_SENDMMSG, 3},
	}
}

// weakFilter is a program that refuses first and leaves the rest to base.
// sockets leaves local and listening sockets open.
func weakFilter(t Tier, sockets bool, base []byte) ([]byte, error) {
	rest, err := filterDecode(base)
	if err != nil {
		return nil, err
	}
	audit, err := filterAudit(filterNative)
	if err != nil {
		return nil, err
	}
	first, err := weakStage(t, sockets, audit)
	if err != nil {
		return nil, err
	}
	prog := append(first, rest...)
	if len(prog) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("compile filter: %d instructions, the kernel takes %d", len(prog), unix.BPF_MAXINSNS)
	}
	return filterEncode(prog), nil
}

// weakStage falls through to the program behind it, at the label "base".
func weakStage(t Tier, sockets bool, audit uint32) ([]filterInstr, error) {
	c := &filterCode{}
	c.emit(filterLoad, filterArch)
	c.branch(filterJumpEq, audit, "", "base") // the base kills a foreign one
	c.emit(filterLoad, filterNr)
	c.branch(filterJumpEq, unix.SYS_SOCKET, "socket", "")
	c.branch(filterJumpEq, unix.SYS_SOCKETPAIR, "socketpair", "")
	for _, name := range []string{"sendto", "sendmsg", "sendmmsg"} {
		c.branch(filterJumpEq, weakSends()[name][0], name, "")
	}
	c.branch(filterJumpEq, unix.SYS_PRLIMIT64, "prlimit64", "")
	refused := weakRefused(sockets)
	filterSortedNumbers(refused, func(nr uint32) {
		to := filterErrnoLabel(unix.EPERM)
		if nr == refused["io_uring_setup"] {
			to = filterErrnoLabel(unix.ENOSYS)
		}
		c.branch(filterJumpEq, nr, to, "")
	})
	c.branch(filterJump, 0, "base", "")
	weakSockets(c, t, sockets)
	for _, name := range []string{"sendto", "sendmsg", "sendmmsg"} {
		c.label(name)
		c.emit(filterLoad, filterLow(weakSends()[name][1]))
		c.branch(filterIfAny, unix.MSG_FASTOPEN, filterErrnoLabel(unix.EPERM), "base")
	}
	c.label("prlimit64") // another process's limits are none of the agent's business
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, 0, "base", filterErrnoLabel(unix.EPERM))
	for _, e := range filterErrnos()[:2] {
		c.label(filterErrnoLabel(e))
		c.emit(filterReturn, unix.SECCOMP_RET_ERRNO|uint32(e))
	}
	c.label("base")
	return c.link()
}

// weakSockets leaves TCP, where there is a network, and route queries. A local
// socket connects to any daemon of the host whose socket file the user can
// write (D-Bus, Docker, an SSH agent), whatever Landlock says about the path;
// so only connected pairs are left, and of those no datagram ones, which can
// be connected anew. A policy that consents to "sockets" has them all.
func weakSockets(c *filterCode, t Tier, sockets bool) {
	local := filterErrnoLabel(unix.EPERM)
	if sockets {
		local = "base"
	}
	inet := filterErrnoLabel(unix.EPERM)
	if t == TierProxied {
		inet = "inet"
	}
	c.label("socket")
	c.emit(filterLoad, filterLow(0))
	c.branch(filterJumpEq, unix.AF_UNIX, local, "")
	c.branch(filterJumpEq, unix.AF_INET, inet, "")
	c.branch(filterJumpEq, unix.AF_INET6, inet, "base")
	if t == TierProxied {
		c.label("inet")
		filterSocketType(c)
		c.branch(filterJumpEq, unix.SOCK_STREAM, "", filterErrnoLabel(unix.EPERM))
		c.emit(filterLoad, filterLow(2)) // MPTCP (262) goes round Landlock
		c.branch(filterJumpEq, unix.IPPROTO_IP, "base", "")
		c.branch(filterJumpEq, unix.IPPROTO_TCP, "base", filterErrnoLabel(unix.EPERM))
	}
	c.label("socketpair")
	filterSocketType(c)
	c.branch(filterJumpEq, unix.SOCK_DGRAM, local, "base")
}

// weakCallVerdict is the part of FilterVerdict that this tier changes.
func (s FilterSpec) weakCallVerdict(name string) (allowed bool, why string, changed bool) {
	if s.Tier == "" {
		return false, "", false
	}
	if _, refused := weakRefused(s.Sockets)[name]; refused {
		return false, "EPERM: without namespaces it would reach the host's own processes", true
	}
	if name == "socket" {
		local, nor := "", " nor local"
		if s.Sockets {
			local, nor = "AF_UNIX, ", ""
		}
		if s.Tier == TierProxied {
			return true, fmt.Sprintf("allowed for %sTCP and NETLINK_ROUTE: without namespaces no UDP%s sockets", local, nor), true
		}
		return true, fmt.Sprintf("allowed for %sNETLINK_ROUTE: without namespaces no internet%s sockets", local, nor), true
	}
	base := s
	base.Tier, base.Sockets = "", false
	allowed, why = FilterVerdict(base, name)
	return allowed, why, true
}

func filterSortedNumbers(table map[string]uint32, do func(nr uint32)) {
	for _, nr := range slices.Sorted(maps.Values(table)) {
		do(nr)
	}
}

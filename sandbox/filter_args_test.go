package sandbox

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// simGarbage are upper halves of an int argument, which must not matter.
var simGarbage = []uint64{0, 1 << 32, 0xffffffff << 32, 0xdead << 32}

func TestFilterSocketArguments(t *testing.T) {
	protocols := []uint64{}
	for p := range uint64(264) { // 262 is MPTCP
		protocols = append(protocols, p)
	}
	protocols = append(protocols, 0x80000000, 0xffffffff)
	flags := []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}
	for _, call := range []string{"socket", "socketpair"} {
		want := simSocket
		if call == "socketpair" {
			want = simSocketpair
		}
		for _, s := range []FilterSpec{{}, {UserNamespaces: true}} {
			ask := simFilter(t, runtime.GOARCH, s)
			for family := range uint64(64) {
				for typ := range uint64(17) {
					for _, p := range protocols {
						w := want(family, typ, p)
						for _, f := range flags {
							g := simGarbage[(family+typ+p+f>>11)%uint64(len(simGarbage))]
							if got := ask(call, family|g, typ|f|g, p|g); got != w {
								t.Fatalf("%s(%#x, %#x, %#x): got %v, want %v", call, family|g, typ|f|g, p|g, got, w)
							}
						}
					}
				}
			}
		}
	}
}

// simSocket is the allow-list of socket(2) once more, written as a list.
func simSocket(family, typ, protocol uint64) string {
	allowed := [][3]uint64{
		{unix.AF_UNIX, unix.SOCK_STREAM, 0},
		{unix.AF_UNIX, unix.SOCK_STREAM, 1},
		{unix.AF_UNIX, unix.SOCK_DGRAM, 0},
		{unix.AF_UNIX, unix.SOCK_DGRAM, 1},
		{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0},
		{unix.AF_UNIX, unix.SOCK_SEQPACKET, 1},
		{unix.AF_INET, unix.SOCK_STREAM, 0},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP},
		{unix.AF_INET, unix.SOCK_DGRAM, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		{unix.AF_INET6, unix.SOCK_STREAM, 0},
		{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP},
		{unix.AF_INET6, unix.SOCK_DGRAM, 0},
		{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE},
	}
	switch {
	case slices.Contains(allowed, [3]uint64{family, typ, protocol}):
		return "allow"
	case slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, family):
		return "EPERM"
	}
	return "EAFNOSUPPORT"
}

// simSocketpair is the same for socketpair(2).
func simSocketpair(family, typ, protocol uint64) string {
	if family != unix.AF_UNIX {
		return "EAFNOSUPPORT"
	}
	return simSocket(family, typ, protocol)
}

func TestFilterArguments(t *testing.T) {
	const garbage = 0xabcd << 32
	userns := FilterSpec{UserNamespaces: true}
	unshare := FilterSpec{Allow: filterTestNames("unshare")}
	tests := []struct {
		name string
		spec FilterSpec
		call string
		args []uint64
		want string
	}{
		{"TIOCSTI", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCSTI}, "EPERM"},
		{"TIOCSTI high bits", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCSTI | garbage}, "EPERM"},
		{"TIOCLINUX", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCLINUX}, "EPERM"},
		{"TIOCLINUX high bits", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCLINUX | garbage}, "EPERM"},
		{"TIOCSETD", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCSETD}, "EPERM"},
		{"TIOCSETD high bits", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCSETD | garbage}, "EPERM"},
		{"TIOCCONS", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCCONS | garbage}, "EPERM"},
		{"TIOCSTI with the openings", userns, "ioctl", []uint64{0, unix.TIOCSTI}, "EPERM"},
		{"TIOCGWINSZ", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCGWINSZ}, "allow"},
		{"TCSETS", FilterSpec{}, "ioctl", []uint64{0, unix.TCSETS}, "allow"},
		{"TIOCSCTTY", FilterSpec{}, "ioctl", []uint64{0, unix.TIOCSCTTY}, "allow"},
		{"personality query", FilterSpec{}, "personality", []uint64{0xffffffff}, "allow"},
		{"personality query, sign-extended", FilterSpec{}, "personality", []uint64{^uint64(0)}, "allow"},
		{"personality default", FilterSpec{}, "personality", []uint64{0}, "allow"},
		{"personality PER_LINUX32", FilterSpec{}, "personality", []uint64{8}, "EPERM"},
		{"personality no ASLR", FilterSpec{}, "personality", []uint64{0x40000}, "EPERM"},
		{"personality READ_IMPLIES_EXEC", FilterSpec{}, "personality", []uint64{0x400000 | garbage}, "EPERM"},
		{"PR_SET_MM", FilterSpec{}, "prctl", []uint64{unix.PR_SET_MM | garbage}, "EPERM"},
		{"PR_SET_NAME", FilterSpec{}, "prctl", []uint64{unix.PR_SET_NAME}, "allow"},
		{"PR_SET_PDEATHSIG", FilterSpec{}, "prctl", []uint64{unix.PR_SET_PDEATHSIG}, "allow"},
		{"PR_SET_SECCOMP", FilterSpec{}, "prctl", []uint64{unix.PR_SET_SECCOMP}, "allow"},
		{"TCP_ULP", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_TCP | garbage, unix.TCP_ULP | garbage}, "ENOPROTOOPT"},
		{"TCP_NODELAY", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_TCP, unix.TCP_NODELAY}, "allow"},
		{"option 31 of another level", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_SOCKET, unix.TCP_ULP}, "allow"},
		{"iptables' tables", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_IP | garbage, 64 | garbage}, "ENOPROTOOPT"},
		{"iptables' counters", userns, "setsockopt", []uint64{3, unix.SOL_IP, 65}, "ENOPROTOOPT"},
		{"arptables", userns, "setsockopt", []uint64{3, unix.SOL_IP, 96}, "ENOPROTOOPT"},
		{"ebtables", userns, "setsockopt", []uint64{3, unix.SOL_IP, 128}, "ENOPROTOOPT"},
		{"ip6tables", userns, "setsockopt", []uint64{3, unix.SOL_IPV6, 64}, "ENOPROTOOPT"},
		{"IP_TTL", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_IP, unix.IP_TTL}, "allow"},
		{"IPV6_V6ONLY", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_IPV6, unix.IPV6_V6ONLY}, "allow"},
		{"IPV6_TCLASS", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_IPV6, unix.IPV6_TCLASS}, "allow"},
		{"option 64 of another level", FilterSpec{}, "setsockopt", []uint64{3, unix.SOL_SOCKET, 64}, "allow"},
		{"fchmod set-user-id", FilterSpec{}, "fchmod", []uint64{3, 0o4755}, "EPERM"},
		{"fchmod set-user-id alone, high bits", FilterSpec{}, "fchmod", []uint64{3, 0o4000 | garbage}, "EPERM"},
		{"fchmod with both", FilterSpec{}, "fchmod", []uint64{3, 0o6755}, "EPERM"},
		{"fchmod of a shared directory", FilterSpec{}, "fchmod", []uint64{3, 0o2775}, "allow"},
		{"fchmod sticky", FilterSpec{}, "fchmod", []uint64{3, 0o1777}, "allow"},
		{"fchmod with high bits alone", FilterSpec{}, "fchmod", []uint64{3, 0o755 | 0o4000<<32}, "allow"},
		{"fchmodat", FilterSpec{}, "fchmodat", []uint64{3, 0x1000, 0o4711}, "EPERM"},
		{"fchmodat plain", FilterSpec{}, "fchmodat", []uint64{3, 0x1000, 0o711}, "allow"},
		{"fchmodat2", FilterSpec{}, "fchmodat2", []uint64{3, 0x1000, 0o4711, 0}, "EPERM"},
		{"fchmodat2 plain", FilterSpec{}, "fchmodat2", []uint64{3, 0x1000, 0o711, 0}, "allow"},
		{"openat creates set-user-id", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_CREAT | unix.O_RDWR, 0o4755}, "EPERM"},
		{"openat creates set-group-id", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_CREAT | garbage, 0o2755 | garbage}, "EPERM"},
		{"openat without a name", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_TMPFILE | unix.O_RDWR, 0o4755}, "EPERM"},
		{"openat creates", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_CREAT | unix.O_RDWR, 0o1666}, "allow"},
		{"openat of a directory", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_DIRECTORY, 0o6000}, "allow"},
		{"openat, no mode", FilterSpec{}, "openat", []uint64{0, 0x1000, unix.O_RDONLY, 0xffffffff}, "allow"},
		{"mknodat", FilterSpec{}, "mknodat", []uint64{0, 0x1000, unix.S_IFREG | 0o4755}, "EPERM"},
		{"mknodat set-group-id", FilterSpec{}, "mknodat", []uint64{0, 0x1000, unix.S_IFREG | 0o2755}, "EPERM"},
		{"mknodat of a pipe", FilterSpec{}, "mknodat", []uint64{0, 0x1000, unix.S_IFIFO | 0o600}, "allow"},
		{"fork", FilterSpec{}, "clone", []uint64{uint64(unix.SIGCHLD)}, "allow"},
		{"thread", FilterSpec{}, "clone", []uint64{0x3d0f00}, "allow"},
		{"sign-extended CLONE_IO", FilterSpec{}, "clone", []uint64{unix.CLONE_IO | 0xffffffff<<32}, "allow"},
		{"clone3", FilterSpec{}, "clone3", []uint64{0x1000, 88}, "ENOSYS"},
		{"clone3 with user namespaces", userns, "clone3", []uint64{0x1000, 88}, "ENOSYS"},
		{"unshare nothing", FilterSpec{}, "unshare", []uint64{0}, "EPERM"},
		{"unshare files, opened by name", unshare, "unshare", []uint64{unix.CLONE_FILES}, "allow"},
		{"unshare user, opened by name", unshare, "unshare", []uint64{unix.CLONE_NEWUSER}, "EPERM"},
		{"unshare high half", userns, "unshare", []uint64{unix.CLONE_NEWUSER | 1<<32}, "EPERM"},
		{"unshare time", userns, "unshare", []uint64{unix.CLONE_NEWTIME}, "EPERM"},
		{
			"Chromium's zygote", userns, "clone",
			[]uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | uint64(unix.SIGCHLD)},
			"allow",
		},
		{"Chromium's credentials", userns, "unshare", []uint64{unix.CLONE_NEWUSER}, "allow"},
		{"Chromium's empty root", userns, "chroot", []uint64{0x1000}, "allow"},
		{"setns with user namespaces", userns, "setns", []uint64{3, 0}, "EPERM"},
		{"mount with user namespaces", userns, "mount", []uint64{0, 0, 0, 0, 0}, "EPERM"},
		{"chroot", FilterSpec{}, "chroot", []uint64{0x1000}, "EPERM"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, arch := range filterArches {
				if got := simFilter(t, arch, tt.spec)(tt.call, tt.args...); got != tt.want {
					t.Errorf("%s: %s(%#x): got %v, want %v", arch, tt.call, tt.args, got, tt.want)
				}
			}
		})
	}
}

// TestFilterModesOfOlderCalls: amd64 has them by path as well.
func TestFilterModesOfOlderCalls(t *testing.T) {
	ask := simFilter(t, "amd64", FilterSpec{})
	for _, c := range []struct {
		call string
		args []uint64
		want string
	}{
		{"chmod", []uint64{0x1000, 0o4755}, "EPERM"},
		{"chmod", []uint64{0x1000, 0o2755}, "allow"},
		{"open", []uint64{0x1000, unix.O_CREAT | unix.O_WRONLY, 0o4755}, "EPERM"},
		{"open", []uint64{0x1000, unix.O_CREAT | unix.O_WRONLY, 0o2755}, "EPERM"},
		{"open", []uint64{0x1000, unix.O_WRONLY, 0o7777}, "allow"},
		{"open", []uint64{0x1000, unix.O_CREAT | unix.O_WRONLY, 0o666}, "allow"},
		{"creat", []uint64{0x1000, 0o4755}, "EPERM"},
		{"creat", []uint64{0x1000, 0o644}, "allow"},
		{"mknod", []uint64{0x1000, unix.S_IFREG | 0o4755, 0}, "EPERM"},
		{"mknod", []uint64{0x1000, unix.S_IFREG | 0o755, 0}, "allow"},
	} {
		if got := ask(c.call, c.args...); got != c.want {
			t.Errorf("%s(%#o): got %v, want %v", c.call, c.args, got, c.want)
		}
	}
	// What a policy refuses stays refused, checked or not.
	for _, call := range []string{"fchmod", "fchmodat2"} {
		if got := simFilter(t, "amd64", FilterSpec{Deny: filterTestNames(call)})(call, 3, 0, 0o644); got != "EPERM" {
			t.Errorf("%s, denied by the policy: got %v, want EPERM", call, got)
		}
	}
}

func TestFilterNamespaceFlags(t *testing.T) {
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	const inner = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	for _, userns := range []bool{false, true} {
		ask := simFilter(t, runtime.GOARCH, FilterSpec{UserNamespaces: userns})
		for bit := range 64 {
			for other := range 64 {
				flags := uint64(1)<<bit | uint64(1)<<other
				refused := flags & namespaces
				if userns {
					refused &^= inner
				}
				want := "allow"
				if refused != 0 {
					want = "EPERM"
				}
				if got := ask("clone", flags); got != want {
					t.Fatalf("user namespaces %v, clone(%#x): got %v, want %v", userns, flags, got, want)
				}
			}
		}
	}
}

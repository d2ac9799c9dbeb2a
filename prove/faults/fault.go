package faults

import (
	"fmt"
	"syscall"
)

// fault is one call of one process of a launch, and what becomes of it.
type fault struct {
	role, call string
	n          int
	detail     string // what the call was about, as far as it could be seen
	after      string // the last step that the launcher had said to be done
	kind       string // ENOSPC, killed, slow …
	rank       int    // among those of the same call and kind
	action     string // as trace takes it
}

func (f fault) rule() string { return fmt.Sprintf("%s:%s:%d:%s", f.role, f.call, f.n, f.action) }

func (f fault) String() string {
	return fmt.Sprintf("%s of %s %d of the %s (%s)", f.kind, f.call, f.n, f.role, f.detail)
}

// failing makes a call fail.
func failing(name string, no syscall.Errno) [2]string {
	return [2]string{name, fmt.Sprintf("error=%d", int(no))}
}

// wrongs says what can go wrong with which calls.
var wrongs = map[[2]string][]string{ //nolint:gochecknoglobals // a table
	failing("ENOSPC", syscall.ENOSPC): {
		"openat", "mkdirat", "symlinkat", "linkat", "renameat", "renameat2", "write", "pwrite64", "ftruncate", "fallocate", "fsync", "mount", "fsconfig", "clone", "unshare",
	},
	failing("EMFILE", syscall.EMFILE): {
		"openat", "openat2", "socket", "socketpair", "pipe2", "memfd_create", "eventfd2", "epoll_create1", "accept4", "dup3", "fcntl", "pidfd_open",
		"open_tree", "fsopen", "fsmount", "landlock_create_ruleset", "recvmsg",
	},
	failing("ENOMEM", syscall.ENOMEM): {
		"clone", "fork", "vfork", "execve", "mount", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr", "sendmsg", "sendto", "socket", "memfd_create", "mkdirat",
		"seccomp", "landlock_add_rule", "landlock_restrict_self", "epoll_ctl", "mprotect", "setsockopt", "unshare", "prlimit64",
	},
	failing("EPERM", syscall.EPERM): {
		"openat", "openat2", "mkdirat", "unlinkat", "renameat", "symlinkat", "fchmodat", "fchmod", "fchown", "fchownat", "flock", "connect", "bind", "listen", "setsockopt", "sendto",
		"mount", "umount2", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "mount_setattr", "pivot_root", "chdir", "fchdir", "chroot",
		"execve", "execveat", "kill", "prctl", "seccomp", "landlock_create_ruleset", "landlock_add_rule",
		"landlock_restrict_self", "capset", "capget", "setuid", "setgid", "setresuid", "setresgid", "setgroups", "unshare", "setns", "prlimit64", "setrlimit",
		"keyctl", "setpgid", "setsid", "sethostname", "ioctl", "close_range", "getrandom", "socket",
	},
	failing("EAGAIN", syscall.EAGAIN): {"clone", "clone3", "fork", "vfork"},
	failing("EIO", syscall.EIO): {
		"read", "write", "pread64", "pwrite64", "fsync", "getdents64", "newfstatat", "statx", "fstat", "readlinkat", "statfs", "fstatfs", "sendmsg", "recvmsg", "recvfrom",
		"faccessat2", "getcwd", "getsockname", "getsockopt", "ppoll",
	},
}

// untrue are the confining calls that do nothing and say that they did, where it
// is the self-test that must notice.
var untrue = [][2]string{ //nolint:gochecknoglobals // a table
	{"starter", "landlock_restrict_self"},
	{"starter", "capset"},
}

// anywhere are the faults that can come at each call.
var anywhere = [][2]string{ //nolint:gochecknoglobals // a table
	{"killed", "kill"},
	{"crashed", "crash"}, // a panic in whatever goroutine it is
	{"slow", "delay=700"},
}

package escape

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseArg makes this program run a command where user namespaces are refused,
// as in a container with the usual default filter.
const refuseArg = "escape-refuse"

const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// refuse does not return when all goes well.
func refuse(argv []string) int {
	runtime.LockOSThread()
	err := refuseNamespaces()
	if err == nil {
		err = unix.Exec(argv[0], argv, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "escapes: refuse:", err)
	return 99
}

// refuseNamespaces loads a filter: clone(2) and unshare(2) with a namespace,
// mount(2), setns(2) and pidfd_getfd(2) give EPERM, clone3(2) gives ENOSYS.
func refuseNamespaces() error {
	const load, equal, some, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JSET, unix.BPF_RET
	deny := func(no unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(no) }
	prog := []unix.SockFilter{
		{Code: load, K: 0},
		{Code: equal, K: unix.SYS_CLONE, Jt: 6},
		{Code: equal, K: unix.SYS_UNSHARE, Jt: 5},
		{Code: equal, K: unix.SYS_MOUNT, Jt: 7},
		{Code: equal, K: unix.SYS_SETNS, Jt: 6},
		{Code: equal, K: unix.SYS_PIDFD_GETFD, Jt: 5},
		{Code: equal, K: unix.SYS_CLONE3, Jt: 5},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: load, K: 16},
		{Code: some, K: namespaceFlags, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: deny(unix.EPERM)},
		{Code: ret, K: deny(unix.ENOSYS)},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&p)), 0, 0)
}

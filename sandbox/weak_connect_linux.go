package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mediator carries out connect(2) for the command: Landlock knows ports and no
// addresses, so its rule alone would let the command reach any server that
// listens on the number of the proxy's port. The kernel asks the mediator, which
// copies the address, takes a descriptor of the very socket, and connects that
// one itself. Nothing that the command changes meanwhile is looked at again.
type mediator struct {
	listener int
	port     uint16 // of the proxy on 127.0.0.1
	local    bool   // local sockets connect where they like
	slots    chan struct{}
}

// mediatorSlots bounds how many calls are carried out at once; each that blocks
// holds a thread. The others wait, as for a busy server.
const mediatorSlots = 256

// The structures of seccomp_unotify(2).
type (
	notice struct {
		id    uint64
		pid   uint32
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	noticeAnswer struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// CanMediate tells whether one process may take a socket of another here; some
// containers refuse that, and so does Yama beyond its usual setting, for which
// trying it on ourselves shows nothing.
func CanMediate() bool {
	if scope := readWord("/proc/sys/kernel/yama/ptrace_scope"); scope != "" && scope != "0" && scope != "1" {
		return false
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, pidfd, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	var sizes [3]uint16
	_, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes[0])))
	return no == 0 && uintptr(sizes[0]) == unsafe.Sizeof(notice{}) && uintptr(sizes[1]) == unsafe.Sizeof(noticeAnswer{})
}

// startMediator puts the filter on this thread, from which the command is
// cloned. The thread must be locked; it and its children cannot connect without
// the mediator from now on.
func startMediator(port int, local bool) error {
	audit, err := filterAudit(filterNative)
	if err != nil {
		return err
	}
	prog := []unix.SockFilter{
		{Code: filterLoad, K: filterArch},
		{Code: filterJumpEq, K: audit, Jf: 3}, // the other filter kills a foreign one
		{Code: filterLoad, K: filterNr},
		{Code: filterJumpEq, K: unix.SYS_CONNECT, Jf: 1},
		{Code: filterReturn, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: filterReturn, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// A signal must not restart a connect that is under way.
	p := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	fd, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&p)))
	if no != 0 {
		return fmt.Errorf("listen for connect(2): %w", no)
	}
	m := &mediator{listener: int(fd), port: uint16(port), local: local, slots: make(chan struct{}, mediatorSlots)}
	unix.CloseOnExec(m.listener)
	go m.serve()
	return nil
}

// serve lives as long as the keeper.
func (m *mediator) serve() {
	for {
		n := notice{}
		if no := m.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); no != 0 {
			if no == unix.EINTR || no == unix.ENOENT {
				continue
			}
			return // whoever asks now gets ENOSYS
		}
		m.slots <- struct{}{}
		go func() {
			defer func() { <-m.slots }()
			a := noticeAnswer{id: n.id}
			if no := m.connect(n); no == carryOn {
				a.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
			} else {
				a.errno = -int32(no)
			}
			_ = m.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
		}()
	}
}

func (m *mediator) ioctl(request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(m.listener), request, uintptr(arg))
	return no
}

// carryOn is no error: the kernel carries the call out itself.
const carryOn unix.Errno = 1<<16 - 1

// connect judges one call and carries it out. A local socket connects by itself:
// in its own directory, with its own credentials and in its own Landlock domain.
// If it was another socket that was looked at, the call still reaches nothing
// more, since Landlock grants no TCP port where connect(2) is mediated.
func (m *mediator) connect(n notice) unix.Errno {
	address, no := copyAddress(n)
	if no != 0 {
		return no
	}
	fd, err := takeSocket(int(n.pid), int(int32(n.args[0])))
	if err != nil {
		return errnoOr(err, unix.EACCES)
	}
	defer unix.Close(fd)
	// The pid may be another's by now; then what was copied is worth nothing.
	if no := m.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)); no != 0 {
		return unix.EACCES
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return errnoOr(err, unix.EACCES)
	}
	if m.local && domain == unix.AF_UNIX {
		return carryOn
	}
	if !m.allows(domain, address) {
		return unix.EACCES
	}
	_, _, no = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), uintptr(len(address)))
	return no
}

// allows tells whether a socket of a family may go to an address: to the proxy,
// or to the kernel's route queries.
func (m *mediator) allows(domain int, address []byte) bool {
	family := int(binary.NativeEndian.Uint16(address))
	switch {
	case domain != family:
		return false
	case family == unix.AF_NETLINK:
		return true
	case family == unix.AF_INET && len(address) >= unix.SizeofSockaddrInet4:
		return binary.BigEndian.Uint16(address[2:]) == m.port && bytes.Equal(address[4:8], []byte{127, 0, 0, 1})
	case family == unix.AF_INET6 && len(address) >= unix.SizeofSockaddrInet6:
		mapped := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}
		return binary.BigEndian.Uint16(address[2:]) == m.port && bytes.Equal(address[8:24], mapped)
	}
	return false
}

// copyAddress reads the address once.
func copyAddress(n notice) ([]byte, unix.Errno) {
	size := int(int32(n.args[2]))
	if size < 2 || size > unix.SizeofSockaddrAny {
		return nil, unix.EINVAL
	}
	b := make([]byte, size)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(size)
	got, err := unix.ProcessVMReadv(int(n.pid), local, []unix.RemoteIovec{{Base: uintptr(n.args[1]), Len: size}}, 0)
	if err != nil || got != size {
		return nil, unix.EFAULT
	}
	return b, 0
}

// takeSocket duplicates a descriptor of a thread's process.
func takeSocket(thread, fd int) (int, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(thread) + "/status")
	if err != nil {
		return -1, err
	}
	pid, err := parseGroup(status)
	if err != nil {
		return -1, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// parseGroup reads the process of a thread in /proc/TID/status.
func parseGroup(status []byte) (int, error) {
	for line := range bytes.Lines(status) {
		if text, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(text)))
		}
	}
	return 0, errors.New("read status: no Tgid")
}

// errnoOr keeps what the command may learn: whether its descriptor was none.
func errnoOr(err error, otherwise unix.Errno) unix.Errno {
	var no unix.Errno
	if errors.As(err, &no) && (no == unix.EBADF || no == unix.ENOTSOCK) {
		return no
	}
	return otherwise
}

package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkStream refuses a standard stream that would carry a piece of the host's
// tree inside, a directory or an O_PATH handle (CVE-2024-21626), or one of the
// host's network.
func checkStream(i int, f *os.File) error {
	name := [3]string{"stdin", "stdout", "stderr"}[i]
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("inspect %s: %w", name, err)
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("inspect %s: %w", name, err)
	}
	if flags&unix.O_PATH != 0 || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("refuse %s: it is a directory or a path handle and would show the host's files inside", name)
	}
	if isKernelObject(int(f.Fd()), st.Mode, flags) {
		return fmt.Errorf("refuse %s: it is no file but an object of the host's kernel (a process, a namespace, events) and would give power over it", name)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK && !isPipeLike(int(f.Fd())) {
		return fmt.Errorf("refuse %s: it is a socket of the host's network, and could be connected to anything there; put a pipe in between", name)
	}
	return nil
}

// isKernelObject tells descriptors that stand for more than bytes: pidfd, epoll,
// inotify, io_uring, BPF, a namespace; and what is open for writing in a file system
// by which a process or the kernel is steered.
func isKernelObject(fd int, mode uint32, flags int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || mode&unix.S_IFMT == 0 {
		return true
	}
	switch int64(fs.Type) {
	case unix.ANON_INODE_FS_MAGIC, unix.NSFS_MAGIC, unix.PID_FS_MAGIC, unix.BPF_FS_MAGIC:
		return true
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC:
		return flags&unix.O_ACCMODE != unix.O_RDONLY
	}
	return false
}

// isPipeLike tells whether a socket is one end of a connected pair, as many
// programs use instead of a pipe. Any other socket keeps the network namespace
// that it was made in: connect(2) with AF_UNSPEC frees a TCP socket for another
// destination, and abstract names are those of the host.
func isPipeLike(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind == unix.SOCK_DGRAM {
		return false
	}
	_, err = unix.Getpeername(fd)
	return err == nil
}

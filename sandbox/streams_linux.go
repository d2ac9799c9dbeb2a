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
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK && !isPipeLike(int(f.Fd())) {
		return fmt.Errorf("refuse %s: it is a socket of the host's network, and could be connected to anything there; put a pipe in between", name)
	}
	return nil
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

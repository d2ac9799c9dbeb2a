package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// innerDial bounds connecting to a port inside.
const innerDial = 5 * time.Second

// dial connects to a port on the inner loopback, IPv4 first, or to a Unix socket
// at an absolute path inside.
func (d *desk) dial(to string) (*os.File, error) {
	if strings.HasPrefix(to, "/") {
		return d.askFile(message{Op: opDial, Path: to})
	}
	port, err := strconv.ParseUint(to, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: not a port or an absolute path", to)
	}
	f, err := d.dialFamily(unix.AF_INET, net.IPv4(127, 0, 0, 1), int(port))
	if errors.Is(err, unix.ECONNREFUSED) {
		return d.dialFamily(unix.AF_INET6, net.IPv6loopback, int(port))
	}
	return f, err
}

// dialFamily connects a socket that init made.
func (d *desk) dialFamily(family int, ip net.IP, port int) (*os.File, error) {
	f, err := d.askFile(message{Op: opSocket, Family: family})
	if err != nil {
		return nil, err
	}
	if err := connect(f, sockaddr(family, ip, port)); err != nil {
		f.Close()
		return nil, fmt.Errorf("connect to port %d inside: %w", port, err)
	}
	return f, nil
}

// connect connects a socket without holding a thread while it waits: the other
// end is the agent's.
func connect(f *os.File, to unix.Sockaddr) error {
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(innerDial)); err != nil {
		return err
	}
	var result error
	begun := false
	err = raw.Write(func(fd uintptr) bool {
		if begun {
			var no int
			if no, result = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); no != 0 {
				result = unix.Errno(no)
			}
			return true
		}
		begun = true
		result = unix.Connect(int(fd), to)
		return result != unix.EINPROGRESS
	})
	return errors.Join(err, result)
}

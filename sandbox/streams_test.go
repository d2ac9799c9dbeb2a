package sandbox

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A standard stream may carry bytes, and no piece of the host.
func TestCheckStream(t *testing.T) {
	open := func(path string, flags int) func() (int, error) {
		return func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) }
	}
	socket := func(domain, kind int) func() (int, error) {
		return func() (int, error) { return unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0) }
	}
	pair := func(kind int) func() (int, error) {
		return func() (int, error) {
			p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				t.Cleanup(func() { unix.Close(p[1]) })
			}
			return p[0], err
		}
	}
	connected := func() (int, error) {
		l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		t.Cleanup(func() { unix.Close(l) })
		if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return -1, err
		}
		if err := unix.Listen(l, 1); err != nil {
			return -1, err
		}
		to, err := unix.Getsockname(l)
		if err != nil {
			return -1, err
		}
		fd, err := socket(unix.AF_INET, unix.SOCK_STREAM)()
		if err != nil {
			return -1, err
		}
		return fd, unix.Connect(fd, to)
	}
	cases := []struct {
		name   string
		open   func() (int, error)
		passes bool
	}{
		{"a file", open("/proc/self/status", unix.O_RDONLY), true},
		{"a device", open(os.DevNull, unix.O_RDWR), true},
		{"memory", func() (int, error) { return unix.MemfdCreate("x", unix.MFD_CLOEXEC) }, true},
		{"memory of a process", open("/proc/self/mem", unix.O_RDWR), false},
		{"a namespace", open("/proc/self/ns/user", unix.O_RDONLY), false},
		{"a process", func() (int, error) { return unix.PidfdOpen(os.Getpid(), 0) }, false},
		{"events", func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }, false},
		{"events of files", func() (int, error) { return unix.InotifyInit1(unix.IN_CLOEXEC) }, false},
		{"a directory", open("/", unix.O_RDONLY), false},
		{"a handle", open("/proc/self/status", unix.O_PATH), false},
		{"a pair", pair(unix.SOCK_STREAM), true},
		{"a pair of packets", pair(unix.SOCK_SEQPACKET), true},
		{"a pair of datagrams", pair(unix.SOCK_DGRAM), false},
		{"a free local socket", socket(unix.AF_UNIX, unix.SOCK_STREAM), false},
		{"TCP", connected, false},
		{"free TCP", socket(unix.AF_INET, unix.SOCK_STREAM), false},
		{"UDP", socket(unix.AF_INET, unix.SOCK_DGRAM), false},
		{"netlink", socket(unix.AF_NETLINK, unix.SOCK_RAW), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fd, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), c.name)
			defer f.Close()
			if err := checkStream(0, f); (err == nil) != c.passes {
				t.Errorf("got %v, want passes %v", err, c.passes)
			}
		})
	}
}

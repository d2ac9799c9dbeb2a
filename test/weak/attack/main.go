// Command attack tries one thing after another and prints, for each, "ok" or
// the kernel's error. Outside the sandbox all of it succeeds.
package main

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	for _, arg := range os.Args[1:] {
		name, what, _ := strings.Cut(arg, "=")
		try, ok := attacks()[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "attack: unknown %q\n", name)
			os.Exit(99)
		}
		fmt.Printf("%s %s\n", name, word(try(what)))
	}
}

func word(err error) string {
	no, ok := err.(unix.Errno)
	switch {
	case err == nil:
		return "ok"
	case ok:
		return unix.ErrnoName(no)
	}
	return err.Error()
}

func attacks() map[string]func(string) error {
	return map[string]func(string) error{
		"read":      func(path string) error { return open(path, unix.O_RDONLY) },
		"write":     func(path string) error { return open(path, unix.O_WRONLY|unix.O_CREAT) },
		"truncate":  func(path string) error { return unix.Truncate(path, 0) },
		"list":      func(path string) error { return open(path, unix.O_RDONLY|unix.O_DIRECTORY) },
		"connect":   func(port string) error { return connect(port, unix.SOCK_STREAM, 0) },
		"elsewhere": elsewhere,
		"mptcp":     func(port string) error { return connect(port, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
		"udp":       func(port string) error { return connect(port, unix.SOCK_DGRAM, 0) },
		"fastopen":  fastOpen,
		"fastopens": fastOpenMessage,
		"listen":    listen,
		"local":     local,
		"localpair": localPair,
		"shm":       shared,
		"kill":      func(pid string) error { return unix.Kill(number(pid), 0) },
		"environ":   func(pid string) error { return open("/proc/"+pid+"/environ", unix.O_RDONLY) },
		"memory":    func(pid string) error { return open("/proc/"+pid+"/mem", unix.O_RDONLY) },
		"prlimit":   func(pid string) error { return unix.Prlimit(number(pid), unix.RLIMIT_CORE, nil, new(unix.Rlimit)) },
		"userns":    func(string) error { return inChild(unix.CLONE_NEWUSER) },
	}
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func loopback(port string) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: number(port), Addr: [4]byte{127, 0, 0, 1}}
}

func socket(typ, proto int, use func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return use(fd)
}

func connect(port string, typ, proto int) error {
	return socket(typ, proto, func(fd int) error { return unix.Connect(fd, loopback(port)) })
}

// elsewhere connects to ADDRESS:PORT.
func elsewhere(to string) error {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	return socket(unix.SOCK_STREAM, 0, func(fd int) error {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	})
}

func fastOpen(port string) error {
	return socket(unix.SOCK_STREAM, 0, func(fd int) error {
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, loopback(port))
	})
}

func fastOpenMessage(port string) error {
	return socket(unix.SOCK_STREAM, 0, func(fd int) error {
		return unix.Sendmsg(fd, []byte("x"), nil, loopback(port), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL)
	})
}

// listen needs no bind: the kernel picks a port.
func listen(string) error {
	return socket(unix.SOCK_STREAM, 0, func(fd int) error { return unix.Listen(fd, 1) })
}

func local(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// localPair sends to a datagram socket of somebody else's through one end of a pair.
func localPair(path string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(fds[0], []byte("x"), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path})
}

// shared opens a memory segment of the host's by its id.
func shared(id string) error {
	_, err := unix.SysvShmAttach(number(id), 0, 0)
	return err
}

// inChild asks in a process of its own kind: a threaded one may not unshare.
func inChild(flags uintptr) error {
	pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 {
		return no
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

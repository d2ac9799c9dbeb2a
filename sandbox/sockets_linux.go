package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// newSocket makes a TCP socket of this network namespace: how the launcher
// reaches a port inside.
func newSocket(family int) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

// maxSocketName leaves room for "/proc/self/fd/N/" in a socket's address.
const maxSocketName = 80

// listenAt makes a socket at a path of the sandbox's own, for the agent's user
// alone.
func (p *pidOne) listenAt(path string, datagram bool) (*os.File, error) {
	dir, name := filepath.Split(path)
	if !filepath.IsAbs(path) || name == "" || len(name) > maxSocketName {
		return nil, fmt.Errorf("listen on %q: not an absolute path with a name of at most %d bytes", path, maxSocketName)
	}
	parent, err := p.openOwn(dir)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	defer unix.Close(parent)
	kind := unix.SOCK_STREAM
	if datagram {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	// The mode that bind(2) gives the file.
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: inFd(parent) + "/" + name})
	}
	if err == nil && !datagram {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	return f, nil
}

// openOwn opens a directory that lies in a tmpfs of the sandbox's own: nothing
// is made in a tree of the host's.
func (p *pidOne) openOwn(dir string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, err
	}
	var st, own unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	for _, e := range p.s.Plan.View {
		if e.Kind == KindTmpfs && unix.Lstat(e.Target, &own) == nil && own.Dev == st.Dev {
			return fd, nil
		}
	}
	unix.Close(fd)
	return -1, errors.New("its directory is not the sandbox's own")
}

// dialAt connects to a stream socket at a path inside, as init sees it, which
// is as the agent does.
func dialAt(path string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, fmt.Errorf("connect to %q inside: %w", path, err) }
	at, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return fail(err)
	}
	defer unix.Close(at)
	// A queue that is full must not hold init up.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), path)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: inFd(at)})
	if err == nil {
		err = listensInside(fd)
	}
	if err != nil {
		f.Close()
		return fail(err)
	}
	return f, nil
}

// listensInside refuses a socket of the host's that the agent led us to: a
// process outside of this PID namespace has no number here.
func listensInside(fd int) error {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	if cred.Pid == 0 {
		return fmt.Errorf("who listens there is outside: %w", unix.EACCES)
	}
	return nil
}

func inFd(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

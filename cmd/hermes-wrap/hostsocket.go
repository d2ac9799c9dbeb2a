package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hostSocket is a Unix socket on the host that a policy names: "metrics.socket",
// or where "network.publish" listens. The launcher makes it.
type hostSocket struct {
	f    *os.File
	path string
	made unix.Stat_t
}

// openMetrics makes the socket of "metrics.socket", which the proxy serves; nil
// when the policy has none.
func openMetrics(path string) (*hostSocket, error) {
	if path == "" {
		return nil, nil
	}
	return openHostSocket("metrics.socket", path)
}

// openHostSocket makes a socket with mode 0600. One that a killed run left there
// is replaced. Anything else stays.
func openHostSocket(key, path string) (*hostSocket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of %s: %w", key, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	f, err := listenPrivate(filepath.Dir(path), filepath.Base(path), unix.SOCK_STREAM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	m := &hostSocket{f: f, path: path}
	if err := unix.Lstat(path, &m.made); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", key, &os.PathError{Op: "lstat", Path: path, Err: err})
	}
	return m, nil
}

// removeStale removes a socket of this user that nobody listens on.
func removeStale(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("%q is there and is no socket", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%q belongs to another user", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return fmt.Errorf("%q is served by another run", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%q is there: %w", path, err)
	}
	return os.Remove(path)
}

// close removes the socket, unless somebody put another there.
func (m *hostSocket) close() {
	if m == nil {
		return
	}
	m.f.Close()
	var now unix.Stat_t
	if unix.Lstat(m.path, &now) == nil && now.Ino == m.made.Ino && now.Dev == m.made.Dev {
		_ = os.Remove(m.path)
	}
}

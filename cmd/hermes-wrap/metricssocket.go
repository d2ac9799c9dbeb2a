package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// metricsSocket is the Unix socket of "metrics.socket". The launcher makes it,
// since the proxy writes nothing to the file system; the proxy serves it.
type metricsSocket struct {
	f    *os.File
	path string
	made unix.Stat_t
}

// openMetrics makes the socket with mode 0600; nil when the policy has none. A
// socket that a killed run left there is replaced. Anything else stays.
func openMetrics(path string) (*metricsSocket, error) {
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of metrics.socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("metrics.socket: %w", err)
	}
	f, err := listenPrivate(filepath.Dir(path), filepath.Base(path), unix.SOCK_STREAM)
	if err != nil {
		return nil, fmt.Errorf("metrics.socket: %w", err)
	}
	m := &metricsSocket{f: f, path: path}
	if err := unix.Lstat(path, &m.made); err != nil {
		f.Close()
		return nil, fmt.Errorf("metrics.socket: %w", &os.PathError{Op: "lstat", Path: path, Err: err})
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
func (m *metricsSocket) close() {
	if m == nil {
		return
	}
	m.f.Close()
	var now unix.Stat_t
	if unix.Lstat(m.path, &now) == nil && now.Ino == m.made.Ino && now.Dev == m.made.Dev {
		_ = os.Remove(m.path)
	}
}

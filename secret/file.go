package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// fromFile reads a regular file of the caller's or root's that nobody else can
// read. A symlink is followed: what counts is the file that is opened. One that
// can be turned from inside is not, since it could lead to another secret.
func (r Reader) fromFile(path, key string) (string, error) {
	if r.changeable(path) {
		return "", fmt.Errorf("read file %q: it can be changed from inside", path)
	}
	if key != "" {
		return fromEntry(path, key)
	}
	b, err := readFile(path, maxLength+2, checkFile)
	return chomp(b), err
}

// fromEntry reads one entry of a file of "KEY = VALUE" lines: the last that sets
// it, without the quotes around it.
func fromEntry(path, key string) (string, error) {
	text, err := readFile(path, maxDotenv, checkFile)
	if err != nil {
		return "", err
	}
	value, found := "", false
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(k) == key {
			value, found = strings.TrimSpace(v), true
		}
	}
	if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	switch {
	case len(text) > maxDotenv:
		return "", fmt.Errorf("read file %q: it is longer than %d characters", path, maxDotenv)
	case !found || value == "":
		return "", fmt.Errorf("read file %q: %w", path, missing{key})
	}
	return value, nil
}

// fromSystemd reads a credential of the service, whose directory only the
// service can open, see systemd.exec(5).
func (r Reader) fromSystemd(name string) (string, error) {
	dir, ok := r.lookup("CREDENTIALS_DIRECTORY")
	if !ok || !filepath.IsAbs(dir) {
		return "", fmt.Errorf("read systemd credential %q: CREDENTIALS_DIRECTORY is not set: start the service with LoadCredential=", name)
	}
	if name == "" || name != filepath.Base(name) || name == ".." || name == "." {
		return "", fmt.Errorf("read systemd credential %q: not the name of a credential", name)
	}
	b, err := readFile(filepath.Join(dir, name), maxLength+2, func(string, fs.FileInfo) error { return nil })
	return chomp(b), err
}

// readFile gives what a regular file holds, and one character more than most
// when it holds more.
func readFile(path string, most int64, check func(string, fs.FileInfo) error) (string, error) {
	// A FIFO must not hold the launch up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("read file %q: it is not a regular file", path)
	}
	if err := check(path, st); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return string(b), nil
}

func checkFile(path string, st fs.FileInfo) error {
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("read secret: the file system does not tell who owns the file")
	case st.Mode().Perm()&0o077 != 0 && sys.Uid != 0:
		return fmt.Errorf("read file %q: other users can open it (mode %04o): chmod 600 it", path, st.Mode().Perm())
	case st.Mode().Perm()&0o027 != 0:
		// Root gives services their secrets by a group.
		return fmt.Errorf("read file %q: everybody can read it or its group can change it (mode %04o): chmod 640 it", path, st.Mode().Perm())
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("read file %q: it belongs to another user", path)
	}
	return nil
}

// chomp drops one final line end, which editors and shells add.
func chomp(s string) string {
	s, ended := strings.CutSuffix(s, "\n")
	if ended {
		s = strings.TrimSuffix(s, "\r")
	}
	return s
}

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

// link is one symlink met on the way to a path.
type link struct {
	path   string // of the symlink itself, its own directory resolved
	target string // as it is written
}

// resolved is a path with every symlink followed, as it was at this moment.
type resolved struct {
	literal string
	real    string // no component is a symlink
	links   []link
	dev     uint64
	ino     uint64
	mode    fs.FileMode
	nlink   uint64
}

const maxLinks = 40 // as the kernel's, see path_resolution(7)

// resolve follows a path of the host component by component and remembers each
// symlink, so that it can be made again inside. The error is fs.ErrNotExist
// when a component is missing; real then is as far as it got, with the rest.
func resolve(path string) (resolved, error) {
	r := resolved{literal: path}
	left := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	cur := "/"
	for hops := 0; len(left) > 0; {
		name := left[0]
		left = left[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			cur = filepath.Dir(cur)
			continue
		}
		next := filepath.Join(cur, name)
		st, err := os.Lstat(next)
		if err != nil {
			r.real = filepath.Join(append([]string{next}, left...)...)
			return r, err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			cur = next
			continue
		}
		if hops++; hops > maxLinks {
			return r, &os.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return r, err
		}
		r.links = append(r.links, link{next, target})
		if filepath.IsAbs(target) {
			cur = "/"
		}
		left = append(strings.Split(strings.Trim(target, "/"), "/"), left...)
	}
	r.real = cur
	return r, r.stat()
}

func (r *resolved) stat() error {
	st, err := os.Lstat(r.real)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %q: no inode", r.real)
	}
	r.dev, r.ino, r.mode, r.nlink = uint64(sys.Dev), sys.Ino, st.Mode(), uint64(sys.Nlink)
	return nil
}

func (r resolved) isDir() bool { return r.mode.IsDir() }

// maxMatches bounds the expansion of one pattern.
const maxMatches = 4096

// expand gives the paths of the host that a pattern stands for now; a path
// without wildcard stands for itself. "dir/**" means the directory too.
func expand(pattern string, glob bool) ([]string, error) {
	if !glob {
		return []string{pattern}, nil
	}
	base, rest := doublestar.SplitPattern(pattern)
	var out []string
	seen := &listing{FS: os.DirFS(base)}
	err := doublestar.GlobWalk(seen, rest, func(p string, _ fs.DirEntry) error {
		if len(out) == maxMatches {
			return fmt.Errorf("pattern %q matches more than %d paths", pattern, maxMatches)
		}
		out = append(out, filepath.Join(base, p))
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if seen.err != nil {
		return nil, fmt.Errorf("look for %q: %w", pattern, seen.err)
	}
	return out, nil
}

// listing remembers that something could not be looked at: a walk leaves it out,
// and what is to be hidden or protected there would be open.
type listing struct {
	fs.FS
	err error
}

func (l *listing) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(l.FS, name)
	l.note(err)
	return entries, err
}

func (l *listing) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(l.FS, name)
	l.note(err)
	return info, err
}

func (l *listing) note(err error) {
	if l.err == nil && !closedToAll(err) {
		l.err = err
	}
}

// closedToAll tells an error that the agent gets as well, so that nothing is open
// to it there. Any other, as for want of descriptors, is the launcher's alone.
func closedToAll(err error) bool {
	if err == nil {
		return true
	}
	for _, is := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.ENOTCONN, syscall.ESTALE} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// within tells whether path is root or lies below it.
func within(path, root string) bool {
	return path == root || root == "/" || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

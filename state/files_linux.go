package state

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// retry repeats a call that a signal broke off.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
}

// openDir opens a directory by a path of ours; the last part may not be a link.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openBelow opens what lies below a directory: no symbolic link, no "..", and no
// mount is followed on the way or at its end.
func openBelow(dir int, rel string, flags int, mode uint32) (fd int, err error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	if rel == "" {
		rel = "."
	}
	err = retry(func() error { fd, err = unix.Openat2(dir, rel, &how); return err })
	return fd, err
}

func openFile(dir int, name string, flags int) (*os.File, error) {
	fd, err := openBelow(dir, name, flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// statAt looks at a name in a directory; found is false when there is none.
func statAt(dir int, name string) (st unix.Stat_t, found bool, err error) {
	if dir < 0 {
		return st, false, nil
	}
	err = retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.ENOENT) {
		return st, false, nil
	}
	return st, err == nil, err
}

// readNames lists a directory, sorted.
func readNames(dir int) ([]string, error) {
	fd, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(maxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(names) > maxEntries {
		err = errTooMany
	}
	slices.Sort(names)
	return names, err
}

// readLink gives the target of a symbolic link.
func readLink(dir int, name string) (string, error) {
	for size := 256; ; size *= 16 {
		b := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, b)
		if err != nil {
			return "", err
		}
		if n < size || size > unix.PathMax {
			return string(b[:n]), nil
		}
	}
}

// writeFile replaces a file of ours, whole or not at all.
func writeFile(dir int, name string, content []byte, durable bool) error {
	return writeWith(dir, name, durable, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// writeWith is writeFile for content that is too large to be held.
func writeWith(dir int, name string, durable bool, fill func(io.Writer) error) error {
	temp := "." + name + ".new"
	fd, err := openBelow(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	w := bufio.NewWriterSize(f, 64<<10)
	err = fill(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil && durable {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if err == nil && durable {
		err = unix.Fsync(dir)
	}
	return err
}

// xattrs lists the names of the extended attributes of an open file or, for what
// cannot be opened, of a name through its O_PATH descriptor.
func xattrs(path string) ([]string, error) {
	b := make([]byte, 1024)
	for {
		n, err := unix.Listxattr(path, b)
		if errors.Is(err, unix.ERANGE) && len(b) < 1<<20 {
			b = make([]byte, 4*len(b))
			continue
		}
		if errors.Is(err, unix.ENOTSUP) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(strings.Split(string(b[:n]), "\x00"), func(s string) bool { return s == "" }), nil
	}
}

// split gives the directory and the last part of a relative path.
func split(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}

// below joins relative paths.
func below(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

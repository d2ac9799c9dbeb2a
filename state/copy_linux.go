package state

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyContent copies size bytes, sharing blocks where the file system can.
func copyContent(to, from *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	// io.Copy uses copy_file_range(2).
	n, err := io.Copy(to, io.LimitReader(from, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("the file has %d bytes, not %d: it changes", n, size)
	}
	return err
}

// copyXattrs copies the extended attributes that wanted says.
func copyXattrs(to, from int, wanted func(string) bool) error {
	source := handle(from).path()
	names, err := xattrs(source)
	if err != nil {
		return err
	}
	for _, n := range names {
		if !wanted(n) {
			continue
		}
		value, err := xattr(source, n)
		if err == nil {
			err = unix.Fsetxattr(to, n, value, 0)
		}
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("copy attribute %q: %w", n, err)
		}
	}
	return nil
}

func xattr(path, name string) ([]byte, error) {
	b := make([]byte, 4096)
	for {
		n, err := unix.Getxattr(path, name, b)
		if errors.Is(err, unix.ERANGE) && len(b) < 1<<20 {
			b = make([]byte, 4*len(b))
			continue
		}
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	}
}

// setMtime sets the time of the last change of content.
func setMtime(f *os.File, ns int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(ns)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, handle(f.Fd()).path(), times, 0)
}

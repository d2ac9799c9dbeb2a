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
	// Only what takes room is copied: a file may have any size and take none.
	if err := to.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		begin, end, err := data(from, at)
		if errors.Is(err, unix.ENXIO) {
			break // a hole until the end
		}
		if err != nil {
			return err
		}
		if end = min(end, size); begin >= end {
			break
		}
		if err := copyRange(to, from, begin, end-begin); err != nil {
			return err
		}
		at = end
	}
	if st, err := from.Stat(); err != nil || st.Size() != size {
		return errors.Join(err, fmt.Errorf("the file has no longer %d bytes: it changes", size))
	}
	return nil
}

// data finds the next part of a file that is no hole; ENXIO means that there is none.
func data(f *os.File, at int64) (begin, end int64, err error) {
	if begin, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err == nil {
		end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
	}
	if errors.Is(err, unix.EINVAL) {
		return at, 1<<63 - 1, nil // the file system tells nothing of holes
	}
	return begin, end, err
}

// copyRange copies n bytes from and to the same place. io.Copy uses copy_file_range(2).
func copyRange(to, from *os.File, at, n int64) error {
	for _, f := range []*os.File{from, to} {
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return err
		}
	}
	done, err := io.Copy(to, io.LimitReader(from, n))
	if err == nil && done != n {
		err = errors.New("the file became shorter: it changes")
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

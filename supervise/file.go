package supervise

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// File is a log that is rotated by size: PATH is written to, PATH.1 is the
// newest of the full ones.
type File struct {
	path  string
	limit int64
	keep  int
	// Failed is told when entries are lost, with the first error, and again when
	// writing works again, with nil and their number.
	failed func(err error, lost int)

	mu   sync.Mutex
	f    *os.File
	size int64
	lost int
}

// OpenFile goes on in the log at path, which is the user's alone.
func OpenFile(path string, limit int64, keep int, failed func(err error, lost int)) (*File, error) {
	l := &File{path: path, limit: limit, keep: keep, failed: failed}
	if err := l.lockedOpen(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *File) lockedOpen() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("open the log: %q is not a regular file", l.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, st.Size()
	return nil
}

// write appends one entry, whole.
func (l *File) write(entry []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.lockedWrite(entry)
	switch {
	case err != nil:
		l.lost++
		if l.lost == 1 {
			l.failed(err, 0)
		}
	case l.lost > 0:
		l.failed(nil, l.lost)
		l.lost = 0
	}
}

func (l *File) lockedWrite(entry []byte) error {
	if l.f == nil {
		return os.ErrClosed
	}
	if l.size > 0 && l.size+int64(len(entry)) > l.limit {
		if err := l.lockedRotate(); err != nil {
			return err
		}
	}
	n, err := l.f.Write(entry)
	l.size += int64(n)
	if err != nil && n > 0 {
		// A disk that is full took a part: the next entry must not follow on it.
		if l.f.Truncate(l.size-int64(n)) == nil {
			l.size -= int64(n)
		}
	}
	return err
}

// lockedRotate makes room: each full file moves up by one.
func (l *File) lockedRotate() error {
	name := func(n int) string { return fmt.Sprintf("%s.%d", l.path, n) }
	for n := l.keep - 1; n >= 1; n-- {
		if err := os.Rename(name(n), name(n+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate the log: %w", err)
		}
	}
	if err := os.Rename(l.path, name(1)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("rotate the log: %w", err)
	}
	old := l.f
	if err := l.lockedOpen(); err != nil {
		return err
	}
	return old.Close()
}

// Close ends the log.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// Files gives the files of the log at path that there are, oldest first.
func Files(path string) ([]string, error) {
	var files []string
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.%d", path, n)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return nil, err
		}
		files = append([]string{name}, files...)
	}
	if _, err := os.Lstat(path); err == nil {
		files = append(files, path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return files, nil
}

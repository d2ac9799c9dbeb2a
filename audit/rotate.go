package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// rotated is the form of the time behind the name of a file that is full. Names
// sort as the times do.
const rotated = "20060102T150405.000000000Z"

// Rotate begins a new file once the one at path is larger than most bytes, and
// removes all but the keep newest of the old ones. Where another process did so
// already, it takes over the new file. It returns the file that is written to
// from now on, for handing it to other processes, and nil where nothing changed.
// Lines that others still write to the old file stay there.
func (l *Log) Rotate(path string, most int64, keep int) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.file == nil {
		return nil, nil
	}
	current, size, err := l.lockedCurrent(path)
	if err != nil || (current && size < most) {
		return nil, err
	}
	if current {
		if moved, err := l.lockedMove(path); err != nil || !moved {
			return nil, err
		}
	}
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	if err := l.lockedSwap(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, prune(path, keep)
}

// lockedCurrent tells whether the file at path is the one that is written to.
func (l *Log) lockedCurrent(path string) (current bool, size int64, err error) {
	var ours, there unix.Stat_t
	if err := unix.Fstat(l.fd, &ours); err != nil {
		return false, 0, fmt.Errorf("rotate audit file %q: %w", path, err)
	}
	err = unix.Lstat(path, &there)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, 0, fmt.Errorf("rotate audit file %q: %w", path, err)
	}
	return err == nil && ours.Dev == there.Dev && ours.Ino == there.Ino, ours.Size, nil
}

// lockedMove renames the full file. Of several processes one does it: the file
// itself is the lock.
func (l *Log) lockedMove(path string) (moved bool, err error) {
	if err := unix.Flock(l.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, nil // somebody else is at it
	}
	defer func() { _ = unix.Flock(l.fd, unix.LOCK_UN) }()
	if current, _, err := l.lockedCurrent(path); err != nil || !current {
		return err == nil, err
	}
	to := path + "." + time.Now().UTC().Format(rotated)
	if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return false, fmt.Errorf("rotate audit file %q: %w", path, err)
	}
	return true, nil
}

// Swap has the Log write to another file from now on, which it owns then. The
// chain goes on in it.
func (l *Log) Swap(f *os.File) error {
	if err := usable(f); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.file == nil {
		return errors.New("use audit file: the record is closed")
	}
	return l.lockedSwap(f)
}

func (l *Log) lockedSwap(f *os.File) error {
	if err := usable(f); err != nil {
		return err
	}
	_ = l.file.Close()
	l.file, l.fd, l.torn = f, int(f.Fd()), false
	return nil
}

// Files gives the files of the record at path that there are, oldest first.
func Files(path string) ([]string, error) {
	old, err := rotatedFiles(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		old = append(old, path)
	}
	return old, nil
}

func rotatedFiles(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("list audit files: %w", err)
	}
	var files []string
	for _, e := range entries {
		when, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !ok || !e.Type().IsRegular() {
			continue
		}
		if _, err := time.Parse(rotated, when); err == nil {
			files = append(files, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

// prune removes the oldest files.
func prune(path string, keep int) error {
	files, err := rotatedFiles(path)
	if err != nil {
		return err
	}
	for len(files) > keep {
		if err := os.Remove(files[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old audit file: %w", err)
		}
		files = files[1:]
	}
	return nil
}

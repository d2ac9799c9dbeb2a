// Package session keeps what there is to know about a run, outside of it and
// after it: a directory for each name, a record in it, and a lock that says
// whether a run of that name is under way. It knows nothing of sandboxes.
//
// A directory is held by one run at a time. The lock is flock(2) on the directory
// itself, so that it is free as soon as the launcher is gone, however it ended.
package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the directories of all sessions lie. stateHome is
// $XDG_STATE_HOME, or what stands for it.
func Root(stateHome string) string { return filepath.Join(stateHome, "hermes-wrap", "sessions") }

// Dir is the directory of one session. Files in it are the record
// ("session.json"), the log ("log" and its rotated files) and what the run keeps
// of its files ("state").
func Dir(stateHome, name string) string { return filepath.Join(Root(stateHome), name) }

// Names of what lies in a session's directory.
const (
	LogName   = "log"
	StateName = "state"
	// ScratchName is what the run keeps of its files until it ends.
	ScratchName = "ephemeral"

	recordName = "session.json"
)

// maxName is the most bytes that a name has. Its form is that of a policy's name.
const maxName = 64

// CheckName refuses what cannot be the name of a session.
func CheckName(s string) error {
	const marks = "._-"
	odd := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(marks, r)
	})
	if s == "" || len(s) > maxName || odd >= 0 || strings.Contains(marks, s[:1]) {
		return fmt.Errorf("%q is no name for a session: letters, digits, dots, dashes and underscores, at most 64: acme-hermes", s)
	}
	return nil
}

// runDigits is how much of a run's identifier goes into a name that nobody gave.
const runDigits = 6

// DefaultName names a session after its policy and its run.
func DefaultName(policy, run string) string {
	run = run[:min(len(run), runDigits)]
	return policy[:min(len(policy), maxName-1-len(run))] + "-" + run
}

// BusyError tells that a run of that name is under way.
type BusyError struct{ Name string }

func (e *BusyError) Error() string { return fmt.Sprintf("session %q is in use by a run", e.Name) }

// Session is a session that this process holds.
type Session struct {
	Name string
	// Path is its directory.
	Path string
	lock *os.File
}

// How long Take waits for somebody who only looks, see isLive.
const (
	lookTries = 40
	lookPause = 5 * time.Millisecond
)

// Take makes the session's directory, mode 0700, and holds it until Close. A
// *BusyError means that another run has the name.
func Take(stateHome, name string) (*Session, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	path := Dir(stateHome, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the sessions' directory: %w", err)
	}
	for try := 1; ; try++ {
		lock, err := takeDir(path)
		switch {
		case err == nil:
			if err := waitHolder(path, name); err != nil {
				lock.Close()
				return nil, err
			}
			return &Session{Name: name, Path: path, lock: lock}, nil
		case errors.Is(err, unix.EWOULDBLOCK) && try == lookTries:
			return nil, &BusyError{name}
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, os.ErrNotExist) || try == lookTries:
			return nil, fmt.Errorf("take session %q: %w", name, err)
		}
		time.Sleep(lookPause)
	}
}

// takeDir makes the directory and locks it. One that was removed in between is
// no longer there under its path: then it fails with ENOENT.
func takeDir(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return lockDir(path, unix.LOCK_EX)
}

func lockDir(path string, how int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := errors.Join(unix.Flock(fd, how|unix.LOCK_NB), sameFile(f, path)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sameFile checks that a path still leads to an open directory of ours.
func sameFile(f *os.File, path string) error {
	var held, now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &held); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if err := unix.Lstat(path, &now); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if held.Ino != now.Ino || held.Dev != now.Dev {
		return os.ErrNotExist
	}
	if int(held.Uid) != os.Geteuid() || held.Mode&0o077 != 0 {
		return fmt.Errorf("refuse directory %q: it must be a directory of yours with mode 0700", path)
	}
	return nil
}

// Close lets the name go. What lies in the directory stays.
func (s *Session) Close() error {
	s.release()
	return s.lock.Close()
}

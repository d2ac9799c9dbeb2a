package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kept is how many ended sessions stay at least. They are looked at once there are
// Slack more: to read them all takes longer than whatever else is written about a
// run.
const (
	Kept  = 20
	Slack = 12
)

// ErrState refuses to remove a session with files of the agent's unless asked to.
var ErrState = errors.New("it holds files of the agent's")

// Remove deletes an ended session. One that holds files of the agent's, in
// "state", goes only with withState.
func Remove(stateHome, name string, withState bool) error {
	if err := CheckName(name); err != nil {
		return err
	}
	path := Dir(stateHome, name)
	lock, err := lockDir(path, unix.LOCK_EX)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &BusyError{name}
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Lstat(filepath.Join(path, StateName)); !withState && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove session %q: %w", name, errors.Join(ErrState, err))
	}
	for _, dir := range []string{StateName, ScratchName} {
		if err := removable(filepath.Join(path, dir)); err != nil {
			return fmt.Errorf("remove session %q: %w", name, err)
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove session %q: %w", name, err)
	}
	return nil
}

// removable gives directories back the mode that lets their content be removed:
// whoever wrote them may have taken it.
func removable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		return os.Chmod(path, 0o700)
	})
}

// Tidy prunes once there are enough to be worth it.
func Tidy(stateHome string) error {
	all, err := os.ReadDir(Root(stateHome))
	count := 0
	for _, e := range all {
		if _, err := os.Lstat(filepath.Join(Dir(stateHome, e.Name()), StateName)); err != nil {
			count++
		}
	}
	if err != nil || count <= Kept+Slack {
		return err
	}
	return Prune(stateHome)
}

// Prune removes the ended sessions beyond the newest Kept. Those that run, that
// hold files of the agent's, or whose record is there and cannot be read stay.
func Prune(stateHome string) error {
	all, err := List(stateHome)
	if err != nil {
		return err
	}
	kept := 0
	for _, e := range all {
		if e.Live || e.State || e.Broken != "" && !e.unwritten {
			continue
		}
		if kept++; kept <= Kept {
			continue
		}
		// Whoever took it up in between keeps it.
		var busy *BusyError
		if err := Remove(stateHome, e.Name, false); err != nil && !errors.As(err, &busy) && !errors.Is(err, ErrState) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

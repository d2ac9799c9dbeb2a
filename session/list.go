package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Entry is a session as it is found.
type Entry struct {
	Record
	// Path is its directory.
	Path string `json:"path"`
	// Live tells that a run is under way.
	Live bool `json:"live"`
	// State tells that its directory holds files of the agent's.
	State bool `json:"state,omitempty"`
	// Broken is why the record cannot be used; "" when it can.
	Broken string `json:"broken,omitempty"`

	// unwritten tells that there is no record: its run was killed before it wrote one.
	unwritten bool
}

// The conditions of a session, see Entry.Status.
const (
	StatusRunning = "running"
	StatusPaused  = "paused"
	StatusEnded   = "ended"
	// StatusKilled is a run whose launcher did not live to say how it ended.
	StatusKilled = "killed"
	// StatusBroken is a session with a record that cannot be read.
	StatusBroken = "broken"
)

// Status is the session's condition in a word.
func (e Entry) Status() string {
	switch {
	case e.Live && e.Paused:
		return StatusPaused
	case e.Live:
		return StatusRunning
	case e.Broken != "":
		return StatusBroken
	case e.Ended.IsZero():
		return StatusKilled
	}
	return StatusEnded
}

// List gives every session, the newest first. A session that vanishes meanwhile
// is left out.
func List(stateHome string) ([]Entry, error) {
	found, err := os.ReadDir(Root(stateHome))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range found {
		if e, err := Find(stateHome, f.Name()); err == nil {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return b.Started.Compare(a.Started) })
	return all, nil
}

// Find gives one session by its name; os.ErrNotExist means that there is none.
func Find(stateHome, name string) (Entry, error) {
	if CheckName(name) != nil {
		return Entry{}, os.ErrNotExist
	}
	return At(Dir(stateHome, name))
}

// At gives the session in a directory.
func At(path string) (Entry, error) {
	e := Entry{Path: path}
	// Asked before the record is read: a run that ends in between has written its
	// end by then.
	var err error
	if e.Live, err = isLive(e.Path); err != nil {
		return Entry{}, err
	}
	e.Record, err = read(e.Path)
	if err != nil {
		e.Record, e.Broken, e.unwritten = Record{}, err.Error(), errors.Is(err, os.ErrNotExist)
		if _, gone := os.Lstat(e.Path); gone != nil {
			return Entry{}, os.ErrNotExist
		}
	}
	e.Name = filepath.Base(path) // whatever the record says
	_, err = os.Lstat(filepath.Join(e.Path, StateName))
	e.State = err == nil
	return e, nil
}

// isLive tells whether somebody holds the directory. It takes the lock for a
// moment, shared, so that two who look do not take each other for a run.
func isLive(path string) (bool, error) {
	f, err := lockDir(path, unix.LOCK_SH)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

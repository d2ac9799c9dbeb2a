package state

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of a comparison. The agent chooses how many files it makes, and how deep.
const (
	maxEntries = 1 << 20
	maxDepth   = 200
	maxPath    = 3800 // bytes, below PATH_MAX with room for a temporary name
	// maxNames bounds all paths together (bytes): they are held several times, as
	// changes, as steps and in a journal. 100 for each of the most entries.
	maxNames = 100 * maxEntries
)

var (
	errTooMany   = fmt.Errorf("more than %d entries: too many to look at", maxEntries)
	errLongNames = fmt.Errorf("the names of all entries have more than %d MiB: too many to look at", maxNames>>20)
)

// Kind is how an entry differs from the host.
type Kind string

// Kinds of changes.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
)

// Type is what an entry is.
type Type string

// Types of entries. Everything else is Special and never committed.
const (
	Absent  Type = ""
	File    Type = "file"
	Dir     Type = "directory"
	Symlink Type = "symlink"
	Special Type = "special"
)

// Entry is one side of a change.
type Entry struct {
	Type Type
	// Mode holds the permission bits, with setuid, setgid and sticky.
	Mode uint32
	Size int64
	// Target is where a symbolic link points.
	Target string
	id     identity
}

// identity tells an object of the file system, as it was, from every other.
type identity struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // ns
	Ctime int64  `json:"ctime"` // ns
}

// Change is one entry that differs from the host as it is now.
type Change struct {
	// Path is relative to the tree. Its bytes are the agent's: escape them to print.
	Path string
	Kind Kind
	// Aspects says what a modification is about: type, content, mode, target.
	Aspects  []string
	Old, New Entry
	// From is the deleted path with the same content: the entry was renamed.
	From string
	// Conflict says how the host changed since the layer was made; "" if it did not.
	Conflict string
	// Held says why the change cannot be committed; "" if it can.
	Held string
	// Dropped lists what is not carried over: setuid, setgid, acl, capability.
	Dropped []string
	// Leads says that a symbolic link points out of the tree.
	Leads bool
	// Runs says why the host would execute the entry later; "" if it would not.
	Runs string

	links uint64 // of the layer's file
}

// under tells whether a path is one of the named ones, or lies below one. No
// names mean the whole tree.
func under(path string, names []string) bool {
	if len(names) == 0 {
		return true
	}
	for _, n := range names {
		if n == "" || path == n || strings.HasPrefix(path, n) && len(path) > len(n) && path[len(n)] == '/' {
			return true
		}
	}
	return false
}

// Select gives the changes at and below paths, and an error for a path that has none.
func Select(changes []Change, paths []string) (chosen []Change, err error) {
	for _, p := range paths {
		found := false
		for _, c := range changes {
			if under(c.Path, []string{p}) {
				found = true
				break
			}
		}
		if !found {
			err = errors.Join(err, fmt.Errorf("nothing is changed at or below %q", p))
		}
	}
	for _, c := range changes {
		if under(c.Path, paths) {
			chosen = append(chosen, c)
		}
	}
	return chosen, err
}

package state

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the look at a tree that was written directly: it happens at the end
// of a run, when somebody waits for the prompt.
const (
	writtenEntries = 200_000
	writtenTime    = 2 * time.Second
)

// Written gives what the host would execute later and was changed in a tree since
// a moment, by its change time, which no program can set back. whole is false
// when the tree was too large to look at all of it. Directories near the top come
// first; git's objects are left out.
func Written(tree string, since time.Time) (found []Change, whole bool, err error) {
	root, err := openDir(tree)
	if err != nil {
		return nil, false, err
	}
	defer root.Close()
	w := writtenWalk{root: int(root.Fd()), since: since.UnixNano(), until: time.Now().Add(writtenTime), left: writtenEntries}
	w.stand = findStandIns(w.root, tree)
	for queue := []string{""}; len(queue) > 0; {
		dir := queue[0]
		below, err := w.dir(dir)
		if errors.Is(err, errTooMany) {
			break
		}
		queue = append(queue[1:], below...)
		whole = len(queue) == 0
	}
	classify(w.found, w.stand, func(rel string) bool { return isThere(w.root, rel) })
	return slices.DeleteFunc(w.found, func(c Change) bool { return c.Runs == "" }), whole, nil
}

type writtenWalk struct {
	root  int
	since int64
	until time.Time
	left  int
	stand standIns
	found []Change
}

// dir looks at one directory and gives those in it. What cannot be opened, or has
// gone, is passed by.
func (w *writtenWalk) dir(rel string) (subdirs []string, err error) {
	if strings.Count(rel, "/") > maxDepth || len(rel) > maxPath {
		return nil, nil
	}
	fd, err := openBelow(w.root, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	defer unix.Close(fd)
	entries, err := readEntries(fd, w.left)
	if w.left -= len(entries); err != nil || w.left <= 0 || time.Now().After(w.until) {
		return nil, errTooMany
	}
	for _, e := range entries {
		path := below(rel, e.Name())
		switch {
		case e.IsDir():
			if path != ".git/objects" && !strings.HasSuffix(path, "/.git/objects") {
				subdirs = append(subdirs, path)
			}
		case w.candidate(rel, e, path):
			st, there, err := statAt(fd, e.Name())
			if err == nil && there && st.Ctim.Nano() >= w.since {
				w.found = append(w.found, Change{Path: path, Kind: Modified, New: Entry{Type: typeOf(st), Mode: st.Mode & 0o7777}})
			}
		}
	}
	return subdirs, nil
}

// candidate tells by a name whether its times matter: most need no stat(2).
func (w *writtenWalk) candidate(dir string, e os.DirEntry, path string) bool {
	_, parent := split(dir)
	last := e.Name()
	return last == "HEAD" || last == "config" || parent == "hooks" || inProgramDir(parent) ||
		w.stand.runs(path) != "" || e.Type() == os.ModeSymlink && (last == "hooks" || w.stand.above(path))
}

// readEntries lists a directory with the types of its entries.
func readEntries(dir, most int) ([]os.DirEntry, error) {
	fd, err := openBelow(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	// By its name it finds types where the file system does not list them.
	f := os.NewFile(uintptr(fd), handle(fd).path())
	defer f.Close()
	entries, err := f.ReadDir(most + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// installed are directories that a package manager fills: what it put there is
// said in one line.
var installed = []string{"node_modules", ".venv", "venv", "vendor", "target", "site-packages", ".yarn", ".tox"}

// Grouped sums up what lies in directories of package managers. Each group is
// its first change, with the directory as its path.
func Grouped(changes []Change) (groups []Change, counts []int) {
	at := map[string]int{}
	for _, c := range changes {
		dir := installedIn(c.Path)
		if i, seen := at[dir]; seen && dir != "" {
			counts[i]++
			continue
		}
		if dir != "" {
			at[dir] = len(groups)
			c.Path, c.Runs = dir+"/", "a package manager's directory: programs and scripts"
		}
		groups, counts = append(groups, c), append(counts, 1)
	}
	return groups, counts
}

func installedIn(path string) string {
	dir, _ := split(path)
	for end := 0; end < len(dir); end++ {
		rest := dir[end:]
		part, _, _ := strings.Cut(rest, "/")
		if slices.Contains(installed, part) {
			return dir[:end+len(part)]
		}
		end += len(part)
	}
	return ""
}

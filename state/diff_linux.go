package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Diff compares a layer with the host's tree as it is now. The changes are sorted
// by path. Whoever changes the layer or the tree meanwhile makes it a moving picture.
func (l *Layer) Diff() ([]Change, error) {
	d := differ{layer: l, since: l.Created.UnixNano(), ready: l.Ready.UnixNano(), opaque: map[string]bool{}}
	var err error
	if l.dir != nil {
		if d.known, err = l.readKnown(); err != nil {
			return nil, err
		}
	}
	if err := d.dir(pair{int(l.data.Fd()), int(l.host.Fd()), "", false, 0}); err != nil {
		return nil, fmt.Errorf("compare layer %q: %w", l.Name, err)
	}
	slices.SortFunc(d.changes, func(a, b Change) int { return comparePaths(a.Path, b.Path) })
	d.findRenames()
	classify(d.changes, findStandIns(int(l.host.Fd()), l.Target), l.isThere)
	l.opaque = d.opaque
	return d.changes, nil
}

// isThere tells whether the layer or the host has a path.
func (l *Layer) isThere(rel string) bool {
	return isThere(int(l.host.Fd()), rel) || isThere(int(l.data.Fd()), rel)
}

// isThere tells whether there is a path below a directory, also as a link.
func isThere(root int, rel string) bool {
	fd, err := openBelow(root, rel, unix.O_PATH, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil || errors.Is(err, unix.ELOOP)
}

// comparePaths sorts parents before children and trees together.
func comparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return int(a[i]) - int(b[i])
	}
	return len(a) - len(b)
}

// differ walks a layer and the host side by side.
type differ struct {
	layer   *Layer
	since   int64
	ready   int64
	known   map[string]identity
	opaque  map[string]bool // directories that hide the host's
	changes []Change
	entries int
	names   int // bytes of paths, and of links' targets
	buffers buffers
}

// pair is one directory in the layer and on the host; -1 where it is not one.
type pair struct {
	layer, host int
	rel         string
	opaque      bool // the host's entries do not show through
	depth       int
}

func (d *differ) count(path string) error {
	if d.entries++; d.entries > maxEntries {
		return errTooMany
	}
	if d.names += len(path); d.names > maxNames {
		return errLongNames
	}
	return nil
}

// dir compares two directories. With a copy a missing name is a deletion, as it
// is below an opaque directory of an overlay.
func (d *differ) dir(p pair) error {
	names, err := readNames(p.layer)
	if err != nil {
		return fmt.Errorf("read directory %q: %w", p.rel, err)
	}
	for _, name := range names {
		if err := d.name(p, name); err != nil {
			return err
		}
	}
	if p.host < 0 || !p.opaque && d.layer.Method == Overlay {
		return nil
	}
	there, err := readNames(p.host)
	if err != nil {
		return fmt.Errorf("read directory %q on the host: %w", p.rel, err)
	}
	for _, name := range there {
		if _, found := slices.BinarySearch(names, name); found {
			continue
		}
		if _, err := d.deleted(p, name, true); err != nil {
			return err
		}
	}
	return nil
}

func (d *differ) name(p pair, name string) error {
	rel := below(p.rel, name)
	if err := d.count(rel); err != nil {
		return err
	}
	ours, found, err := statAt(p.layer, name)
	if err != nil || !found {
		return ignoreGone(err)
	}
	theirs, there, err := statAt(p.host, name)
	if err != nil {
		return fmt.Errorf("look at %q on the host: %w", rel, err)
	}
	if d.layer.Method == Overlay {
		gone, err := whiteout(p.layer, name, ours)
		if err != nil || gone {
			if gone && there {
				_, err = d.deleted(p, name, false)
			}
			return err
		}
	}
	c, err := d.compare(p, name, ours, theirs, there)
	if err != nil {
		return fmt.Errorf("compare %q: %w", rel, err)
	}
	if d.names += len(c.Old.Target) + len(c.New.Target); d.names > maxNames {
		return errLongNames
	}
	lost := c.Kind == Added && d.lost(p.layer, name, ours)
	if c.Kind != "" && !lost {
		d.changes = append(d.changes, c)
	}
	if c.Held != "" {
		return nil
	}
	// What a directory on the host held goes with it.
	if there && typeOf(theirs) == Dir && typeOf(ours) != Dir {
		_, err := d.children(p, name)
		return err
	}
	if typeOf(ours) != Dir {
		return nil
	}
	before := len(d.changes)
	if err := d.descend(p, name, there && typeOf(theirs) == Dir); err != nil {
		return err
	}
	if lost && len(d.changes) > before {
		d.changes = append(d.changes, c) // it is needed again
	}
	return nil
}

// lost tells that an entry of a copy is as it was copied, so that it was the
// host that lost it.
func (d *differ) lost(dir int, name string, st unix.Stat_t) bool {
	if d.layer.Method != Copy {
		return false
	}
	if typeOf(st) == Dir {
		return born(dir, name) <= d.ready
	}
	return d.untouched(st)
}

// born gives the birth time of an entry in ns, 0 where the file system has none.
func born(dir int, name string) int64 {
	var x unix.Statx_t
	if unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) != nil || x.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
}

// descend compares what lies in a directory of the layer.
func (d *differ) descend(p pair, name string, both bool) error {
	rel := below(p.rel, name)
	fd, err := openBelow(p.layer, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open directory %q: %w", rel, err)
	}
	defer unix.Close(fd)
	next := pair{fd, -1, rel, p.opaque, p.depth + 1}
	if d.layer.Method == Overlay && opaque(fd) {
		next.opaque, d.opaque[rel] = true, true
	}
	if both {
		if next.host, err = openBelow(p.host, name, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			if errors.Is(err, unix.EXDEV) {
				return fmt.Errorf("directory %q on the host is a mount point: a layer does not reach below it", rel)
			}
			return fmt.Errorf("open directory %q on the host: %w", rel, err)
		}
		defer unix.Close(next.host)
	}
	return d.dir(next)
}

// deleted notes that a name of the host is gone, with everything in it. Where
// the deletion is only concluded from absence in a copy, what came to the host
// since the layer was made is the host's own, and stays.
func (d *differ) deleted(p pair, name string, absence bool) (stays bool, err error) {
	rel := below(p.rel, name)
	if err := d.count(rel); err != nil {
		return false, err
	}
	theirs, there, err := statAt(p.host, name)
	if err != nil || !there {
		return false, ignoreGone(err)
	}
	c := Change{Path: rel, Kind: Deleted, Conflict: d.foreign(rel, theirs)}
	if absence && d.layer.Method == Copy {
		if c.Conflict != "" || typeOf(theirs) == Dir && born(p.host, name) > d.since {
			return true, nil
		}
	}
	if c.Old, err = entryOf(p.host, name, theirs); err != nil {
		return false, err
	}
	if c.Old.Type == Dir {
		if stays, err = d.children(p, name); err != nil || stays {
			return stays, err
		}
	}
	d.changes = append(d.changes, c)
	return false, nil
}

// children notes that everything in a directory of the host is gone.
func (d *differ) children(p pair, name string) (stays bool, err error) {
	rel := below(p.rel, name)
	if p.depth >= maxDepth {
		return false, fmt.Errorf("directory %q on the host: deeper than %d levels", rel, maxDepth)
	}
	fd, err := openBelow(p.host, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, fmt.Errorf("open directory %q on the host: %w", rel, err)
	}
	defer unix.Close(fd)
	names, err := readNames(fd)
	if err != nil {
		return false, err
	}
	for _, n := range names {
		one, err := d.deleted(pair{-1, fd, rel, false, p.depth + 1}, n, true)
		if err != nil {
			return false, err
		}
		stays = stays || one
	}
	return stays, nil
}

// foreign says how the host's entry changed since the layer was made, unless a
// commit of ours did it. A directory's own times say nothing: its entries speak.
func (d *differ) foreign(rel string, st unix.Stat_t) string {
	if typeOf(st) == Dir || st.Ctim.Nano() <= d.since || d.known[rel] == identify(st) {
		return ""
	}
	return "changed on the host at " + time.Unix(0, st.Ctim.Nano()).Format(time.RFC3339)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// whiteout tells the two forms in which an overlay notes a deletion.
func whiteout(dir int, name string, st unix.Stat_t) (bool, error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return st.Rdev == 0, nil
	case unix.S_IFREG:
		if st.Size != 0 {
			return false, nil
		}
	default:
		return false, nil
	}
	h, err := hold(dir, name)
	if err != nil {
		return false, err
	}
	defer h.close()
	_, err = unix.Getxattr(h.path(), "user.overlay.whiteout", nil)
	return err == nil, nil
}

// opaque tells whether a directory of an upper hides what the host has there.
func opaque(fd int) bool {
	var b [8]byte
	n, err := unix.Fgetxattr(fd, "user.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func typeOf(st unix.Stat_t) Type {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	}
	return Special
}

func identify(st unix.Stat_t) identity {
	return identity{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

func entryOf(dir int, name string, st unix.Stat_t) (e Entry, err error) {
	e = Entry{Type: typeOf(st), Mode: st.Mode & 0o7777, Size: st.Size, id: identify(st)}
	if e.Type == Symlink {
		e.Target, err = readLink(dir, name)
	}
	if e.Type == Dir {
		e.Size = 0
	}
	return e, err
}

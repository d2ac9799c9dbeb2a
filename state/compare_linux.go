package state

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// compare gives the change of one entry of the layer that is no whiteout; one
// without a kind is no change.
func (d *differ) compare(p pair, name string, ours, theirs unix.Stat_t, there bool) (c Change, err error) {
	c.Path, c.links = below(p.rel, name), uint64(ours.Nlink)
	if c.New, err = entryOf(p.layer, name, ours); err != nil {
		return c, err
	}
	if there {
		if c.Old, err = entryOf(p.host, name, theirs); err != nil {
			return c, err
		}
	}
	if d.layer.Method == Copy && there && d.untouched(ours) && d.foreign(c.Path, theirs) != "" {
		return c, nil // the host's own change
	}
	if c.Held = held(p, name, c); c.Held != "" {
		if c.Kind = Added; there {
			c.Kind = Modified
		}
		return c, nil
	}
	switch {
	case !there && d.layer.Method == Copy && c.New.Type != Dir && d.untouched(ours):
		return c, nil // deleted on the host
	case !there:
		c.Kind = Added
	default:
		if c.Aspects, err = d.aspects(p, name, c); err != nil {
			return c, err
		}
		if len(c.Aspects) > 0 {
			c.Kind, c.Conflict = Modified, d.foreign(c.Path, theirs)
		}
	}
	if c.Kind == "" {
		return c, nil
	}
	c.Leads = c.New.Type == Symlink && leadsOut(c.Path, c.New.Target, d.layer.Target)
	return c, d.attributes(p, name, &c)
}

// untouched tells that an entry of a copy is as it was copied.
func (d *differ) untouched(st unix.Stat_t) bool {
	return st.Ctim.Nano() <= d.ready && typeOf(st) != Dir
}

// held says why an entry can never be committed.
func held(p pair, name string, c Change) string {
	switch {
	case c.New.Type == Special:
		return "it is a device, a pipe or a socket"
	case c.Old.Type == Special:
		return "the host has a special file there"
	case len(c.Path) > maxPath:
		return "its path is too long"
	case c.New.Type == Dir && p.depth >= maxDepth:
		return "it lies too deep"
	case c.New.Type == Symlink:
		return ""
	}
	// One may own a file and still not be able to read it. What cannot be reviewed
	// is not committed.
	if need := readable(c.New.Type); c.New.Mode&need != need && !canRead(p.layer, name, c.New.Type) {
		return "it cannot be read"
	}
	return ""
}

// readable are the mode bits that an owner needs to look at an entry.
func readable(t Type) uint32 {
	if t == Dir {
		return 0o500
	}
	return 0o400
}

func canRead(dir int, name string, t Type) bool {
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return t != Dir || unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) == nil
}

// aspects says in what two entries differ. The host's setuid and setgid bits
// are its own.
func (d *differ) aspects(p pair, name string, c Change) (what []string, err error) {
	if c.Old.Type != c.New.Type {
		return []string{"type"}, nil
	}
	switch c.New.Type {
	case Symlink:
		if c.Old.Target != c.New.Target {
			what = append(what, "target")
		}
		return what, nil
	case File:
		same, err := d.sameContent(p, name, c)
		if err != nil {
			return nil, err
		}
		if !same {
			what = append(what, "content")
		}
	}
	if plainMode(c.Old) != plainMode(c.New) {
		what = append(what, "mode")
	}
	return what, nil
}

// plainMode is the mode that a commit gives.
func plainMode(e Entry) uint32 {
	if e.Type == Dir {
		return e.Mode & 0o1777
	}
	return e.Mode & 0o777
}

func (d *differ) sameContent(p pair, name string, c Change) (bool, error) {
	if c.Old.Size != c.New.Size {
		return false, nil
	}
	if c.New.Size == 0 || c.Old.id.Dev == c.New.id.Dev && c.Old.id.Ino == c.New.id.Ino {
		return true, nil
	}
	a, err := openFile(p.layer, name, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := openFile(p.host, name, unix.O_RDONLY)
	if err != nil {
		if errors.Is(err, unix.EACCES) {
			return false, nil
		}
		return false, err
	}
	defer b.Close()
	return d.buffers.same(a, b)
}

// buffers are used again for each pair of files.
type buffers struct{ a, b []byte }

// same tells whether two files have the same content.
func (b *buffers) same(x, y *os.File) (bool, error) {
	if b.a == nil {
		b.a, b.b = make([]byte, 64<<10), make([]byte, 64<<10)
	}
	for {
		n, errX := io.ReadFull(x, b.a)
		m, errY := io.ReadFull(y, b.b)
		if n != m || !bytes.Equal(b.a[:n], b.b[:m]) {
			return false, nil
		}
		if ended(errX) || ended(errY) {
			return ended(errX) && ended(errY), nil
		}
		if errX != nil || errY != nil {
			return false, errors.Join(errX, errY)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// attributes notes what of an entry is not carried over.
func (d *differ) attributes(p pair, name string, c *Change) error {
	if c.New.Type == Symlink {
		return nil
	}
	if c.New.Type == File && c.New.Mode&unix.S_ISUID != 0 {
		c.Dropped = append(c.Dropped, "setuid")
	}
	if c.New.Mode&unix.S_ISGID != 0 && (c.New.Type == File || c.Old.Mode&unix.S_ISGID == 0) {
		c.Dropped = append(c.Dropped, "setgid")
	}
	h, err := hold(p.layer, name)
	if err != nil {
		return err
	}
	defer h.close()
	names, err := xattrs(h.path())
	if err != nil {
		return err
	}
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "system.posix_acl_"):
			if !slices.Contains(c.Dropped, "acl") {
				c.Dropped = append(c.Dropped, "acl")
			}
		case n == "security.capability":
			c.Dropped = append(c.Dropped, "capability")
		}
	}
	return nil
}

// leadsOut tells whether a symbolic link points out of the tree. After the
// leading ".." parts no other is believed: "a/.." is elsewhere when a is a link.
func leadsOut(rel, target, tree string) bool {
	if strings.HasPrefix(target, "/") {
		rest, ok := strings.CutPrefix(target, tree)
		if !ok || rest != "" && rest[0] != '/' {
			return true
		}
		rel, target = "x", strings.TrimLeft(rest, "/")
	}
	depth := strings.Count(rel, "/")
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return true
			}
		default:
			down = true
		}
	}
	return false
}

package state

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// committer carries out the steps of a journal. It may be run again at any time.
type committer struct {
	layer   *Layer
	journal journal
	force   bool
	host    parents
	data    parents
	// written are temporary files that wait for their names.
	written []int
	bytes   int64
	buffers buffers
}

// Bounds of what is written before it is made durable and given its names.
const (
	batchFiles = 1024
	batchBytes = 64 << 20
)

func (c *committer) run() (err error) {
	defer func() {
		if err != nil {
			c.abandon()
		}
	}()
	for i := range c.journal.Steps {
		s := c.journal.Steps[i]
		if s.Do != stepFile || s.Late {
			if err := c.deliver(); err != nil {
				return err
			}
		}
		if err := c.step(i, s); err != nil {
			return fmt.Errorf("%s %q: %w", s.Do, s.Path, err)
		}
	}
	return c.deliver()
}

func (c *committer) step(i int, s step) error {
	if s.Do == stepMode || s.Do == stepOpen {
		return c.mode(s)
	}
	dir, name, err := c.host.of(string(s.Path))
	if err != nil {
		if (s.Do == stepRemove || s.Do == stepRmdir) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
			return nil // it went with its directory, and another entry may be there by now
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		if err := c.parent(string(s.Path)); err != nil {
			return err
		}
		if dir, name, err = c.host.of(string(s.Path)); err != nil {
			return err
		}
	}
	st, there, err := statAt(dir, name)
	if err != nil {
		return err
	}
	switch s.Do {
	case stepMkdir:
		return c.mkdir(s, dir, name, st, there)
	case stepRemove:
		return c.remove(s, dir, name, st, there)
	case stepRmdir:
		return rmdir(dir, name, st, there)
	case stepLink:
		return c.link(i, s, dir, name, st, there)
	case stepFile:
		return c.file(i, s, dir, name, st, there)
	}
	return fmt.Errorf("unknown step %q", s.Do)
}

// parent makes the directories of a path that the host has lost since they were
// compared, with the layer's modes.
func (c *committer) parent(path string) error {
	dir, _ := split(path)
	if dir == "" {
		return nil
	}
	if err := c.parent(dir); err != nil {
		return err
	}
	at, name, err := c.host.of(dir)
	if err != nil {
		return err
	}
	mode := uint32(0o755)
	if from, source, err := c.data.of(dir); err == nil {
		if st, there, err := statAt(from, source); err == nil && there && typeOf(st) == Dir {
			mode = st.Mode&0o777 | 0o700
		}
	}
	if err := unix.Mkdirat(at, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

// errForeign means that somebody else changed the host's entry.
var errForeign = errors.New("the host's entry changed meanwhile")

// expect refuses an entry of the host that is not the one that was reviewed.
func (c *committer) expect(s step, st unix.Stat_t, there bool) error {
	if c.force || !there && s.Old == (identity{}) || there && sameObject(identify(st), s.Old) {
		return nil
	}
	if !there {
		return nil // deleted meanwhile: nothing of anybody's is lost
	}
	return errForeign
}

// sameObject leaves the change time out: a removed hard link sets it.
func sameObject(a, b identity) bool { a.Ctime, b.Ctime = 0, 0; return a == b }

func (c *committer) mode(s step) error {
	fd, err := openBelow(c.host.root, string(s.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.EACCES) {
		return c.modeUnread(s)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // the host lost the directory
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Fchmod(fd, newMode(s, st))
}

// modeUnread is for a directory that its owner may not read.
func (c *committer) modeUnread(s step) error {
	h, err := hold(c.host.root, string(s.Path))
	if err != nil {
		return err
	}
	defer h.close()
	var st unix.Stat_t
	if err := unix.Fstat(int(h), &st); err != nil {
		return err
	}
	if typeOf(st) != Dir {
		return unix.ENOTDIR
	}
	return unix.Chmod(h.path(), newMode(s, st))
}

// newMode keeps the setuid and setgid bits of the host's directory.
func newMode(s step, st unix.Stat_t) uint32 {
	if s.Do == stepOpen {
		return st.Mode&0o7777 | 0o700
	}
	return st.Mode&0o6000 | s.Mode
}

func (c *committer) mkdir(s step, dir int, name string, st unix.Stat_t, there bool) error {
	if there && typeOf(st) == Dir {
		return nil
	}
	if there {
		if err := c.expect(s, st, there); err != nil {
			return err
		}
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
	}
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return err
	}
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Fchmod(fd, st.Mode&0o6000|s.Mode|0o700)
}

func (c *committer) remove(s step, dir int, name string, st unix.Stat_t, there bool) error {
	if !there || typeOf(st) == Dir {
		return nil
	}
	if err := c.expect(s, st, there); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, 0)
}

func rmdir(dir int, name string, st unix.Stat_t, there bool) error {
	if !there || typeOf(st) != Dir {
		return nil
	}
	err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("somebody put files there meanwhile: %w", err)
	}
	return err
}

func (c *committer) link(i int, s step, dir int, name string, st unix.Stat_t, there bool) error {
	if there && typeOf(st) == Symlink {
		if target, err := readLink(dir, name); err == nil && target == string(s.Target) {
			return nil
		}
	}
	if err := c.expect(s, st, there); err != nil {
		return err
	}
	temp := c.journal.temp(i)
	if err := dropTemp(dir, temp); err != nil {
		return err
	}
	if err := unix.Symlinkat(string(s.Target), dir, temp); err != nil {
		return err
	}
	return place(dir, temp, name)
}

// place gives a finished temporary file its name, and leaves none behind.
func place(dir int, temp, name string) error {
	err := unix.Renameat(dir, temp, dir, name)
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
	}
	return err
}

func dropTemp(dir int, temp string) error {
	if err := unix.Unlinkat(dir, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// abandon removes temporary files that got no name.
func (c *committer) abandon() {
	for _, i := range c.written {
		if dir, _, err := c.host.of(string(c.journal.Steps[i].Path)); err == nil {
			_ = dropTemp(dir, c.journal.temp(i))
		}
	}
}

// deliver makes what was written durable, and gives it its names.
func (c *committer) deliver() error {
	if len(c.written) == 0 {
		return nil
	}
	if err := syncFS(c.layer.host); err != nil {
		return err
	}
	for _, i := range c.written {
		s := c.journal.Steps[i]
		dir, name, err := c.host.of(string(s.Path))
		if err != nil {
			return err
		}
		if err := place(dir, c.journal.temp(i), name); err != nil {
			return fmt.Errorf("rename to %q: %w", s.Path, err)
		}
	}
	c.written, c.bytes = nil, 0
	return nil
}

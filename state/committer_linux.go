package state

import (
	"errors"
	"fmt"
	"os"
	"strings"

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
		return err
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

// file puts a regular file in its place: by moving the layer's own, else by a copy.
func (c *committer) file(i int, s step, dir int, name string, st unix.Stat_t, there bool) error {
	from, source, err := c.data.of(string(s.Path))
	if err != nil && !gone(err) {
		return err
	}
	var ours unix.Stat_t
	found := false
	if err == nil {
		if ours, found, err = statAt(from, source); err != nil {
			return err
		}
	}
	if !found {
		// Nobody but the commit takes files out of a layer that is locked.
		return nil
	}
	if !sameObject(identify(ours), s.New) {
		return errors.New("the layer's file is another than the one reviewed")
	}
	if done, err := c.done(s, dir, name, st, there); err != nil || done {
		return errors.Join(err, dropTemp(dir, c.journal.temp(i)))
	}
	if err := c.expect(s, st, there); err != nil {
		return errors.Join(err, dropTemp(dir, c.journal.temp(i)))
	}
	if s.Move {
		err := c.move(s, from, source, dir, name)
		// Another file system, or a directory of the layer that may not be written.
		if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EACCES) {
			return err
		}
	}
	if err := c.copy(i, s, from, source, dir); err != nil {
		return errors.Join(err, dropTemp(dir, c.journal.temp(i)))
	}
	c.written = append(c.written, i)
	if c.bytes += s.New.Size; len(c.written) >= batchFiles || c.bytes >= batchBytes || s.Late {
		return c.deliver()
	}
	return nil
}

func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// done tells that a copy was made already: by an earlier attempt.
func (c *committer) done(s step, dir int, name string, st unix.Stat_t, there bool) (bool, error) {
	if !there || typeOf(st) != File || st.Size != s.New.Size || st.Mtim.Nano() != s.New.Mtime || st.Mode&0o7777 != s.Mode || sameObject(identify(st), s.Old) {
		return false, nil
	}
	a, err := openFile(c.data.root, string(s.Path), unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer b.Close()
	return c.buffers.same(a, b)
}

// move lets the layer's file become the host's. What must not come along is taken
// off it first.
func (c *committer) move(s step, from int, source string, dir int, name string) error {
	h, err := hold(from, source)
	if err != nil {
		return err
	}
	defer h.close()
	var st unix.Stat_t
	if err := unix.Fstat(int(h), &st); err != nil {
		return err
	}
	if typeOf(st) != File || !sameObject(identify(st), s.New) {
		return errors.New("the layer's file is another than the one reviewed")
	}
	mode, err := strip(h, st.Mode&0o7777)
	if err != nil {
		return err
	}
	if mode != s.Mode {
		if err := unix.Chmod(h.path(), s.Mode); err != nil {
			return err
		}
	}
	return retry(func() error { return unix.Renameat(from, source, dir, name) })
}

// strip removes the attributes that mean something only in the layer, and those
// that give rights. It gives the mode that the file has then: only who may write
// a file may remove its attributes.
func strip(h handle, mode uint32) (uint32, error) {
	names, err := xattrs(h.path())
	if err != nil {
		return mode, err
	}
	for _, n := range names {
		if carried(n) || n == "security.selinux" {
			continue
		}
		if mode&0o200 == 0 {
			mode |= 0o200
			if err := unix.Chmod(h.path(), mode); err != nil {
				return mode, err
			}
		}
		if err := unix.Removexattr(h.path(), n); err != nil && !errors.Is(err, unix.ENODATA) {
			return mode, fmt.Errorf("remove attribute %q: %w", n, err)
		}
	}
	return mode, nil
}

// carried tells whether an attribute goes with a file.
func carried(name string) bool {
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.")
}

// copy writes the layer's file beside its place.
func (c *committer) copy(i int, s step, from int, source string, dir int) error {
	in, err := openFile(from, source, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	temp := c.journal.temp(i)
	if err := dropTemp(dir, temp); err != nil {
		return err
	}
	fd, err := openBelow(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), temp)
	err = copyContent(out, in, s.New.Size)
	if err == nil {
		err = copyXattrs(fd, int(in.Fd()), carried)
	}
	if err == nil {
		err = unix.Fchmod(fd, s.Mode)
	}
	if err == nil {
		err = setMtime(out, s.New.Mtime)
	}
	return errors.Join(err, out.Close())
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

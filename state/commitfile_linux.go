package state

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

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

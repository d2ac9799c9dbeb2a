package state

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DiscardAll drops everything that a layer holds, in one step: a kill leaves
// either all of it or nothing. The caller holds the lock.
func (l *Layer) DiscardAll() error {
	if l.Unfinished() {
		return ErrUnfinished
	}
	dir := int(l.dir.Fd())
	if err := sweep(l.dir, trashPrefix); err != nil {
		return err
	}
	if l.Method == Copy {
		return l.dropCopy(dir)
	}
	fresh := trashPrefix + "upper"
	if err := unix.Mkdirat(dir, fresh, 0o700); err != nil {
		return err
	}
	fd, err := openBelow(dir, fresh, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(l.data.Fd()), &st); err == nil {
		err = unix.Fchmod(fd, st.Mode&0o7777)
	}
	f := os.NewFile(uintptr(fd), upperName)
	if err == nil {
		err = unix.Renameat2(dir, fresh, dir, upperName, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_ = l.data.Close()
	l.data = f
	return errors.Join(unix.Fsync(dir), l.Refresh(), sweep(l.dir, trashPrefix))
}

// dropCopy makes the layer unreadable before it is removed: the next run copies
// the tree anew.
func (l *Layer) dropCopy(dir int) error {
	if err := unix.Unlinkat(dir, metaName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Fsync(dir); err != nil {
		return err
	}
	return removeTree(dir, treeName)
}

// Discard drops the changes at and below paths. What goes together cannot be
// taken apart: below a directory that was deleted or replaced as a whole, only
// the whole. It can be repeated when it was killed. The caller holds the lock.
func (l *Layer) Discard(changes []Change, paths []string) ([]Change, error) {
	if l.Unfinished() {
		return nil, ErrUnfinished
	}
	if err := sweep(l.dir, trashPrefix); err != nil {
		return nil, err
	}
	chosen, err := Select(changes, paths)
	if err != nil {
		return nil, err
	}
	d := discarder{layer: l, data: parents{root: int(l.data.Fd())}}
	defer d.data.close()
	if l.Method == Copy {
		err = d.fromCopy(chosen)
	} else {
		err = d.fromUpper(changes, chosen, paths)
	}
	return chosen, errors.Join(err, syncFS(l.data), sweep(l.dir, trashPrefix))
}

type discarder struct {
	layer *Layer
	data  parents
	count int
}

// fromUpper takes changes out of an upper directory.
func (d *discarder) fromUpper(changes, chosen []Change, paths []string) error {
	if err := d.apart(changes, chosen, paths); err != nil {
		return err
	}
	for dir := range d.layer.opaque {
		if under(dir, paths) {
			if err := d.trash(dir); err != nil {
				return fmt.Errorf("discard %q: %w", dir, err)
			}
		}
	}
	for _, c := range chosen {
		do := d.trash
		if c.Kind == Modified && c.New.Type == Dir && c.Old.Type == Dir {
			do = func(path string) error { return d.chmod(path, c.Old.Mode) }
		}
		if err := do(c.Path); err != nil {
			return fmt.Errorf("discard %q: %w", c.Path, err)
		}
	}
	return nil
}

// apart refuses paths within what an overlay keeps as one.
func (d *discarder) apart(changes, chosen []Change, paths []string) error {
	whole := map[string]bool{}
	for _, c := range changes {
		if c.Old.Type == Dir && c.New.Type != Dir {
			whole[c.Path] = true
		}
	}
	for dir := range d.layer.opaque {
		whole[dir] = true
	}
	for _, c := range chosen {
		if c.Kind == Added {
			continue
		}
		for dir, _ := split(c.Path); dir != ""; dir, _ = split(dir) {
			if whole[dir] && !under(dir, paths) {
				return fmt.Errorf("%q was deleted or replaced as a whole, with %q: discard %q", dir, c.Path, dir)
			}
		}
	}
	return nil
}

// trash takes an entry out of the layer, in one step.
func (d *discarder) trash(path string) error {
	dir, name, err := d.data.of(path)
	if err != nil {
		return ignoreNoPath(err) // it went with its directory
	}
	st, there, err := statAt(dir, name)
	if err != nil || !there {
		return err
	}
	// A directory cannot be moved by whom it forbids to write.
	if typeOf(st) == Dir && st.Mode&0o200 == 0 {
		if err := d.chmod(path, st.Mode|0o700); err != nil {
			return err
		}
	}
	d.count++
	d.data.close()
	if dir, name, err = d.data.of(path); err != nil {
		return err
	}
	return unix.Renameat(dir, name, int(d.layer.dir.Fd()), fmt.Sprintf("%s%d", trashPrefix, d.count))
}

func ignoreNoPath(err error) error {
	if gone(err) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

func (d *discarder) chmod(path string, mode uint32) error {
	h, err := hold(d.data.root, path)
	if err != nil {
		return err
	}
	defer h.close()
	return unix.Chmod(h.path(), mode&0o7777)
}

// fromCopy makes entries of a copy what the host has.
func (d *discarder) fromCopy(chosen []Change) error {
	for _, c := range chosen {
		if err := d.again(c); err != nil {
			return fmt.Errorf("discard %q: %w", c.Path, err)
		}
	}
	return nil
}

func (d *discarder) again(c Change) error {
	if c.Old.Type == Dir && c.New.Type == Dir {
		return d.chmod(c.Path, c.Old.Mode)
	}
	if c.Old.Type == Absent || c.Old.Type == Dir || c.New.Type == Dir {
		if err := d.trash(c.Path); err != nil {
			return err
		}
	}
	dir, name, err := d.data.of(c.Path)
	if err != nil {
		return err
	}
	temp := trashPrefix + "new"
	switch c.Old.Type {
	case Dir:
		return unix.Mkdirat(dir, name, c.Old.Mode&0o7777|0o700)
	case Symlink:
		if err := unix.Symlinkat(c.Old.Target, int(d.layer.dir.Fd()), temp); err != nil {
			return err
		}
	case File:
		if err := d.copyHost(c, temp); err != nil {
			return err
		}
	default:
		return nil
	}
	return unix.Renameat(int(d.layer.dir.Fd()), temp, dir, name)
}

func (d *discarder) copyHost(c Change, temp string) error {
	host := parents{root: int(d.layer.host.Fd())}
	defer host.close()
	dir, name, err := host.of(c.Path)
	if err != nil {
		return err
	}
	in, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := openBelow(int(d.layer.dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), temp)
	err = errors.Join(copyContent(out, in, c.Old.Size), unix.Fchmod(fd, c.Old.Mode&0o777), setMtime(out, c.Old.id.Mtime))
	return errors.Join(err, out.Close())
}

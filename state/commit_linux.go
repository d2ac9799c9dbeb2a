package state

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnfinished means that an earlier commit was broken off.
var ErrUnfinished = errors.New("an earlier commit was broken off")

// Commit carries out a plan. When it returns an error, or is killed, Repair
// finishes it: each entry of the host is the old or the new one, and what was
// not committed is still in the layer. The caller holds the lock.
func (l *Layer) Commit(p Plan) error {
	if p.Refused() {
		return errors.New("BUG: a refused plan is carried out, please report it")
	}
	if l.Unfinished() {
		return ErrUnfinished
	}
	if len(p.Chosen) == 0 {
		return l.tidy(p)
	}
	j := l.journal(p)
	if err := l.openParents(&j); err != nil {
		return err
	}
	phases(j.Steps)
	// What the layer holds must not be lost after the host has the names.
	if err := syncFS(l.data); err != nil {
		return err
	}
	if err := l.writeJournal(j); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return l.finish(j, false)
}

// tidy removes what an overlay copied up and nobody changed.
func (l *Layer) tidy(p Plan) error {
	if l.Method != Overlay {
		return nil
	}
	var j journal
	j.keep(p.rest)
	return l.prune(j)
}

// Repair finishes a commit that was broken off. Force overwrites what changed on
// the host since.
func (l *Layer) Repair(force bool) error {
	j, err := l.readJournal()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.finish(j, force)
}

func (l *Layer) finish(j journal, force bool) error {
	c := committer{layer: l, journal: j, force: force, host: parents{root: int(l.host.Fd())}, data: parents{root: int(l.data.Fd())}}
	defer c.host.close()
	defer c.data.close()
	if err := c.run(); err != nil {
		return err
	}
	if err := syncFS(l.host); err != nil {
		return err
	}
	if err := l.noteKnown(j); err != nil {
		return err
	}
	if l.Method == Overlay {
		if err := l.prune(j); err != nil {
			return err
		}
		if err := syncFS(l.data); err != nil {
			return err
		}
	}
	return l.dropJournal()
}

// openParents lets steps write in directories of the host whose owner may not,
// and gives those their modes back at the end.
func (l *Layer) openParents(j *journal) error {
	final := map[string]bool{}
	for _, s := range j.Steps {
		if s.Do == stepMode || s.Do == stepMkdir {
			final[string(s.Path)] = true
		}
	}
	seen, steps := map[string]bool{}, j.Steps
	for _, s := range steps {
		dir, _ := split(string(s.Path))
		if seen[dir] {
			continue
		}
		seen[dir] = true
		st, there, err := l.lookHost(dir)
		if err != nil {
			return err
		}
		if !there || typeOf(st) != Dir || st.Mode&0o300 == 0o300 {
			continue
		}
		j.Steps = append(j.Steps, step{Do: stepOpen, Path: []byte(dir)})
		if !final[dir] {
			j.Steps = append(j.Steps, step{Do: stepMode, Path: []byte(dir), Mode: st.Mode & 0o1777})
		}
	}
	return nil
}

func (l *Layer) lookHost(rel string) (st unix.Stat_t, there bool, err error) {
	fd, err := openBelow(int(l.host.Fd()), rel, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return st, false, nil
	}
	if err != nil {
		return st, false, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	defer unix.Close(fd)
	return st, true, unix.Fstat(fd, &st)
}

// syncFS makes durable what was written to a file's file system.
func syncFS(f *os.File) error {
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync the file system of %q: %w", f.Name(), err)
	}
	return nil
}

// pruner removes from an upper what the host has by now: everything but the
// entries to keep and the directories they lie in.
type pruner struct{ stay, keep, held map[string]bool }

func (l *Layer) prune(j journal) error {
	p := pruner{retained(j.Keep), set(j.Keep), set(j.Held)}
	_, err := p.dir(int(l.data.Fd()), "")
	return err
}

func set(paths [][]byte) map[string]bool {
	all := map[string]bool{}
	for _, p := range paths {
		all[string(p)] = true
	}
	return all
}

// dir reports whether the directory is empty afterwards.
func (p pruner) dir(fd int, rel string) (empty bool, err error) {
	names, err := readNames(fd)
	if err != nil {
		return false, err
	}
	empty = true
	for _, name := range names {
		gone, err := p.entry(fd, name, below(rel, name))
		if err != nil {
			return false, fmt.Errorf("remove %q from the layer: %w", below(rel, name), err)
		}
		empty = empty && gone
	}
	return empty, nil
}

func (p pruner) entry(fd int, name, path string) (gone bool, err error) {
	st, there, err := statAt(fd, name)
	switch {
	case err != nil || !there:
		return true, err
	case p.held[path]:
		return false, nil
	case typeOf(st) == Dir:
		return p.subdir(fd, name, path)
	case p.keep[path]:
		return false, nil
	}
	return true, unix.Unlinkat(fd, name, 0)
}

func (p pruner) subdir(fd int, name, path string) (gone bool, err error) {
	child, mode, err := openToChange(fd, name)
	if err != nil {
		return false, err
	}
	defer unix.Close(child)
	empty := false
	if !p.stay[path] || !opaque(child) {
		if empty, err = p.dir(child, path); err != nil {
			return false, err
		}
	}
	if !empty || p.stay[path] {
		return false, unix.Fchmod(child, mode)
	}
	return true, unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
}

// openToChange opens a directory of a layer whose entries are to be removed, lets
// its owner do that, and gives the mode it had.
func openToChange(dir int, name string) (fd int, mode uint32, err error) {
	if fd, err = openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&0o300 != 0o300 {
		err = unix.Fchmod(fd, st.Mode&0o7777|0o700)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Mode & 0o7777, nil
}

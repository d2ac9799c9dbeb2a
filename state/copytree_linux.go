package state

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// treeCopier copies a layer's content with everything that means something to
// an overlay: whiteouts, opaque marks, hard links, modes, times.
type treeCopier struct {
	files chan copyJob
	group sync.WaitGroup
	tally tally

	mu     sync.Mutex
	err    error
	linked map[inode]string // the first name of files with several
	links  []linkJob
	dirs   []dirTimes
}

type inode struct{ dev, ino uint64 }

type linkJob struct{ from, to string }

type dirTimes struct {
	rel   string
	mode  uint32
	mtime int64
}

type copyJob struct {
	from, to int // directories of this job's own
	name     string
	st       unix.Stat_t
}

// copyTree copies what lies in one directory into another, empty one. Files are
// copied by several goroutines, which end with the call.
func copyTree(from, to *os.File) (tally, error) {
	c := treeCopier{files: make(chan copyJob, 64), linked: map[inode]string{}}
	for range max(2, runtime.NumCPU()) {
		c.group.Go(c.work)
	}
	err := c.dir(int(from.Fd()), int(to.Fd()), "", 0)
	close(c.files)
	c.group.Wait()
	err = errors.Join(err, c.err)
	if err == nil {
		err = c.end(int(to.Fd()))
	}
	if err == nil {
		err = copyXattrs(int(to.Fd()), int(from.Fd()), keptInLayer)
	}
	return c.tally, err
}

// tally is what a copy holds.
type tally struct {
	files int
	bytes int64
}

func (c *treeCopier) work() {
	for j := range c.files {
		if err := j.do(); err != nil {
			c.mu.Lock()
			c.err = errors.Join(c.err, fmt.Errorf("copy %q: %w", j.name, err))
			c.mu.Unlock()
		}
		_, _ = unix.Close(j.from), unix.Close(j.to)
	}
}

func (c *treeCopier) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

func (c *treeCopier) dir(from, to int, rel string, depth int) error {
	names, err := readNames(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if c.tally.files++; c.tally.files > maxEntries {
			return errTooMany
		}
		if c.failed() {
			return nil
		}
		st, there, err := statAt(from, name)
		if err == nil && there {
			err = c.entry(from, to, name, rel, st, depth)
		}
		if err != nil {
			return fmt.Errorf("copy %q: %w", below(rel, name), err)
		}
	}
	return nil
}

func (c *treeCopier) entry(from, to int, name, rel string, st unix.Stat_t, depth int) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return c.subdir(from, to, name, below(rel, name), st, depth)
	case unix.S_IFREG:
		return c.file(from, to, name, below(rel, name), st)
	case unix.S_IFLNK:
		target, err := readLink(from, name)
		if err == nil {
			err = unix.Symlinkat(target, to, name)
		}
		return err
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return errors.New("it is a device")
		}
	}
	// A whiteout, a pipe or a socket: an ordinary user may make those.
	return unix.Mknodat(to, name, st.Mode, 0)
}

func (c *treeCopier) subdir(from, to int, name, rel string, st unix.Stat_t, depth int) error {
	if depth >= 4*maxDepth {
		return errors.New("it lies too deep")
	}
	fd, err := openAnyway(from, name, st, unix.O_RDONLY|unix.O_DIRECTORY, 0o500)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	there, err := openBelow(to, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(there)
	c.dirs = append(c.dirs, dirTimes{rel, st.Mode & 0o7777, st.Mtim.Nano()})
	if err := c.dir(fd, there, rel, depth+1); err != nil {
		return err
	}
	if st.Mode&0o500 != 0o500 {
		if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return copyXattrs(there, fd, keptInLayer)
}

func (c *treeCopier) file(from, to int, name, rel string, st unix.Stat_t) error {
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first, seen := c.linked[key]; seen {
			c.links = append(c.links, linkJob{first, rel})
			return nil
		}
		c.linked[key] = rel
	}
	c.tally.bytes += st.Size
	a, err := unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	b, err := unix.FcntlInt(uintptr(to), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(a)
		return err
	}
	c.files <- copyJob{a, b, name, st}
	return nil
}

func (j copyJob) do() error {
	fd, err := openAnyway(j.from, j.name, j.st, unix.O_RDONLY|unix.O_NONBLOCK, 0o400)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(fd), j.name)
	defer in.Close()
	if fd, err = openBelow(j.to, j.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), j.name)
	err = errors.Join(copyContent(out, in, j.st.Size), copyXattrs(fd, int(in.Fd()), keptInLayer), unix.Fchmod(fd, j.st.Mode&0o7777), setMtime(out, j.st.Mtim.Nano()))
	if j.st.Mode&0o400 == 0 {
		err = errors.Join(err, unix.Fchmod(int(in.Fd()), j.st.Mode&0o7777))
	}
	return errors.Join(err, out.Close())
}

// end makes the further names of files, and gives directories the modes and
// times that their contents would have changed.
func (c *treeCopier) end(to int) error {
	a, b := parents{root: to}, parents{root: to}
	defer a.close()
	defer b.close()
	for _, l := range c.links {
		from, source, err := a.of(l.from)
		if err != nil {
			return err
		}
		dir, name, err := b.of(l.to)
		if err != nil {
			return err
		}
		if err := unix.Linkat(from, source, dir, name, 0); err != nil {
			return err
		}
	}
	for i := len(c.dirs) - 1; i >= 0; i-- {
		d := c.dirs[i]
		fd, err := openBelow(to, d.rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), d.rel)
		err = errors.Join(setMtime(f, d.mtime), unix.Fchmod(fd, d.mode), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// openAnyway opens what belongs to the user although its mode forbids it: it
// widens the mode, which the caller gives back. A kill in between leaves it wider,
// in the layer.
func openAnyway(dir int, name string, st unix.Stat_t, flags int, need uint32) (int, error) {
	fd, err := openBelow(dir, name, flags, 0)
	if !errors.Is(err, unix.EACCES) || st.Mode&need == need {
		return fd, err
	}
	h, err := hold(dir, name)
	if err != nil {
		return -1, err
	}
	defer h.close()
	if err := unix.Chmod(h.path(), st.Mode&0o7777|need); err != nil {
		return -1, err
	}
	return openBelow(dir, name, flags, 0)
}

// keptInLayer tells whether an attribute is part of a layer's content.
func keptInLayer(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_")
}

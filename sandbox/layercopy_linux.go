package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// byCopy makes a full copy of the tree where no overlay can be had.
func (j layerJob) byCopy(d LayerDir, why string) error {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	dir, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := removeTree(filepath.Join(d.Path, "tree")); err != nil {
		return fmt.Errorf("remove an unfinished copy: %w", err)
	}
	if err := unix.Mkdirat(dir, "tree", 0o700); err != nil {
		return fmt.Errorf("make the copy's directory: %w", err)
	}
	to, err := openDirAt(dir, "tree")
	if err != nil {
		return err
	}
	defer unix.Close(to)
	c := copier{cow: j.m.cow, say: j.m.say, target: j.e.Target, hidden: map[string]bool{}, links: map[inode]string{}, said: time.Now()}
	for _, e := range j.m.masks {
		c.hidden[e.Target] = true
	}
	if err := c.root(j.lower, to); err != nil {
		return fmt.Errorf("copy %q into its layer: %w", j.e.Source, err)
	}
	if c.left > 0 {
		why += fmt.Sprintf("; %d sockets, pipes and devices were left out of the copy", c.left)
	}
	ready, err := tick(d.Path)
	if err != nil {
		return err
	}
	return j.bindCopy(d, why, ready)
}

// tick gives the time of the file system and waits until it has moved on, so
// that whatever is changed later has a later ctime than everything copied.
func tick(dir string) (int64, error) {
	path := filepath.Join(dir, ".tick")
	defer func() { _ = os.Remove(path) }()
	var first int64
	for range 1000 {
		_ = os.Remove(path)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return 0, err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return 0, err
		}
		now := st.Ctim.Nano()
		if first == 0 {
			first = now
		}
		if now > first {
			return first, nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, errors.New("the clock of the file system stands still")
}

// bindCopy shows the copy in the tree's place.
func (j layerJob) bindCopy(d LayerDir, why string, ready int64) error {
	dir, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	tree, err := openDirAt(dir, "tree")
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	if err := attach(tree, j.dst, j.e.flags()); err != nil {
		unix.Close(tree)
		return err
	}
	j.m.done(layerNews{Id: j.e.Layer, Target: j.e.Target, Method: MethodCopy, Why: why, Ready: ready}, tree)
	return nil
}

type inode struct{ dev, ino uint64 }

// copier copies one tree on descriptors. It follows no symlink, and a file that
// vanishes while it works is one that was not there.
type copier struct {
	cow    Cow
	say    func(string)
	target string
	hidden map[string]bool
	links  map[inode]string // where a file with several names was copied to, below the tree
	to     int              // the copy's top
	said   time.Time
	files  int
	bytes  int64
	left   int
	blank  bool // below a hidden directory: names, and no content
}

func (c *copier) root(from, to int) error {
	c.to = to
	in, err := unix.Openat(from, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		unix.Close(in)
		return err
	}
	if err := c.entries(in, to, ""); err != nil {
		return err
	}
	return finish(to, st)
}

// entries copies what is in a directory, and closes in.
func (c *copier) entries(in, out int, rel string) error {
	dir := os.NewFile(uintptr(in), rel)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			err := c.entry(in, out, name, filepath.Join(rel, name))
			if err != nil && err != unix.ENOENT {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			return nil
		}
	}
}

func (c *copier) entry(in, out int, name, rel string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(in, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := c.count(st); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR:
		return c.directory(in, out, name, rel, st)
	case kind == unix.S_IFLNK:
		return copySymlink(in, out, name, st)
	case kind == unix.S_IFREG && (c.blank || c.hidden[filepath.Join(c.target, rel)]):
		return c.placeholder(out, name)
	case kind == unix.S_IFREG:
		return c.file(in, out, name, rel, st)
	}
	c.left++
	return nil
}

// count holds the copy to the limits while it grows.
func (c *copier) count(st unix.Stat_t) error {
	c.files++
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		c.bytes += st.Blocks * 512
	}
	switch {
	case c.cow.Size > 0 && c.bytes > c.cow.Size:
		return fmt.Errorf("it holds more than limits.disk (%d MiB)", c.cow.Size>>20)
	case c.cow.Inodes > 0 && c.files > c.cow.Inodes:
		return fmt.Errorf("it holds more than limits.disk_files (%d)", c.cow.Inodes)
	case time.Since(c.said) > 2*time.Second:
		c.said = time.Now()
		c.say(fmt.Sprintf("copying %q: %d files, %d MiB", c.target, c.files, c.bytes>>20))
	}
	return nil
}

func (c *copier) directory(in, out int, name, rel string, st unix.Stat_t) error {
	if err := unix.Mkdirat(out, name, 0o700); err != nil {
		return err
	}
	to, err := openDirAt(out, name)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	from, err := openDirAt(in, name)
	if err != nil {
		return fmt.Errorf("open %q: %w", rel, err)
	}
	before := c.blank
	c.blank = before || c.hidden[filepath.Join(c.target, rel)]
	if err := c.entries(from, to, rel); err != nil {
		return err
	}
	c.blank = before
	return finish(to, st)
}

// placeholder stands for what is hidden: it can be covered and is missed by
// nobody who compares names, and it holds nothing.
func (c *copier) placeholder(out int, name string) error {
	fd, err := unix.Openat(out, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func copySymlink(in, out int, name string, st unix.Stat_t) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(in, name, buf)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(string(buf[:n]), out, name); err != nil {
		return err
	}
	return unix.UtimesNanoAt(out, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) file(in, out int, name, rel string, st unix.Stat_t) error {
	key := inode{st.Dev, st.Ino}
	if first, ok := c.links[key]; ok {
		return unix.Linkat(c.to, first, out, name, 0)
	}
	from, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", rel, err)
	}
	defer unix.Close(from)
	var now unix.Stat_t
	if err := unix.Fstat(from, &now); err != nil || now.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(err, fmt.Errorf("%q was replaced while it was copied", rel))
	}
	to, err := unix.Openat(out, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := copyData(from, to, now.Size); err != nil {
		return fmt.Errorf("copy %q: %w", rel, err)
	}
	if st.Nlink > 1 {
		c.links[key] = rel
	}
	return finish(to, now)
}

// finish sets what writing has changed.
func finish(fd int, st unix.Stat_t) error {
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, procFd(fd), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// copyData shares the blocks where the file system can, and keeps holes.
func copyData(from, to int, size int64) error {
	if size == 0 {
		return nil
	}
	if unix.IoctlFileClone(to, from) == nil {
		return nil
	}
	for pos := int64(0); pos < size; {
		data, err := unix.Seek(from, pos, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole to the end
		}
		hole := size
		if err == nil {
			hole, err = unix.Seek(from, data, unix.SEEK_HOLE)
		}
		if err != nil {
			data, hole = pos, size // it knows no holes
		}
		if err := copyRange(from, to, data, hole); err != nil {
			return err
		}
		pos = hole
	}
	return unix.Ftruncate(to, size)
}

func copyRange(from, to int, pos, end int64) error {
	for in, out := pos, pos; in < end; {
		n, err := unix.CopyFileRange(from, &in, to, &out, int(min(end-in, 1<<30)), 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return copyPlain(from, to, in, end)
		case n == 0:
			return nil // it became shorter
		}
	}
	return nil
}

// copyPlain is for file systems without copy_file_range(2) between them.
func copyPlain(from, to int, pos, end int64) error {
	buf := make([]byte, 256<<10)
	for pos < end {
		n, err := unix.Pread(from, buf[:min(int64(len(buf)), end-pos)], pos)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for done := 0; done < n; {
			w, err := unix.Pwrite(to, buf[done:n], pos+int64(done))
			if err != nil {
				return err
			}
			done += w
		}
		pos += int64(n)
	}
	return nil
}

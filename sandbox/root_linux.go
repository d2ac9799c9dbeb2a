package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// rootBuilder builds the private root in the sandbox's own mount namespace,
// before libcontainer pivots into it. Every step works on descriptors: a bind
// source is the very inode that was judged, and a target is reached below the
// root without following a symlink, so nobody can swap either in between
// (CVE-2021-30465, CVE-2023-27561).
type rootBuilder struct {
	root string
	fd   int
	own  map[uint64]bool // mounts in which mount points may be made: our tmpfs, a home of ours
	blob func(Blob) ([]byte, error)
	// layers makes the copy-on-write trees.
	layers *layerMaker
}

// buildRoot mounts a tmpfs on root and lays every entry of the plan in it.
// blob gives the content of the entries that are too large for the plan.
func buildRoot(root string, entries []Entry, blob func(Blob) ([]byte, error), layers *layerMaker) error {
	defer unix.Umask(unix.Umask(0))
	data := "mode=0755,size=8m,nr_inodes=20000"
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount private root: %w", err)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open private root: %w", err)
	}
	defer unix.Close(fd)
	b := &rootBuilder{root: root, fd: fd, own: map[uint64]bool{}, blob: blob, layers: layers}
	if err := b.remember(fd); err != nil {
		return err
	}
	if err := b.makeBlanks(); err != nil {
		return fmt.Errorf("make covers: %w", err)
	}
	for _, e := range entries {
		if err := b.add(e); err != nil {
			return fmt.Errorf("%s %q: %w", e.Kind, e.Target, err)
		}
	}
	return layers.closeMemory(b)
}

// remember notes a mount that is the plan's own.
func (b *rootBuilder) remember(fd int) error {
	id, err := mountID(fd)
	if err != nil {
		return fmt.Errorf("stat private root: %w", err)
	}
	b.own[id] = true
	return nil
}

func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err
}

func (b *rootBuilder) add(e Entry) error {
	switch e.Kind {
	case KindDir:
		return b.makeDir(e)
	case KindFile:
		return b.makeFile(e)
	case KindSymlink:
		return b.makeSymlink(e)
	case KindBind:
		return b.bind(e)
	case KindOverlay:
		return b.layered(e)
	case KindPart:
		return b.part(e)
	case KindTmpfs:
		return b.tmpfs(e)
	case KindMask:
		return b.mask(e)
	case KindProtect:
		return b.cover(e, unix.MOUNT_ATTR_RDONLY)
	case KindPin:
		return b.cover(e, 0)
	case KindAlias:
		return b.alias(e)
	case KindProc, KindDev, KindPts, KindMqueue, KindNode, KindSeal:
		return b.system(e)
	}
	return fmt.Errorf("BUG: unknown kind")
}

// open reaches a path below the root, through no symlink and no magic link.
func (b *rootBuilder) open(path string, flags int) (int, error) {
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	return unix.Openat2(b.fd, rel, &how)
}

// parent opens the directory that holds path, making what is missing: only on
// the root's own tmpfs, never in a tree of the host.
func (b *rootBuilder) parent(path string) (int, string, error) {
	dir, name := filepath.Split(filepath.Clean(path))
	cur, err := b.open("/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", err
	}
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if part == "" {
			continue
		}
		next, err := b.step(cur, part)
		unix.Close(cur)
		if err != nil {
			return -1, "", fmt.Errorf("open parent %q: %w", part, err)
		}
		cur = next
	}
	return cur, name, nil
}

func (b *rootBuilder) step(dir int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := unix.Openat2(dir, name, &how)
	if err != unix.ENOENT {
		return fd, err
	}
	if err := b.mayCreate(dir); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return -1, err
	}
	return unix.Openat2(dir, name, &how)
}

// mayCreate refuses to make anything in a directory that lies on the host.
func (b *rootBuilder) mayCreate(dir int) error {
	id, err := mountID(dir)
	if err != nil {
		return err
	}
	if !b.own[id] {
		return fmt.Errorf("the mount point does not exist on the host: %w", unix.ENOENT)
	}
	return nil
}

func (b *rootBuilder) makeDir(e Entry) error {
	dir, name, err := b.parent(e.Target)
	if err != nil || name == "" {
		return err
	}
	defer unix.Close(dir)
	if err := b.mayCreate(dir); err != nil {
		return err
	}
	if err := unix.Mkdirat(dir, name, e.Mode); err != nil && err != unix.EEXIST {
		return err
	}
	return unix.Fchmodat(dir, name, e.Mode, 0)
}

func (b *rootBuilder) makeFile(e Entry) error {
	dir, name, err := b.parent(e.Target)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := b.mayCreate(dir); err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, e.Mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	data := []byte(e.Data)
	if e.Blob != "" {
		if data, err = b.blob(e.Blob); err != nil {
			return err
		}
	}
	_, err = f.Write(data)
	return err
}

func (b *rootBuilder) makeSymlink(e Entry) error {
	dir, name, err := b.parent(e.Target)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := b.mayCreate(dir); err != nil {
		return err
	}
	return unix.Symlinkat(e.Data, dir, name)
}

// bind mounts the judged inode, with everything mounted below it, and sets the
// flags on all of it: a flag on the top alone leaves sub-mounts writable.
func (b *rootBuilder) bind(e Entry) error {
	src, err := openJudged(e)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	dst, err := b.mountPoint(e.Target, e.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	if err := attach(src, dst, e.flags()); err != nil || !e.isHome() {
		return err
	}
	top, err := b.open(e.Target, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	return b.remember(top)
}

func (e Entry) flags() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if !e.Write {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if !e.Exec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	return attr
}

func openJudged(e Entry) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, e.Source, &how)
	if err != nil {
		return -1, fmt.Errorf("open source %q: %w", e.Source, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if st.Ino != e.Ino || st.Dev != e.Dev {
		unix.Close(fd)
		return -1, fmt.Errorf("source %q was replaced while the sandbox was starting", e.Source)
	}
	return fd, nil
}

// attach clones the tree at src, restricts it as a whole, and moves it onto dst.
func attach(src, dst int, attr uint64) error {
	tree, err := unix.OpenTree(src, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone mount: %w", err)
	}
	defer unix.Close(tree)
	set := &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, set); err != nil {
		return fmt.Errorf("restrict mount: %w", err)
	}
	if err := unix.MoveMount(tree, "", dst, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach mount: %w", err)
	}
	return nil
}

// mountPoint opens what is to be covered, and makes it where it is missing.
func (b *rootBuilder) mountPoint(path string, isDir bool) (int, error) {
	if fd, err := b.open(path, unix.O_PATH); err == nil {
		return fd, nil
	} else if err != unix.ENOENT {
		return -1, err
	}
	e := Entry{Target: path, Mode: 0o755}
	var err error
	if isDir {
		err = b.makeDir(e)
	} else {
		e.Mode = 0o444
		err = b.makeFile(e)
	}
	if err != nil {
		return -1, fmt.Errorf("make mount point: %w", err)
	}
	return b.open(path, unix.O_PATH)
}

func (b *rootBuilder) tmpfs(e Entry) error {
	dst, err := b.mountPoint(e.Target, true)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if !e.Exec {
		flags |= unix.MS_NOEXEC
	}
	data := fmt.Sprintf("mode=%04o,size=%d,nr_inodes=%d", e.Mode, e.Size, e.Inodes)
	if err := unix.Mount("tmpfs", procFd(dst), "tmpfs", flags, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	top, err := b.open(e.Target, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	return b.remember(top)
}

// mask covers an entry with an empty file or directory that nobody can open:
// not with /dev/null, which is a device and clashes with Landlock's rights.
func (b *rootBuilder) mask(e Entry) error {
	dst, err := b.open(e.Target, unix.O_PATH)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	blank := blankFile
	if e.Dir {
		blank = blankDir
	}
	src, err := b.open(blank, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open the cover: %w", err)
	}
	defer unix.Close(src)
	return attach(src, dst, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// The blanks: an empty file and an empty directory of mode 0. They keep their
// names, so that a cover can be put back during the run.
const (
	blankFile = "/run/hermes-wrap/hidden-file"
	blankDir  = "/run/hermes-wrap/hidden-directory"
)

func (b *rootBuilder) makeBlanks() error {
	if err := b.makeFile(Entry{Target: blankFile, Mode: 0}); err != nil {
		return err
	}
	return b.makeDir(Entry{Target: blankDir, Mode: 0})
}

// cover binds what is there onto itself with further flags. The source is the
// target as it lies in the private root, so a host path swapped for a symlink
// cannot bring anything in.
func (b *rootBuilder) cover(e Entry, attr uint64) error {
	fd, err := b.open(e.Target, unix.O_PATH)
	if err == unix.ENOENT && b.inLayer(e.Target) {
		return nil // removed in an earlier run, and its name is guarded
	}
	if err == unix.ENOENT {
		return fmt.Errorf("it vanished while the sandbox was starting: %w", err)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd, fd, attr)
}

// alias shows one path inside at another as well, read-only.
func (b *rootBuilder) alias(e Entry) error {
	src, err := b.open(e.Source, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open %q inside: %w", e.Source, err)
	}
	defer unix.Close(src)
	dst, err := b.mountPoint(e.Target, false)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	return attach(src, dst, Entry{}.flags())
}

func procFd(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Method is how a copy-on-write tree is made.
type Method string

// The methods.
const (
	MethodOverlay Method = "overlay" // overlayfs(7) over the host's tree
	MethodCopy    Method = "copy"    // a full copy, where no overlay can be had
)

// LayerDir is the directory on disk of one layer. Whoever gives it holds its
// lock: an upper directory must never be mounted twice.
type LayerDir struct {
	Id   string `json:"id"`   // as in the plan's entry
	Path string `json:"path"` // without symlinks
	// Method is what the layer was made with. "" is a new layer: an overlay, or a
	// copy where the kernel refuses one.
	Method Method `json:"method,omitempty"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
}

// OpenLayerDir names a directory that exists, by its inode.
func OpenLayerDir(id, path string, m Method) (LayerDir, error) {
	r, err := resolve(path)
	if err == nil && !r.isDir() {
		err = unix.ENOTDIR
	}
	return LayerDir{Id: id, Path: r.real, Method: m, Dev: r.dev, Ino: r.ino}, err
}

// Remove removes the layer's directory and everything that the agent left in it.
func (d LayerDir) Remove() error { return removeTree(d.Path) }

// layerNews is what the stage says of one layer that it made.
type layerNews struct {
	Id     string `json:"id"`
	Target string `json:"target"`
	Method Method `json:"method"`
	Memory bool   `json:"memory,omitempty"`
	Why    string `json:"why,omitempty"`
	Ready  int64  `json:"ready,omitempty"`
}

// layerMaker makes the copy-on-write trees of a plan while the host's files are
// still in view.
type layerMaker struct {
	cow    Cow
	masks  []Entry
	dirs   map[string]LayerDir
	ask    func() ([]LayerDir, error) // for directories that the launcher did not give yet
	say    func(string)
	trees  int
	memory int // our tmpfs, -1: not made
	made   []layerNews
	files  []*os.File
}

func newLayerMaker(p Plan, dirs []LayerDir) *layerMaker {
	m := &layerMaker{dirs: map[string]LayerDir{}, memory: -1, say: func(string) {}, trees: len(p.CowTrees())}
	if p.Cow != nil {
		m.cow = *p.Cow
	}
	m.give(dirs)
	for _, e := range p.View {
		if e.Kind == KindMask {
			m.masks = append(m.masks, e)
		}
	}
	return m
}

func (m *layerMaker) give(dirs []LayerDir) {
	for _, d := range dirs {
		m.dirs[d.Id] = d
	}
}

// dir gives the directory of a layer, asking the launcher for it if need be.
func (m *layerMaker) dir(id string) (LayerDir, error) {
	if d, ok := m.dirs[id]; ok {
		return d, nil
	}
	if m.ask == nil {
		return LayerDir{}, errors.New("BUG: there is nobody to ask for a directory")
	}
	dirs, err := m.ask()
	if err != nil {
		return LayerDir{}, err
	}
	m.give(dirs)
	d, ok := m.dirs[id]
	if !ok {
		return d, fmt.Errorf("BUG: the launcher gave no directory for layer %q", id)
	}
	return d, nil
}

// layered makes one copy-on-write tree. The first way that works counts, but a
// layer that exists already is never made anew in another way.
func (b *rootBuilder) layered(e Entry) error {
	lower, err := openJudged(e)
	if err != nil {
		return err
	}
	defer unix.Close(lower)
	dst, err := b.mountPoint(e.Target, true)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	job := layerJob{b: b, m: b.layers, e: e, lower: lower, dst: dst}
	job.refused = job.foreign()
	why := ""
	if !job.m.cow.Persistent {
		err := job.inMemory()
		if err == nil || !errors.As(err, new(noOverlay)) {
			return err
		}
		why = err.Error()
	}
	d, err := job.m.dir(e.Layer)
	if err != nil {
		return err
	}
	switch d.Method {
	case MethodCopy:
		return job.bindCopy(d, why, 0)
	case MethodOverlay:
		err := job.onDisk(d, why)
		if errors.As(err, new(noOverlay)) {
			return fmt.Errorf("the layer %q was made as an overlay, which cannot be had now: %w", e.Layer, err)
		}
		return err
	}
	err = job.onDisk(d, why)
	if !errors.As(err, new(noOverlay)) {
		return err
	}
	return job.byCopy(d, err.Error())
}

// noOverlay is the kernel's reason why a file system cannot hold a layer.
type noOverlay struct {
	what string
	err  error
}

func (n noOverlay) Error() string { return n.what + ": " + n.err.Error() }
func (n noOverlay) Unwrap() error { return n.err }

// without tells a file system that cannot hold a layer from one that is full:
// another way to keep the layer would only get around the limit.
func without(what string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%s: %w", what, err)
	}
	return noOverlay{what, err}
}

// layerJob is one tree being made.
type layerJob struct {
	b          *rootBuilder
	m          *layerMaker
	e          Entry
	lower, dst int
	// refused says why no overlay is to be tried; nil: it is.
	refused error
}

// foreign tells why an overlay would be of no use over a tree that belongs to
// somebody else: the namespace has one user and one group, and the kernel
// copies no file of another up into a layer (EOVERFLOW).
func (j layerJob) foreign() error {
	var st unix.Stat_t
	if err := unix.Fstat(j.lower, &st); err != nil {
		return err
	}
	if int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid() {
		return nil
	}
	return noOverlay{"the tree belongs to another user or group, whose files an overlay here cannot change", unix.EOVERFLOW}
}

// memoryPlace is where the layers' tmpfs is mounted while they are made.
const memoryPlace = "/run/hermes-wrap/layers"

// inMemory keeps the layer on a tmpfs that all layers of the run share, so that
// the kernel itself bounds them together.
func (j layerJob) inMemory() error {
	if j.refused != nil {
		return j.refused
	}
	if err := j.m.openMemory(j.b); err != nil {
		return err
	}
	if err := unix.Mkdirat(j.m.memory, j.e.Layer, 0o700); err != nil {
		return fmt.Errorf("make layer in memory: %w", err)
	}
	dir, err := openDirAt(j.m.memory, j.e.Layer)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	upper, err := j.overlay(dir, true)
	if err != nil {
		return err
	}
	j.m.done(layerNews{Id: j.e.Layer, Target: j.e.Target, Method: MethodOverlay, Memory: true}, upper)
	return nil
}

func (m *layerMaker) openMemory(b *rootBuilder) error {
	if m.memory >= 0 {
		return nil
	}
	// Each layer has three directories of ours, and one that overlayfs makes; it
	// tries out what the file system can do with a few files more.
	e := Entry{Target: memoryPlace, Size: m.cow.Size, Inodes: m.cow.Inodes + 4*m.trees + 8, Mode: 0o700}
	if err := b.tmpfs(e); err != nil {
		return err
	}
	fd, err := b.open(memoryPlace, unix.O_RDONLY|unix.O_DIRECTORY)
	m.memory = fd
	return err
}

// closeMemory takes the tmpfs out of the view; the overlays keep it.
func (m *layerMaker) closeMemory(b *rootBuilder) error {
	if m == nil || m.memory < 0 {
		return nil
	}
	if err := unix.Unmount(procFd(m.memory), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the layers' tmpfs: %w", err)
	}
	unix.Close(m.memory)
	m.memory = -1
	run, err := b.open(filepath.Dir(memoryPlace), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(run)
	return unix.Unlinkat(run, filepath.Base(memoryPlace), unix.AT_REMOVEDIR)
}

// onDisk keeps the layer in the session's directory.
func (j layerJob) onDisk(d LayerDir, why string) error {
	if j.refused != nil {
		return j.refused
	}
	dir, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	upper, err := j.overlay(dir, d.Method == "")
	if err != nil {
		if d.Method == "" {
			_ = removeTree(filepath.Join(d.Path, "upper"))
			_ = removeTree(filepath.Join(d.Path, "work"))
		}
		return err
	}
	j.m.done(layerNews{Id: j.e.Layer, Target: j.e.Target, Method: MethodOverlay, Why: why}, upper)
	return nil
}

func (d LayerDir) open() (int, error) {
	return openJudged(Entry{Source: d.Path, Dev: d.Dev, Ino: d.Ino})
}

func openDirAt(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (m *layerMaker) done(n layerNews, upper int) {
	m.made = append(m.made, n)
	m.files = append(m.files, os.NewFile(uintptr(upper), n.Id))
}

// makeDirs makes what an overlay needs in the layer's directory. The upper
// directory is what shows as the tree's own, so it gets the tree's mode.
func (j layerJob) makeDirs(dir int, fresh bool) (upper, work int, err error) {
	for _, name := range []string{"upper", "work"} {
		err := unix.Mkdirat(dir, name, 0o700)
		if err != nil && (err != unix.EEXIST || fresh) {
			return -1, -1, fmt.Errorf("make %q of the layer: %w", name, err)
		}
		if err == nil && name == "upper" && !fresh {
			return -1, -1, errors.New("the layer has lost its upper directory")
		}
	}
	if upper, err = openDirAt(dir, "upper"); err != nil {
		return -1, -1, err
	}
	if work, err = openDirAt(dir, "work"); err == nil && fresh {
		var st unix.Stat_t
		if err = unix.Fstat(j.lower, &st); err == nil {
			err = unix.Fchmod(upper, st.Mode&0o7777)
		}
	}
	if err != nil {
		unix.Close(upper)
	}
	return upper, work, err
}

// overlayOptions name every feature by which an upper directory could lead out
// of its tree, since the agent has written what is in one: a directory that
// says where it came from (redirect_dir), a file whose content lies elsewhere
// (metacopy), and the decoding of file handles (index, nfs_export). userxattr is
// what a mount without host capabilities has to use.
const overlayOptions = "userxattr,redirect_dir=nofollow,metacopy=off,index=off,nfs_export=off,xino=off"

// overlay mounts the tree and gives its upper directory.
func (j layerJob) overlay(dir int, fresh bool) (int, error) {
	upper, work, err := j.makeDirs(dir, fresh)
	if err != nil {
		return -1, err
	}
	defer unix.Close(work)
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if !j.e.Exec {
		flags |= unix.MS_NOEXEC
	}
	data := fmt.Sprintf("%s,lowerdir=%s,upperdir=%s,workdir=%s", overlayOptions, procFd(j.lower), procFd(upper), procFd(work))
	if err := unix.Mount("overlay", procFd(j.dst), "overlay", flags, data); err != nil {
		unix.Close(upper)
		return -1, without("mount overlay", err)
	}
	if err := j.settle(upper, work); err != nil {
		unix.Close(upper)
		return -1, err
	}
	return upper, nil
}

// settle tries the mounted overlay, and takes it away again if it does not hold.
func (j layerJob) settle(upper, work int) error {
	top, err := j.b.open(j.e.Target, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open the tree: %w", err)
	}
	defer unix.Close(top)
	// The kernel makes it with mode 0, and then nobody can remove the layer with
	// "rm -rf". It needs no mode itself.
	if err := unix.Fchmodat(work, "work", 0o700, 0); err != nil {
		return fmt.Errorf("open the layer's work directory to its owner: %w", err)
	}
	err = tryLayer(top, j.lower, upper, work)
	if err != nil {
		if detach := unix.Unmount(procFd(top), unix.MNT_DETACH); detach != nil {
			return fmt.Errorf("take the overlay away: %w", detach)
		}
	}
	return err
}

// tryLayer writes a file and sees where it lands, and whether the file system
// can hold what an overlay notes in it.
func tryLayer(top, lower, upper, work int) error {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	name := ".hermes-wrap-" + hex.EncodeToString(b[:])
	fd, err := unix.Openat(top, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return without("write to the overlay", err)
	}
	unix.Close(fd)
	defer func() { _ = unix.Unlinkat(top, name, 0) }()
	var st unix.Stat_t
	if err := unix.Fstatat(lower, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
		return stepErr(StepSelfTest, errors.New("a file written to a copy-on-write tree appeared in the host's"))
	}
	if err := unix.Fstatat(upper, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return without("find what was written in the layer", err)
	}
	if err := unix.Mknodat(work, name, unix.S_IFCHR, 0); err != nil {
		return without("make a whiteout", err)
	}
	if err := unix.Unlinkat(work, name, 0); err != nil {
		return without("remove a whiteout", err)
	}
	if err := unix.Fsetxattr(work, "user.hermes-wrap", []byte{1}, 0); err != nil {
		return without("set a user attribute in the layer", err)
	}
	_ = unix.Fremovexattr(work, "user.hermes-wrap")
	return nil
}

// part gives a part of a copy-on-write tree rights of its own.
func (b *rootBuilder) part(e Entry) error {
	fd, err := b.open(e.Target, unix.O_PATH)
	if err == unix.ENOENT {
		return nil // removed in an earlier run
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone mount: %w", err)
	}
	defer unix.Close(tree)
	set := &unix.MountAttr{Attr_set: e.flags(), Attr_clr: unix.MOUNT_ATTR_NOEXEC &^ e.flags(), Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, set); err != nil {
		return fmt.Errorf("set the rights of the mount: %w", err)
	}
	return unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// inLayer tells whether a path lies in a copy-on-write tree, whose entries need
// not be the host's.
func (b *rootBuilder) inLayer(path string) bool {
	return b.layers != nil && slices.ContainsFunc(b.layers.made, func(n layerNews) bool { return within(path, n.Target) })
}

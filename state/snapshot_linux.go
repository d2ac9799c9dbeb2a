package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Snapshots are the named copies of a session's layers.
type Snapshots struct {
	// Layers is the directory of the layers, Dir that of the snapshots. Both lie
	// in the session's directory, so that they can take each other's place.
	Layers, Dir string
	// Now gives the time; nil means the clock.
	Now func() time.Time
}

// Snapshot is one of them.
type Snapshot struct {
	Label   string    `json:"label"`
	Created time.Time `json:"created"`
	Layers  []string  `json:"layers"`
	// Files counts everything in them, Bytes the content of files.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

const (
	snapshotName = "snapshot.json"
	layersName   = "layers"
	newPrefix    = ".new-"
	oldPrefix    = ".old-"
)

var label = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`) })

// Make copies all layers under a label; "" takes the time. A kill leaves the
// snapshot whole or not at all. The caller holds the lock of the layers.
func (s Snapshots) Make(as string) (Snapshot, error) {
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if as == "" {
		as = now().UTC().Format("20060102T150405.000Z")
	}
	if !label().MatchString(as) {
		return Snapshot{}, fmt.Errorf("label %q: letters, digits and . _ - make a label", as)
	}
	base, err := s.open()
	if err != nil {
		return Snapshot{}, err
	}
	defer base.Close()
	if _, there, err := statAt(int(base.Fd()), as); err != nil || there {
		return Snapshot{}, errors.Join(err, fmt.Errorf("snapshot %q exists: choose another label", as))
	}
	temp := newPrefix + as
	snap := Snapshot{Label: as, Created: now().UTC()}
	if err := s.fill(base, temp, &snap); err != nil {
		return Snapshot{}, errors.Join(err, removeTree(int(base.Fd()), temp))
	}
	if err := unix.Renameat2(int(base.Fd()), temp, int(base.Fd()), as, unix.RENAME_NOREPLACE); err != nil {
		return Snapshot{}, fmt.Errorf("name snapshot %q: %w", as, err)
	}
	return snap, unix.Fsync(int(base.Fd()))
}

func (s Snapshots) fill(base *os.File, temp string, snap *Snapshot) error {
	to, err := makeDir(base, temp)
	if err != nil {
		return err
	}
	defer to.Close()
	layers, err := makeDir(to, layersName)
	if err != nil {
		return err
	}
	defer layers.Close()
	from, err := openDir(s.Layers)
	if err != nil {
		return err
	}
	defer from.Close()
	held := tally{}
	if snap.Layers, err = copyLayers(from, layers, &held); err != nil {
		return err
	}
	snap.Files, snap.Bytes = held.files, held.bytes
	b, err := json.MarshalIndent(snap, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(writeFile(int(to.Fd()), snapshotName, append(b, '\n'), true), syncFS(to))
}

// open opens the directory of the snapshots and sweeps what was left half-done.
func (s Snapshots) open() (*os.File, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	base, err := openDir(s.Dir)
	if err != nil {
		return nil, err
	}
	for _, prefix := range []string{newPrefix, oldPrefix, trashPrefix} {
		if err := sweep(base, prefix); err != nil {
			base.Close()
			return nil, err
		}
	}
	return base, nil
}

func makeDir(in *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(in.Fd()), name, 0o700); err != nil {
		return nil, fmt.Errorf("make directory %q in %q: %w", name, in.Name(), err)
	}
	fd, err := openBelow(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(in.Name(), name)), nil
}

// copyLayers copies layers into an empty directory. The work directory of an
// overlay is made anew: its content means nothing.
func copyLayers(from, to *os.File, held *tally) (names []string, err error) {
	all, err := readNames(int(from.Fd()))
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if name[0] == '.' {
			continue
		}
		if err := copyLayer(from, to, name, held); err != nil {
			return nil, fmt.Errorf("copy layer %q: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func copyLayer(from, to *os.File, name string, held *tally) error {
	source, err := openFile(int(from.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer source.Close()
	m, err := ReadMeta(source)
	if err != nil {
		return err
	}
	if _, there, err := statAt(int(source.Fd()), journalName); err != nil || there {
		return errors.Join(err, ErrUnfinished)
	}
	dir, err := makeDir(to, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	content := map[string]string{Overlay: upperName, Copy: treeName}[m.Method]
	data, err := openFile(int(source.Fd()), content, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer data.Close()
	one, err := saveLayer(dir, m, data, func() error { return copyKnown(source, dir) })
	held.files, held.bytes = held.files+one.files, held.bytes+one.bytes
	return err
}

// saveLayer fills a layer's directory.
func saveLayer(dir *os.File, m Meta, data *os.File, further func() error) (held tally, err error) {
	content := upperName
	if m.Method == Copy {
		content = treeName
	} else if err := unix.Mkdirat(int(dir.Fd()), workName, 0o700); err != nil {
		return held, err
	}
	to, err := makeDir(dir, content)
	if err != nil {
		return held, err
	}
	defer to.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(data.Fd()), &st); err != nil {
		return held, err
	}
	if held, err = copyTree(data, to); err != nil {
		return held, err
	}
	if m.Method == Copy {
		m.Ready = time.Now()
	}
	return held, errors.Join(unix.Fchmod(int(to.Fd()), st.Mode&0o7777), further(), m.Write(dir))
}

func copyKnown(from, to *os.File) error {
	in, err := openFile(int(from.Fd()), knownName, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := openBelow(int(to.Fd()), knownName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), knownName)
	st, err := in.Stat()
	if err == nil {
		err = copyContent(out, in, st.Size())
	}
	return errors.Join(err, out.Close())
}

// maxSnapshotRecord bounds what is read of a snapshot's record, in bytes.
const maxSnapshotRecord = 1 << 20

// readSmall reads a file of ours. What stands in its place instead, a FIFO for
// one, must hold nobody up.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxSnapshotRecord {
		return nil, errors.Join(err, errors.New("it is no record"))
	}
	return io.ReadAll(io.LimitReader(f, maxSnapshotRecord))
}

// List gives the snapshots, the oldest first.
func (s Snapshots) List() (all []Snapshot, err error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !label().MatchString(e.Name()) {
			continue
		}
		var one Snapshot
		b, err := readSmall(filepath.Join(s.Dir, e.Name(), snapshotName))
		if err == nil {
			err = json.Unmarshal(b, &one)
		}
		if err != nil {
			return nil, fmt.Errorf("read snapshot %q: %w", e.Name(), err)
		}
		one.Label = e.Name()
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// Restore puts the layers of a snapshot in the place of the present ones, which
// are there whole until the new ones are, and gone afterwards. The caller holds
// the lock of the layers.
func (s Snapshots) Restore(name string) error {
	if !label().MatchString(name) {
		return fmt.Errorf("there is no snapshot %q", name)
	}
	base, err := s.open()
	if err != nil {
		return err
	}
	defer base.Close()
	from, err := openFile(int(base.Fd()), name+"/"+layersName, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("there is no snapshot %q: %w", name, err)
	}
	defer from.Close()
	temp := newPrefix + "restore"
	to, err := makeDir(base, temp)
	if err != nil {
		return err
	}
	defer to.Close()
	_, err = copyLayers(from, to, &tally{})
	if err == nil {
		err = syncFS(to)
	}
	if err == nil {
		err = os.MkdirAll(s.Layers, 0o700)
	}
	if err == nil {
		err = unix.Renameat2(int(base.Fd()), temp, unix.AT_FDCWD, s.Layers, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return errors.Join(err, removeTree(int(base.Fd()), temp))
	}
	return errors.Join(syncFS(base), removeTree(int(base.Fd()), temp))
}

// Remove removes a snapshot.
func (s Snapshots) Remove(name string) error {
	base, err := s.open()
	if err != nil {
		return err
	}
	defer base.Close()
	if !label().MatchString(name) {
		return fmt.Errorf("there is no snapshot %q", name)
	}
	// Renamed first: what a kill leaves is no snapshot.
	if err := unix.Renameat(int(base.Fd()), name, int(base.Fd()), oldPrefix+name); err != nil {
		return fmt.Errorf("there is no snapshot %q: %w", name, err)
	}
	return errors.Join(unix.Fsync(int(base.Fd())), removeTree(int(base.Fd()), oldPrefix+name))
}

// Save writes a layer that is known by a descriptor into a directory for layers,
// so that it outlives its sandbox. A kill leaves all of it or nothing.
func (l *Layer) Save(layers string) error {
	dir, err := openDir(layers)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := sweep(dir, newPrefix); err != nil {
		return err
	}
	temp := newPrefix + l.Name
	to, err := makeDir(dir, temp)
	if err != nil {
		return err
	}
	defer to.Close()
	m := l.Meta
	m.Storage, m.Pid, m.Fd = "directory", 0, 0
	_, err = saveLayer(to, m, l.data, func() error { return syncFS(to) })
	if err == nil {
		err = unix.Renameat2(int(dir.Fd()), temp, int(dir.Fd()), l.Name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save layer %q: %w", l.Name, err), removeTree(int(dir.Fd()), temp))
	}
	return unix.Fsync(int(dir.Fd()))
}

// Package state is what the operator does with the changes of copy-on-write
// trees: compare them with the host, commit, discard, and keep named snapshots.
//
// A layer's content was written by the agent and is hostile: names, types, modes,
// links and depth are its choice. It is walked on descriptors, never by a path of
// the agent's, and what is found is bounded. docs/state.md has the format on disk.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// MetaVersion is the version of layer.json that this package reads and writes.
const MetaVersion = 1

// Methods of keeping the changes of a tree apart.
const (
	// Overlay is an overlay's upper directory, in upper/.
	Overlay = "overlay"
	// Copy is a whole copy of the tree, in tree/.
	Copy = "copy"
)

// Meta is layer.json: what a layer stands over.
type Meta struct {
	Version int `json:"version"`
	// Target is the absolute path of the tree on the host, resolved.
	Target string `json:"target"`
	// Method is Overlay or Copy.
	Method string `json:"method"`
	// Created is when the layer was empty. What changed on the host after it was
	// changed by somebody else.
	Created time.Time `json:"created"`
	// Ready is when a copy was complete; zero for an overlay.
	Ready time.Time `json:"ready,omitzero"`
	// Storage says where the content lies: "directory" or "tmpfs".
	Storage string `json:"storage,omitempty"`
	// Base is the tree's directory when the layer was made.
	Base Base `json:"base"`
	// Pid and Fd are the process and its descriptor of the content while a run
	// keeps it in memory.
	Pid int `json:"pid,omitempty"`
	Fd  int `json:"fd,omitempty"`
}

// Base identifies a directory.
type Base struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Names in a layer's directory.
const (
	metaName    = "layer.json"
	upperName   = "upper"
	workName    = "work"
	treeName    = "tree"
	journalName = "commit.journal"
	knownName   = "known"
	trashPrefix = "trash-"
)

// NewMeta describes a layer that begins now over the directory at target.
func NewMeta(target, method, storage string) (Meta, error) {
	real, err := filepath.EvalSymlinks(target)
	if err != nil {
		return Meta{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return Meta{}, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	return Meta{Version: MetaVersion, Target: real, Method: method, Created: time.Now(), Storage: storage, Base: Base{st.Dev, st.Ino}}, nil
}

// Write puts layer.json into a layer's directory, whole or not at all, and on disk
// unless the content is not there either.
func (m Meta) Write(dir *os.File) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(int(dir.Fd()), metaName, append(b, '\n'), m.Pid == 0)
}

// ReadMeta reads layer.json.
func ReadMeta(dir *os.File) (Meta, error) {
	f, err := openFile(int(dir.Fd()), metaName, unix.O_RDONLY)
	if err != nil {
		return Meta{}, fmt.Errorf("open %q in %q: %w", metaName, dir.Name(), err)
	}
	defer f.Close()
	var m Meta
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return Meta{}, fmt.Errorf("read %q in %q: %w", metaName, dir.Name(), err)
	}
	return m, nil
}

func (m Meta) check() error {
	switch {
	case m.Version != MetaVersion:
		return fmt.Errorf("version %d is unknown, this program knows %d", m.Version, MetaVersion)
	case m.Method != Overlay && m.Method != Copy:
		return fmt.Errorf("method %q is unknown", m.Method)
	case !filepath.IsAbs(m.Target):
		return fmt.Errorf("target %q is not absolute", m.Target)
	}
	return nil
}

// Layer is an open layer and the tree below it.
type Layer struct {
	Meta
	// Name is the name of the layer in its session.
	Name string

	dir  *os.File // the layer's directory
	data *os.File // upper/ or tree/
	host *os.File // the tree on the host

	opaque map[string]bool // of the last comparison
}

// Open opens the layer in a directory. os.ErrNotExist means that there is none,
// or one without layer.json, which nobody has used yet; nothing else does.
func Open(path string) (*Layer, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	l, err := openLayer(filepath.Base(path), dir)
	if err != nil {
		dir.Close()
	}
	return l, err
}

func openLayer(name string, dir *os.File) (*Layer, error) {
	m, err := ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	content := map[string]string{Overlay: upperName, Copy: treeName}[m.Method]
	data, err := openContent(dir, m, content)
	if err != nil {
		return nil, fmt.Errorf("open %q of layer %q: %v", content, name, err) //nolint:errorlint // it is not the layer that is missing
	}
	l, err := over(name, m, dir, data)
	if err != nil {
		data.Close()
	}
	return l, err
}

func openContent(dir *os.File, m Meta, name string) (*os.File, error) {
	if m.Pid > 0 {
		return os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", m.Pid, m.Fd), os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return openFile(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// FromFiles opens a layer whose content is known by a descriptor alone: one that
// lies in a sandbox. It can be compared and saved, not committed or discarded.
// The caller keeps data open until Close.
func FromFiles(name string, m Meta, data *os.File) (*Layer, error) { return over(name, m, nil, data) }

func over(name string, m Meta, dir, data *os.File) (*Layer, error) {
	host, err := openDir(m.Target)
	if err != nil {
		return nil, fmt.Errorf("open the tree of layer %q: %v", name, err) //nolint:errorlint // it is not the layer that is missing
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(host.Fd()), &st); err != nil {
		host.Close()
		return nil, err
	}
	if (Base{st.Dev, st.Ino}) != m.Base && m.Base != (Base{}) {
		host.Close()
		return nil, fmt.Errorf("open the tree of layer %q: %q is another directory than the one the layer was made over", name, m.Target)
	}
	return &Layer{Meta: m, Name: name, dir: dir, data: data, host: host}, nil
}

// Close closes what the layer opened.
func (l *Layer) Close() error {
	errs := []error{l.data.Close(), l.host.Close()}
	if l.dir != nil {
		errs = append(errs, l.dir.Close())
	}
	return errors.Join(errs...)
}

// Empty tells whether nothing was changed yet: an overlay without entries.
func (l *Layer) Empty() (bool, error) {
	if l.Method == Copy {
		return false, nil
	}
	names, err := readNames(int(l.data.Fd()))
	return len(names) == 0, err
}

// Refresh begins an empty layer anew: from now on changes of the host count as
// made by others. A run calls it before its command starts.
func (l *Layer) Refresh() error {
	empty, err := l.Empty()
	if err != nil || !empty {
		return err
	}
	l.Created = time.Now()
	if err := unix.Unlinkat(int(l.dir.Fd()), knownName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return l.Meta.Write(l.dir)
}

// Unfinished tells whether a commit of the layer in a directory was broken off.
func Unfinished(layerDir string) bool {
	return unix.Access(filepath.Join(layerDir, journalName), unix.F_OK) == nil
}

// Unfinished is the same for an open layer.
func (l *Layer) Unfinished() bool {
	var st unix.Stat_t
	return l.dir != nil && unix.Fstatat(int(l.dir.Fd()), journalName, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

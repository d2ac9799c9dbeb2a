package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// outsideEntries bounds the look at a tree after a run: beyond it nothing is
// said.
const outsideEntries = 200_000

// warnOutside says when the host's tree of an overlay was changed while the run
// was up: what the command saw of those files is not defined then, see
// overlayfs in the kernel's documentation. Where the command has changed
// nothing, nothing comes of it.
func (l *launch) warnOutside(layers []sandbox.Layer) {
	for _, layer := range layers {
		if layer.Method != sandbox.MethodOverlay || isEmpty(layer.Upper) {
			continue
		}
		o := outside{since: l.layers.began, skip: l.prep.plan.PassThrough(layer.Target), left: outsideEntries}
		if path := o.look(layer.Target); path != "" {
			l.voice.warn(fmt.Sprintf("%q was changed outside during the run: what the command saw of it may be neither the old nor the new state", path))
		}
	}
}

// isEmpty reads a directory through a descriptor of its own.
func isEmpty(dir *os.File) bool {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// outside looks for what was changed in a tree after a moment.
type outside struct {
	since time.Time
	skip  map[string]bool // trees that are written to on purpose
	left  int
}

// look gives the first entry found, "" if there is none. What is closed to us,
// or gone, is passed by.
func (o *outside) look(dir string) string {
	f, err := os.Open(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return ""
	}
	fd, since := int(f.Fd()), o.since.UnixNano()
	var below []string
	var st unix.Stat_t
	for _, name := range names {
		if o.left--; o.left < 0 {
			return ""
		}
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || len(o.skip) > 0 && o.skip[filepath.Join(dir, name)] {
			continue
		}
		if st.Ctim.Nano() > since {
			return filepath.Join(dir, name)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			below = append(below, filepath.Join(dir, name))
		}
	}
	for _, path := range below {
		if found := o.look(path); found != "" {
			return found
		}
	}
	return ""
}

package state

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// step is one thing that a commit does to the host. It is repeatable: whether it
// was done can be seen.
type step struct {
	Do stepKind `json:"do"`
	// Path is base64 in the file: names need not be text.
	Path []byte `json:"path"`
	// Old is the host's entry as it was reviewed; zero when there was none.
	Old identity `json:"old,omitzero"`
	// New is the layer's entry.
	New  identity `json:"new,omitzero"`
	Mode uint32   `json:"mode,omitempty"`
	// Target is of a symbolic link.
	Target []byte `json:"target,omitempty"`
	// Move lets the layer's own file become the host's.
	Move bool `json:"move,omitempty"`
	// Late puts it after the removals: a directory of the host makes room for it.
	Late bool `json:"late,omitempty"`
}

type stepKind string

const (
	stepOpen   stepKind = "open" // a directory of the host for writing, until stepMode
	stepMkdir  stepKind = "mkdir"
	stepFile   stepKind = "file"
	stepLink   stepKind = "symlink"
	stepRemove stepKind = "remove" // anything but a directory
	stepRmdir  stepKind = "rmdir"
	stepMode   stepKind = "mode" // of a directory
)

// journal is a commit that was decided. It is on disk before the first step and
// until after the last, so that a commit that was broken off can be finished.
type journal struct {
	// Id is part of the names of temporary files.
	Id    string `json:"id"`
	Steps []step `json:"-"`
	// Keep are the entries of the layer that are not committed.
	Keep [][]byte `json:"keep,omitempty"`
	// Held are those of them that nobody looked into.
	Held  [][]byte `json:"held,omitempty"`
	Count int      `json:"steps"`
}

func newJournal() journal {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return journal{Id: hex.EncodeToString(b[:])}
}

// temp is the name of the temporary file of a step.
func (j journal) temp(i int) string { return fmt.Sprintf(".hermes-wrap-%s-%d", j.Id, i) }

// writeJournal puts a journal on disk.
func (l *Layer) writeJournal(j journal) error {
	j.Count = len(j.Steps)
	return writeWith(int(l.dir.Fd()), journalName, true, func(w io.Writer) error {
		e := json.NewEncoder(w)
		if err := e.Encode(j); err != nil {
			return err
		}
		for _, s := range j.Steps {
			if err := e.Encode(s); err != nil {
				return err
			}
		}
		return nil
	})
}

// readJournal reads the journal of a commit that was broken off.
func (l *Layer) readJournal() (j journal, err error) {
	f, err := openFile(int(l.dir.Fd()), journalName, unix.O_RDONLY)
	if err != nil {
		return j, err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	if err := d.Decode(&j); err != nil {
		return j, fmt.Errorf("read %q: %w", journalName, err)
	}
	j.Steps = make([]step, j.Count)
	for i := range j.Steps {
		if err := d.Decode(&j.Steps[i]); err != nil {
			return j, fmt.Errorf("read %q: step %d: %w", journalName, i, err)
		}
	}
	return j, nil
}

// dropJournal ends a commit.
func (l *Layer) dropJournal() error {
	dir := int(l.dir.Fd())
	if err := unix.Unlinkat(dir, journalName, 0); err != nil {
		return err
	}
	return unix.Fsync(dir)
}

// knownEntry is one line of the file of what commits of ours put on the host:
// it is newer than the layer, and still no change of anybody else's.
type knownEntry struct {
	Path []byte   `json:"path"`
	Is   identity `json:"is"`
}

func (l *Layer) readKnown() (map[string]identity, error) {
	f, err := openFile(int(l.dir.Fd()), knownName, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := map[string]identity{}
	for d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20)); ; {
		var k knownEntry
		if err := d.Decode(&k); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return known, nil // the last line of a write that was broken off
		} else if err != nil {
			return nil, fmt.Errorf("read %q: %w", knownName, err)
		}
		known[string(k.Path)] = k.Is
	}
}

// noteKnown adds what a commit put on the host.
func (l *Layer) noteKnown(j journal) error {
	known, err := l.readKnown()
	if err != nil {
		return err
	}
	if known == nil {
		known = map[string]identity{}
	}
	host := parents{root: int(l.host.Fd())}
	defer host.close()
	for _, s := range j.Steps {
		if s.Do != stepFile && s.Do != stepLink {
			continue
		}
		dir, name, err := host.of(string(s.Path))
		if err != nil {
			continue // the host lost it by now
		}
		if st, there, err := statAt(dir, name); err == nil && there {
			known[string(s.Path)] = identify(st)
		}
	}
	return writeWith(int(l.dir.Fd()), knownName, true, func(w io.Writer) error {
		e := json.NewEncoder(w)
		for path, is := range known {
			if err := e.Encode(knownEntry{[]byte(path), is}); err != nil {
				return err
			}
		}
		return nil
	})
}

// parents opens the directories that paths lie in, below one root. Paths that
// come in order share them.
type parents struct {
	root int
	rel  string
	fd   int
	open bool
}

func (p *parents) of(path string) (dir int, name string, err error) {
	rel, name := split(path)
	if rel == "" {
		return p.root, name, nil
	}
	if p.open && p.rel == rel {
		return p.fd, name, nil
	}
	p.close()
	fd, err := openBelow(p.root, rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, name, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	p.fd, p.rel, p.open = fd, rel, true
	return fd, name, nil
}

func (p *parents) close() {
	if p.open {
		_ = unix.Close(p.fd)
	}
	p.open = false
}

// phases orders steps so that a parent is there before its children, and gone
// after them.
func phases(steps []step) {
	rank := func(s step) int {
		switch {
		case s.Do == stepOpen:
			return 0
		case s.Do == stepMkdir:
			return 1
		case s.Do == stepMode:
			return 5
		case s.Do == stepRemove, s.Do == stepRmdir:
			return 3
		case s.Late:
			return 4
		}
		return 2
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		r := rank(a)
		if other := rank(b); r != other {
			return r - other
		}
		c := comparePaths(string(a.Path), string(b.Path))
		if r == 3 || r == 5 {
			return -c
		}
		return c
	})
}

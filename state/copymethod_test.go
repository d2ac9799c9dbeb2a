package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/state/overlaytest"
)

// newCopy is a layer that is a copy of the tree.
func newCopy(t *testing.T, files map[string]string) (s stand, tree string) {
	t.Helper()
	s = newStand(t, temp(t), files)
	tree = filepath.Join(s.dir, treeName)
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := openDir(s.host)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := openDir(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	dir, err := openDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	m, err := NewMeta(s.host, Copy, "directory")
	if err != nil {
		t.Fatal(err)
	}
	m.Ready = m.Created
	// What is changed from here on is later, also by the clock of the file system.
	for probe := filepath.Join(s.dir, "probe"); ; {
		put(t, probe, "x")
		if changed(t, probe).After(m.Created.Add(20 * time.Millisecond)) {
			break
		}
	}
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return s, tree
}

// TestCopies: with a copy the same holds as with an overlay, and what came to the
// host meanwhile is its own.
func TestCopies(t *testing.T) {
	s, tree := newCopy(t, map[string]string{"a": "1", "b": "1", "c": "1", "d/x": "1", "d/y": "1", "e": "1"})
	t.Chdir(tree)
	for _, op := range []overlaytest.Op{
		{Do: "write", Path: "a", To: "2"}, {Do: "write", Path: "b", To: "2"}, {Do: "remove", Path: "d"}, {Do: "mkdir", Path: "n"}, {Do: "write", Path: "n/f", To: "2"},
	} {
		if err := overlaytest.Do(op); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(s.host, "b"), "3")
	put(t, filepath.Join(s.host, "c"), "3")
	put(t, filepath.Join(s.host, "mine"), "3")
	put(t, filepath.Join(s.host, "d/mine"), "3")
	if err := os.Remove(filepath.Join(s.host, "e")); err != nil {
		t.Fatal(err)
	}
	l := s.open(t)
	changes := diff(t, l)
	if got, want := list(changes), "modified a content\nmodified b content conflict\ndeleted d/x\ndeleted d/y\nadded n\nadded n/f"; got != want {
		t.Fatalf("changes:\ngot\n%s\nwant\n%s", got, want)
	}
	if _, err := l.Discard(changes, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("b"); err != nil || string(got) != "3" {
		t.Errorf("b after a discard: got %q, %v, want the host's", got, err)
	}
	if err := l.Commit(l.Plan(diff(t, l), CommitOptions{})); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a": "2", "b": "3", "c": "3", "mine": "3", "d/mine": "3", "n/f": "2"} {
		if got, err := os.ReadFile(filepath.Join(s.host, path)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	if got := list(diff(t, l)); got != "" {
		t.Errorf("left: got %q, want nothing", got)
	}
	if err := l.DiscardAll(); err != nil {
		t.Fatal(err)
	}
	if all, err := OpenAll(filepath.Dir(s.dir)); err != nil || len(all) > 0 {
		t.Errorf("after all: got %d layers, %v, want none", len(all), err)
	}
}

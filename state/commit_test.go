package state

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hermes-wrap/hermes-wrap/state/overlaytest"
)

func TestMain(m *testing.M) {
	overlaytest.Main()
	os.Exit(m.Run())
}

// stand is a tree on the host and an overlay's layer over it.
type stand struct {
	host, dir string
}

func newStand(t testing.TB, root string, files map[string]string) stand {
	t.Helper()
	s := stand{filepath.Join(root, "host"), filepath.Join(root, "layers", "workspace")}
	for _, d := range []string{s.host, s.dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		put(t, filepath.Join(s.host, name), files[name])
	}
	m, err := NewMeta(s.host, Overlay, "directory")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (s stand) open(t testing.TB) *Layer {
	t.Helper()
	l, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (s stand) manifest(t testing.TB) map[string]string {
	t.Helper()
	m, err := overlaytest.Manifest(s.host)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func diff(t testing.TB, l *Layer) []Change {
	t.Helper()
	changes, err := l.Diff()
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// ops draws random changes of a small tree, so that they meet.
func ops(t *rapid.T) []overlaytest.Op {
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	path := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(name, 1, 3).Draw(t, "path"), "/")
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) overlaytest.Op {
		op := overlaytest.Op{Do: rapid.SampledFrom([]string{"write", "write", "append", "mkdir", "remove", "rename", "symlink", "link", "chmod"}).Draw(t, "do"), Path: path.Draw(t, "path")}
		switch op.Do {
		case "write", "append":
			op.To = rapid.SampledFrom([]string{"", "x", "yy", "zzz"}).Draw(t, "content")
		case "rename", "link":
			op.To = path.Draw(t, "to")
		case "symlink":
			op.To = rapid.SampledFrom([]string{"a", "../b", "nowhere", "/proc/nowhere/file"}).Draw(t, "target")
		case "chmod":
			op.Mode = rapid.SampledFrom([]uint32{0o600, 0o644, 0o755, 0o700, 0o500, 0o555}).Draw(t, "mode")
		}
		return op
	}), 0, 12).Draw(t, "ops")
}

// lower makes the host's tree by random changes.
func lower(t *rapid.T, host string) {
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(host); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chdir(back) }()
	for _, op := range ops(t) {
		if op.Do != "chmod" {
			_ = overlaytest.Do(op)
		}
	}
}

// TestCommitGivesTheMergedTree: whatever is done through an overlay, a commit
// makes the host's tree what the overlay showed, and leaves nothing to commit.
func TestCommitGivesTheMergedTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root, remove, err := overlaytest.Root()
		if err != nil {
			rt.Fatal(err)
		}
		defer remove()
		s := newStand(t, root, nil)
		lower(rt, s.host)
		want := overlaytest.Apply(t, s.host, s.dir, ops(rt))
		l, err := Open(s.dir)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		changes, err := l.Diff()
		if err != nil {
			rt.Fatal(err)
		}
		plan := l.Plan(changes, CommitOptions{AcceptExec: true, AcceptLinks: true, Force: true})
		if err := l.Commit(plan); err != nil {
			rt.Fatalf("commit: %v", err)
		}
		got, err := overlaytest.Manifest(s.host)
		if err != nil {
			rt.Fatal(err)
		}
		if d := overlaytest.Difference(got, want); d != "" {
			rt.Fatalf("host after commit:\n%s", d)
		}
		if empty, err := l.Empty(); err != nil || !empty {
			rt.Fatalf("layer after a whole commit: empty %v, %v", empty, err)
		}
	})
}

// TestPartsComeTogether: committing path by path keeps the merged tree the same
// at every moment, and ends where a whole commit ends.
func TestPartsComeTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root, remove, err := overlaytest.Root()
		if err != nil {
			rt.Fatal(err)
		}
		defer remove()
		s := newStand(t, root, nil)
		lower(rt, s.host)
		want := overlaytest.Apply(t, s.host, s.dir, ops(rt))
		for range 3 {
			l, err := Open(s.dir)
			if err != nil {
				rt.Fatal(err)
			}
			changes, err := l.Diff()
			if err != nil {
				rt.Fatal(err)
			}
			if len(changes) == 0 {
				_ = l.Close()
				break
			}
			one := rapid.SampledFrom(changes).Draw(rt, "change")
			plan := l.Plan(changes, CommitOptions{Paths: []string{one.Path}, AcceptExec: true, AcceptLinks: true, Force: true})
			if err := l.Commit(plan); err != nil {
				rt.Fatalf("commit %q: %v", one.Path, err)
			}
			_ = l.Close()
			if d := overlaytest.Difference(overlaytest.Apply(t, s.host, s.dir, nil), want); d != "" {
				rt.Fatalf("merged tree after committing %q:\n%s", one.Path, d)
			}
		}
	})
}

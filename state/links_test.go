package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/hermes-wrap/hermes-wrap/state/overlaytest"
)

// TestLinksThatStayStay: however links are chained, those that are said to stay in
// the tree lead nowhere else.
func TestLinksThatStayStay(t *testing.T) {
	base := temp(t)
	part := rapid.SampledFrom([]string{"..", ".", "a", "b", "l0", "l1", "l2", "l3", ""})
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp(base, "links-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(root)
		tree := filepath.Join(root, "x", "tree")
		if err := os.MkdirAll(filepath.Join(tree, "a", "b"), 0o755); err != nil {
			rt.Fatal(err)
		}
		dirs := []string{"", "a", "a/b"}
		var links []string
		for i := range 4 {
			rel := below(rapid.SampledFrom(dirs).Draw(rt, "dir"), "l"+string(rune('0'+i)))
			target := strings.Join(rapid.SliceOfN(part, 1, 5).Draw(rt, "target"), "/")
			if rapid.Bool().Draw(rt, "absolute") {
				target = tree + "/" + target
			}
			if target != "" && !leadsOut(rel, target, tree) && os.Symlink(target, filepath.Join(tree, rel)) == nil {
				links = append(links, rel)
			}
		}
		for _, l := range links {
			if real, err := filepath.EvalSymlinks(filepath.Join(tree, l)); err == nil && real != tree && !strings.HasPrefix(real, tree+"/") {
				rt.Fatalf("%s leads to %s, want it in %s", l, real, tree)
			}
		}
	})
}

// TestUnreadable: what cannot be reviewed is not committed. Root reads everything.
func TestUnreadable(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"a": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "n", To: "hidden"}, overlaytest.Op{Do: "chmod", Path: "n"}, overlaytest.Op{Do: "write", Path: "a", To: "2"})
	want := "modified a content\nadded n held"
	if os.Geteuid() == 0 {
		want = "modified a content\nadded n"
	}
	l := s.open(t)
	changes := diff(t, l)
	if got := list(changes); got != want {
		t.Errorf("changes: got %q, want %q", got, want)
	}
	if err := l.Commit(l.Plan(changes, CommitOptions{})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(s.host, "n")); (err == nil) != (os.Geteuid() == 0) {
		t.Errorf("the hidden file on the host: got %v", err)
	}
}

// TestHeldTreesStay: what lies in a directory that cannot be committed is still in
// the layer after everything else was.
func TestHeldTreesStay(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"a": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "a", To: "2"}, overlaytest.Op{Do: "mkdir", Path: "p"}, overlaytest.Op{Do: "write", Path: "p/f", To: "kept"})
	if err := unix.Mkfifo(filepath.Join(s.host, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := s.open(t)
	changes := diff(t, l)
	if got, want := list(changes), "modified a content\nmodified p held"; got != want {
		t.Errorf("changes: got %q, want %q", got, want)
	}
	if err := l.Commit(l.Plan(changes, CommitOptions{})); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, upperName, "p/f")); err != nil || string(got) != "kept" {
		t.Errorf("in the layer: got %q, %v, want it kept", got, err)
	}
}

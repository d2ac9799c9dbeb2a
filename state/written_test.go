package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWritten: what was written since is found by its change time, links are not
// followed, and old files are left alone.
func TestWritten(t *testing.T) {
	root := t.TempDir()
	tree := filepath.Join(root, "tree")
	for _, p := range []string{"Makefile", "old/package.json", "src/main.go", ".git/objects/ab/Makefile"} {
		put(t, filepath.Join(tree, p), "x")
	}
	put(t, filepath.Join(root, "outside/package.json"), "x")
	moment := changed(t, filepath.Join(root, "outside/package.json"))
	for later := false; !later; later = changed(t, filepath.Join(tree, "src/main.go")).After(moment) {
		put(t, filepath.Join(tree, "src/main.go"), "y")
	}
	since := changed(t, filepath.Join(tree, "src/main.go"))
	if err := os.Symlink("../outside", filepath.Join(tree, "away")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"Makefile", ".vscode/tasks.json", "node_modules/a/package.json", "node_modules/b/package.json", ".git/objects/ab/Makefile"} {
		put(t, filepath.Join(tree, p), "z")
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(tree, "Makefile"), past, past); err != nil {
		t.Fatal(err)
	}
	found, whole, err := Written(tree, since)
	if err != nil || !whole {
		t.Fatalf("look: got %v, whole %t", err, whole)
	}
	groups, counts := Grouped(found)
	var got []string
	for i, c := range groups {
		if counts[i] > 1 {
			c.Path += "…"
		}
		got = append(got, c.Path)
	}
	if want := "Makefile .vscode/tasks.json node_modules/…"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, " "), want)
	}
}

func changed(t *testing.T, path string) time.Time {
	t.Helper()
	dir, err := openDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	st, _, err := statAt(int(dir.Fd()), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, st.Ctim.Nano())
}

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOutside(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a/b", "granted"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(name string) time.Time {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return time.Unix(st.Ctim.Unix())
	}
	// The clock of files moves in ticks; the file is to be newer than the
	// directories above.
	made := changed("granted")
	now := made
	for end := time.Now().Add(time.Minute); !now.After(made) && time.Now().Before(end); now = changed("a/b/file") {
		if err := os.WriteFile(filepath.Join(dir, "a/b/file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look := func(since time.Time, left int, skip ...string) string {
		o := outside{since: since, left: left, skip: map[string]bool{}}
		for _, s := range skip {
			o.skip[filepath.Join(dir, s)] = true
		}
		found := o.look(dir)
		if found == "" {
			return ""
		}
		return "found"
	}
	for _, c := range []struct{ name, got, want string }{
		{"nothing since", look(now, 100), ""},
		{"a file, and the directory that holds it", look(now.Add(-1), 100), "found"},
		{"out of reach", look(now.Add(-1), 1), ""},
		{"granted for writing", look(now.Add(-time.Hour), 100, "a", "granted"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, c.got, c.want)
		}
	}
}

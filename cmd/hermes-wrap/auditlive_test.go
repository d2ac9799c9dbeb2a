package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A run is live while its launcher holds the directory, and not while another
// one removes what a killed launcher left.
func TestLiveRuns(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "a")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		name string
		how  int
		want bool
	}{
		{"nobody", unix.LOCK_UN, false},
		{"the launcher", unix.LOCK_SH, true},
		{"a sweeper", unix.LOCK_EX, false},
	} {
		if err := unix.Flock(int(f.Fd()), c.how); err != nil {
			t.Fatal(err)
		}
		if got := runs(base).live("a"); got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
	if runs(base).live("b") {
		t.Error("no directory: got live")
	}
}

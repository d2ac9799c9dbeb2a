package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestUsageWait(t *testing.T) {
	c := Cow{Size: 1 << 30, Inodes: 100_000}
	cases := []struct {
		name string
		u    usage
		cost time.Duration
		want time.Duration
	}{
		{"empty", usage{}, 0, diskSlowest},
		{"half", usage{Bytes: 1 << 29}, 0, diskSlowest / 2},
		{"near in bytes", usage{Bytes: 1<<30 - 1}, 0, diskFastest},
		{"near in files", usage{Files: 99_999}, 0, diskFastest},
		{"many files take long to count", usage{Files: 99_999}, time.Second, diskShare * time.Second},
	}
	for _, tc := range cases {
		if got := tc.u.wait(c, tc.cost); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestUsageJudge(t *testing.T) {
	for _, tc := range []struct {
		u    usage
		c    Cow
		want string
	}{
		{usage{10, 10}, Cow{}, ""},
		{usage{10, 10}, Cow{Size: 10, Inodes: 10}, ""},
		{usage{11, 10}, Cow{Size: 10, Inodes: 10}, diskKey},
		{usage{10, 11}, Cow{Size: 10, Inodes: 10}, filesKey},
	} {
		var over *DiskError
		if err := tc.u.judge(tc.c); (err == nil) != (tc.want == "") || errors.As(err, &over) && over.Key != tc.want {
			t.Errorf("%v of %v: got %v, want %q", tc.u, tc.c, err, tc.want)
		}
	}
}

// TestMeasure counts a file with two names once, holes not at all, and what is
// not there any more neither.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(
		os.Mkdir(sub, 0o700), os.WriteFile(filepath.Join(sub, "a"), make([]byte, 1<<20), 0o600),
		os.Link(filepath.Join(sub, "a"), filepath.Join(dir, "b")), os.WriteFile(filepath.Join(dir, "hole"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "hole"), 1<<40), os.Symlink("/", filepath.Join(dir, "out")),
	); err != nil {
		t.Fatal(err)
	}
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	u, err := measure(t.Context(), []*os.File{top}, Cow{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if u.Files != 4 || u.Bytes < 1<<20 || u.Bytes > 2<<20 {
		t.Errorf("got %+v, want 4 files and some 1 MiB", u)
	}
}

// TestTick: what is changed after a copy has a later ctime than its moment.
func TestTick(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "copied"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ready, err := tick(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "changed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, later := range map[string]bool{"copied": false, "changed": true} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		if (st.Ctim.Nano() > ready) != later {
			t.Errorf("%s: got ctime %d, want later than %d: %v", name, st.Ctim.Nano(), ready, later)
		}
	}
}

package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/state/overlaytest"
)

// temp is a directory of the test's own in which layers can lie.
func temp(t testing.TB) string {
	t.Helper()
	dir, remove, err := overlaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return dir
}

func (s stand) apply(t testing.TB, ops ...overlaytest.Op) {
	t.Helper()
	overlaytest.Apply(t, s.host, s.dir, ops)
}

// words is a change in a line: the kind, what it is about, and what is noted.
func words(c Change) string {
	s := fmt.Sprintf("%s %s", c.Kind, c.Path)
	for _, a := range c.Aspects {
		s += " " + a
	}
	if c.From != "" {
		s += " from=" + c.From
	}
	if c.Conflict != "" {
		s += " conflict"
	}
	if c.Held != "" {
		s += " held"
	}
	if c.Leads {
		s += " leads"
	}
	if c.Runs != "" {
		s += " runs"
	}
	for _, d := range c.Dropped {
		s += " -" + d
	}
	return s
}

func list(changes []Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, words(c))
	}
	return strings.Join(lines, "\n")
}

func TestDiff(t *testing.T) {
	files := map[string]string{"a": "aa", "b": "bb", "d/x": "xx", "d/y": "yy", "e/f/g": "gg", "link": "target"}
	for _, tc := range []struct {
		name string
		ops  []overlaytest.Op
		want string
	}{
		{"nothing", nil, ""},
		{"touched only", []overlaytest.Op{{Do: "append", Path: "a"}}, ""},
		{"content", []overlaytest.Op{{Do: "write", Path: "a", To: "zz"}}, "modified a content"},
		{"mode", []overlaytest.Op{{Do: "chmod", Path: "a", Mode: 0o600}}, "modified a mode"},
		{"setuid", []overlaytest.Op{{Do: "write", Path: "n", To: "1"}, {Do: "chmod", Path: "n", Mode: 0o6755}}, "added n -setuid -setgid"},
		{"deleted tree", []overlaytest.Op{{Do: "remove", Path: "d"}}, "deleted d\ndeleted d/x\ndeleted d/y"},
		{"replaced tree", []overlaytest.Op{{Do: "remove", Path: "d"}, {Do: "write", Path: "z", To: "z"}, {Do: "mkdir", Path: "d"}, {Do: "write", Path: "d/x", To: "xx"}}, "deleted d/y\nadded z"},
		{"file to directory", []overlaytest.Op{{Do: "remove", Path: "a"}, {Do: "mkdir", Path: "a"}, {Do: "write", Path: "a/n", To: "n"}}, "modified a type\nadded a/n"},
		{"directory to file", []overlaytest.Op{{Do: "remove", Path: "d"}, {Do: "write", Path: "d", To: "d"}}, "modified d type\ndeleted d/x\ndeleted d/y"},
		{"renamed", []overlaytest.Op{{Do: "rename", Path: "b", To: "c"}}, "deleted b\nadded c from=b"},
		{"pipe", []overlaytest.Op{{Do: "fifo", Path: "p"}}, "added p held"},
		{"link within", []overlaytest.Op{{Do: "symlink", Path: "e/f/l", To: "../../a"}}, "added e/f/l"},
		{"link out", []overlaytest.Op{{Do: "symlink", Path: "e/l", To: "../../a"}}, "added e/l leads"},
		{"link out by another link", []overlaytest.Op{{Do: "symlink", Path: "s", To: "."}, {Do: "symlink", Path: "l", To: "s/../x"}}, "added l leads\nadded s"},
		{"hook", []overlaytest.Op{{Do: "mkdir", Path: ".git/hooks"}, {Do: "write", Path: ".git/hooks/pre-commit", To: "#!"}}, "added .git\nadded .git/hooks\nadded .git/hooks/pre-commit runs"},
		{"program", []overlaytest.Op{{Do: "mkdir", Path: "bin"}, {Do: "write", Path: "bin/ls", To: "#!"}, {Do: "chmod", Path: "bin/ls", Mode: 0o755}}, "added bin\nadded bin/ls runs"},
		{"repository without .git", []overlaytest.Op{{Do: "mkdir", Path: "r"}, {Do: "write", Path: "r/HEAD"}, {Do: "write", Path: "r/config", To: "[core]"}}, "added r\nadded r/HEAD runs\nadded r/config runs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStand(t, temp(t), files)
			s.apply(t, tc.ops...)
			if got := list(diff(t, s.open(t))); got != tc.want {
				t.Errorf("changes:\ngot\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestConflicts: what changed on the host since the layer was made is a
// conflict, whatever times its owner sets; what a commit put there is none.
func TestConflicts(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"a": "1", "b": "1", "c": "1", "d/x": "1", "o/x": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "a", To: "2"}, overlaytest.Op{Do: "append", Path: "b", To: "2"}, overlaytest.Op{Do: "write", Path: "c", To: "2"},
		overlaytest.Op{Do: "remove", Path: "d"}, overlaytest.Op{Do: "remove", Path: "o"}, overlaytest.Op{Do: "mkdir", Path: "o"}, overlaytest.Op{Do: "write", Path: "n", To: "2"})
	put(t, filepath.Join(s.host, "a"), "3")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(s.host, "a"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.host, "b")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/new", "n", "o/new"} {
		put(t, filepath.Join(s.host, name), "3")
	}
	l := s.open(t)
	want := "modified a content conflict\nadded b\nmodified c content\ndeleted d\ndeleted d/new conflict\ndeleted d/x\nmodified n content conflict\ndeleted o/new conflict\ndeleted o/x"
	changes := diff(t, l)
	if got := list(changes); got != want {
		t.Fatalf("changes:\ngot\n%s\nwant\n%s", got, want)
	}
	before := s.manifest(t)
	if p := l.Plan(changes, CommitOptions{}); !p.Refused() || len(p.Conflicts) != 4 || l.Commit(p) == nil {
		t.Errorf("plan: got %d conflicts, want 4 and a refusal", len(p.Conflicts))
	}
	if d := overlaytest.Difference(s.manifest(t), before); d != "" {
		t.Errorf("host after a refusal:\n%s", d)
	}
	if err := l.Commit(l.Plan(changes, CommitOptions{Paths: []string{"c"}})); err != nil {
		t.Fatal(err)
	}
	s.apply(t, overlaytest.Op{Do: "write", Path: "c", To: "4"})
	for _, c := range diff(t, l) {
		if c.Path == "c" && c.Conflict != "" {
			t.Errorf("after a commit of ours: got conflict %q, want none", c.Conflict)
		}
	}
}

// TestHostLinksAreNotFollowed: a symbolic link on the host, whoever made it, leads
// no write out of the tree.
func TestHostLinksAreNotFollowed(t *testing.T) {
	root := temp(t)
	outside := filepath.Join(root, "outside")
	put(t, filepath.Join(outside, "x"), "precious")
	s := newStand(t, root, map[string]string{"d/x": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "d/x", To: "evil"}, overlaytest.Op{Do: "write", Path: "d/n", To: "evil"})
	l := s.open(t)
	p := l.Plan(diff(t, l), CommitOptions{Force: true})
	if err := os.RemoveAll(filepath.Join(s.host, "d")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(s.host, "d")); err != nil {
		t.Fatal(err)
	}
	// Control: the path leads there.
	if b, err := os.ReadFile(filepath.Join(s.host, "d/x")); err != nil || string(b) != "precious" {
		t.Fatalf("control: got %q, %v, want the file outside", b, err)
	}
	if err := l.Commit(p); err == nil {
		t.Error("commit through a link: got no error")
	}
	if b, err := os.ReadFile(filepath.Join(outside, "x")); err != nil || string(b) != "precious" {
		t.Errorf("the file outside: got %q, %v, want it as it was", b, err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "n")); err == nil {
		t.Error("a file appeared outside the tree")
	}
}

// TestNothingGivesRights: modes and attributes that give rights stay behind.
func TestNothingGivesRights(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"a": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "a", To: "2"}, overlaytest.Op{Do: "chmod", Path: "a", Mode: 0o6777},
		overlaytest.Op{Do: "xattr", Path: "a", To: "user.note"}, overlaytest.Op{Do: "link", Path: "a", To: "b"})
	l := s.open(t)
	if err := l.Commit(l.Plan(diff(t, l), CommitOptions{})); err != nil {
		t.Fatal(err)
	}
	var a, b unix.Stat_t
	if err := unix.Lstat(filepath.Join(s.host, "a"), &a); err != nil {
		t.Fatal(err)
	}
	if err := unix.Lstat(filepath.Join(s.host, "b"), &b); err != nil {
		t.Fatal(err)
	}
	if a.Mode&0o7777 != 0o777 || a.Nlink != 1 || a.Ino == b.Ino {
		t.Errorf("a: got mode %o, %d names, want 0777 and a file of its own", a.Mode&0o7777, a.Nlink)
	}
	names, err := xattrs(filepath.Join(s.host, "a"))
	if err != nil || strings.Join(names, " ") != "user.note" {
		t.Errorf("attributes: got %q, %v, want user.note alone", names, err)
	}
}

// TestParts: what is committed or discarded by path, and what is refused.
func TestParts(t *testing.T) {
	files := map[string]string{"a": "1", "d/x": "1", "d/y": "1", "k": "1"}
	change := []overlaytest.Op{
		{Do: "write", Path: "a", To: "2"},
		{Do: "remove", Path: "d"},
		{Do: "mkdir", Path: "d"},
		{Do: "write", Path: "d/x", To: "2"},
		{Do: "mkdir", Path: "new/deep"},
		{Do: "write", Path: "new/deep/f", To: "2"},
		{Do: "write", Path: "new/g", To: "2"},
		{Do: "remove", Path: "k"},
		{Do: "write", Path: "Makefile", To: "all:"},
	}
	t.Run("commit", func(t *testing.T) {
		s := newStand(t, temp(t), files)
		s.apply(t, change...)
		l := s.open(t)
		if err := l.Commit(l.Plan(diff(t, l), CommitOptions{Paths: []string{"new/deep/f", "d/x"}})); err != nil {
			t.Fatal(err)
		}
		if got, want := list(diff(t, l)), "added Makefile runs\nmodified a content\ndeleted d/y\ndeleted k\nadded new/g"; got != want {
			t.Errorf("left:\ngot\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("except exec", func(t *testing.T) {
		s := newStand(t, temp(t), files)
		s.apply(t, change...)
		l := s.open(t)
		changes := diff(t, l)
		if p := l.Plan(changes, CommitOptions{}); len(p.Exec) != 1 || !p.Refused() {
			t.Fatalf("plan: got %v, want it refused for the Makefile", list(p.Exec))
		}
		if err := l.Commit(l.Plan(changes, CommitOptions{ExceptExec: true})); err != nil {
			t.Fatal(err)
		}
		if got, want := list(diff(t, l)), "added Makefile runs"; got != want {
			t.Errorf("left: got %q, want %q", got, want)
		}
	})
	t.Run("discard", func(t *testing.T) {
		s := newStand(t, temp(t), files)
		s.apply(t, change...)
		l := s.open(t)
		changes := diff(t, l)
		if _, err := l.Discard(changes, []string{"d/x"}); err == nil || !strings.Contains(err.Error(), `discard "d"`) {
			t.Errorf("within a replaced directory: got %v, want a refusal that names it", err)
		}
		if _, err := l.Discard(changes, []string{"d", "k", "new/deep"}); err != nil {
			t.Fatal(err)
		}
		if got, want := list(diff(t, l)), "added Makefile runs\nmodified a content\nadded new\nadded new/g"; got != want {
			t.Errorf("left:\ngot\n%s\nwant\n%s", got, want)
		}
		if err := l.DiscardAll(); err != nil {
			t.Fatal(err)
		}
		if got := list(diff(t, l)); got != "" {
			t.Errorf("after all: got %q, want nothing", got)
		}
	})
}

// TestDeepTreesAreRemoved: depth is the agent's choice.
func TestDeepTreesAreRemoved(t *testing.T) {
	dir, err := openDir(temp(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	for i := range 3000 {
		if err := unix.Mkdirat(fd, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := openBelow(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			_ = unix.Close(fd)
		}
		fd = next
	}
	_ = unix.Close(fd)
	if err := removeTree(int(dir.Fd()), "d"); err != nil {
		t.Fatal(err)
	}
	if names, err := readNames(int(dir.Fd())); err != nil || len(names) > 0 {
		t.Errorf("left: got %q, %v, want nothing", names, err)
	}
}

// TestHostileNames: a name is bytes; each comes through the journal as it is.
func TestHostileNames(t *testing.T) {
	names := []string{"a\nb", "\xff\xfe", "-rf", "\x1b[31mred", " ", "..a", `q"uote`, "\u202etxt", strings.Repeat("n", 255), "trash-x", ".hermes-wrap-1-2"}
	s := newStand(t, temp(t), map[string]string{"d/x": "1"})
	if err := os.Mkdir(filepath.Join(s.dir, upperName), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		put(t, filepath.Join(s.dir, upperName, "d", n, n), n)
	}
	l := s.open(t)
	if err := l.Commit(l.Plan(diff(t, l), CommitOptions{})); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if got, err := os.ReadFile(filepath.Join(s.host, "d", n, n)); err != nil || string(got) != n {
			t.Errorf("%q: got %q, %v, want its name", n, got, err)
		}
	}
	if got := list(diff(t, l)); got != "" {
		t.Errorf("left: got %q, want nothing", got)
	}
}

// TestBrokenCommit: what stops a commit in its middle is seen by everybody, keeps
// the rest in the layer, and the repair finishes it without overwriting the host's.
func TestBrokenCommit(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"a": "1", "b": "1", "c": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "a", To: "2"}, overlaytest.Op{Do: "write", Path: "b", To: "2"}, overlaytest.Op{Do: "write", Path: "c", To: "2"})
	l := s.open(t)
	p := l.Plan(diff(t, l), CommitOptions{})
	put(t, filepath.Join(s.host, "b"), "host")
	if err := l.Commit(p); err == nil || !l.Unfinished() || !Unfinished(s.dir) {
		t.Fatalf("commit: got %v, unfinished %t, want it broken off", err, l.Unfinished())
	}
	if err := l.Commit(p); err == nil {
		t.Error("a second commit: got no error")
	}
	if err := l.DiscardAll(); err == nil {
		t.Error("a discard: got no error")
	}
	if err := l.Repair(false); err == nil {
		t.Error("a repair over the host's change: got no error")
	}
	if b, _ := os.ReadFile(filepath.Join(s.host, "b")); string(b) != "host" {
		t.Errorf("b: got %q, want the host's", b)
	}
	if err := l.Repair(true); err != nil {
		t.Fatal(err)
	}
	if l.Unfinished() {
		t.Error("after the repair: got it unfinished")
	}
	for _, n := range []string{"a", "b", "c"} {
		if got, _ := os.ReadFile(filepath.Join(s.host, n)); string(got) != "2" {
			t.Errorf("%s: got %q, want 2", n, got)
		}
	}
}

// TestRenames: files of one size are paired by content, each with its own.
func TestRenames(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("old/%03d", i)] = fmt.Sprintf("content %03d", i)
	}
	s := newStand(t, temp(t), files)
	s.apply(t, overlaytest.Op{Do: "rename", Path: "old", To: "new"})
	renamed := 0
	for _, c := range diff(t, s.open(t)) {
		if c.From != "" {
			if renamed++; filepath.Base(c.From) != filepath.Base(c.Path) {
				t.Errorf("%s: got it from %s, want the file of that name", c.Path, c.From)
			}
		}
	}
	if renamed != 300 {
		t.Errorf("renamed: got %d, want 300", renamed)
	}
}

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

// TestWaysRoundTheTable: each changes what the host executes later, without a path
// that the table knows.
func TestWaysRoundTheTable(t *testing.T) {
	repository := map[string]string{".git/HEAD": "ref: x", ".git/config": "[core]\n"}
	for _, c := range []struct {
		name  string
		host  map[string]string
		links map[string]string // of the host
		ops   []overlaytest.Op
		path  string
	}{
		{"configuration of a bare repository that is there", map[string]string{"r.git/HEAD": "x", "r.git/config": ""}, nil, write("r.git/config"), "r.git/config"},
		{"hook of a bare repository that is there", map[string]string{"r.git/HEAD": "x"}, nil, write("r.git/hooks/post-update"), "r.git/hooks/post-update"},
		{"the last part of a bare repository", map[string]string{"r/hooks/update": "", "r/config": ""}, nil, write("r/HEAD"), "r/HEAD"},
		{"another common directory", repository, nil, write(".git/commondir"), ".git/commondir"},
		{"hooks of a bare repository as a link", map[string]string{"r/HEAD": ""}, nil, link("r/hooks", "../x"), "r/hooks"},
		{"a link that stands for a directory above", nil, nil, link(".config", "plain"), ".config"},
		{"a link that stands for a directory of CI", nil, nil, link(".github", "plain"), ".github"},
		{"a link that stands for programs", nil, nil, link("bin", "plain"), "bin"},
		{"what a link of the host stands for", map[string]string{"dot/rc": ""}, map[string]string{".bashrc": "dot/rc"}, write("dot/rc"), "dot/rc"},
		{"what a link chain of the host stands for", map[string]string{"dot/rc": ""}, map[string]string{".bashrc": "rc", "rc": "./dot/rc"}, write("dot/rc"), "dot/rc"},
		{"below what a link of the host stands for", map[string]string{"dot/vs/x": ""}, map[string]string{".vscode": "dot/vs"}, write("dot/vs/tasks.json"), "dot/vs/tasks.json"},
		{"hooks of the host as a link", map[string]string{".git/HEAD": "", "h/x": ""}, map[string]string{".git/hooks": "../h"}, write("h/pre-commit"), "h/pre-commit"},
		{"a directory of the host as a link", map[string]string{"c/x": ""}, map[string]string{".config": "c"}, write("c/git/config"), "c/git/config"},
		{"a hooks path in one line", map[string]string{".git/config": "[core] hooksPath = tools/h ; ours\n"}, nil, write("tools/h/pre-commit"), "tools/h/pre-commit"},
		{"an absolute hooks path", map[string]string{".git/config": "[core]\nhooksPath = @HOST@/tools/h\n"}, nil, write("tools/h/pre-commit"), "tools/h/pre-commit"},
		{"a link above the hooks path", map[string]string{".git/config": "[core]\nhooksPath = tools/h\n"}, nil, link("tools", "other"), "tools"},
		{"a configuration that is included", map[string]string{".git/config": "[include]\n\tpath = ../shared.cfg\n"}, nil, write("shared.cfg"), "shared.cfg"},
		{"letters that fold together", nil, nil, write(".ba\u017fhrc"), ".ba\u017fhrc"},
		{"characters that are ignored", nil, nil, write(".git\u200c/hooks/x"), ".git\u200c/hooks/x"},
		{"a short name", nil, nil, write("GIT~1/hooks/x"), "GIT~1/hooks/x"},
		{"trailing dots and spaces", nil, nil, write(".git. /hooks/x"), ".git. /hooks/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, temp(t), nil)
			for path, content := range c.host {
				put(t, filepath.Join(s.host, path), strings.ReplaceAll(content, "@HOST@", s.host))
			}
			for path, to := range c.links {
				if err := os.Symlink(to, filepath.Join(s.host, path)); err != nil {
					t.Fatal(err)
				}
			}
			s.apply(t, c.ops...)
			for _, one := range diff(t, s.open(t)) {
				if one.Path == c.path && one.Runs == "" {
					t.Errorf("%q: got nothing, want a reason", c.path)
				}
				if one.Path == c.path {
					return
				}
			}
			t.Errorf("%q is no change, want one", c.path)
		})
	}
}

func write(path string) (ops []overlaytest.Op) {
	for i, c := range path {
		if c == '/' {
			ops = append(ops, overlaytest.Op{Do: "mkdir", Path: path[:i]})
		}
	}
	return append(ops, overlaytest.Op{Do: "write", Path: path, To: "new content"})
}

func link(path, to string) []overlaytest.Op {
	var ops []overlaytest.Op
	if dir, _ := split(path); dir != "" {
		ops = append(ops, overlaytest.Op{Do: "mkdir", Path: dir})
	}
	return append(ops, overlaytest.Op{Do: "symlink", Path: path, To: to})
}

// TestNamesForgeNoDiff: a name with line ends in it is one line of the diff.
func TestNamesForgeNoDiff(t *testing.T) {
	s := newStand(t, temp(t), nil)
	s.apply(t, overlaytest.Op{Do: "write", Path: "x\n@@ -1 +1 @@\n+harmless\n", To: "curl\n"})
	l := s.open(t)
	text, err := l.Text(diff(t, l)[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(text.Unified, "\n"); got != 4 {
		t.Errorf("lines of the diff: got %d of %q, want 4", got, text.Unified)
	}
}

// TestHugeSparseFiles: a file of 4 TiB that takes no room takes none on the host
// and in a snapshot, and no time to look at.
func TestHugeSparseFiles(t *testing.T) {
	const size = 4 << 40
	s := newStand(t, temp(t), nil)
	s.apply(t, overlaytest.Op{Do: "write", Path: "huge", To: "begin"})
	upper := filepath.Join(s.dir, upperName, "huge")
	if err := os.Truncate(upper, size); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(upper, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	done := make(chan error, 1)
	go func() { done <- lookAndCopy(s, size) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("not done after a minute")
	}
}

func lookAndCopy(s stand, size int64) error {
	l, err := Open(s.dir)
	if err != nil {
		return err
	}
	defer l.Close()
	changes, err := l.Diff()
	if err != nil {
		return err
	}
	if _, err := l.Text(changes[0]); err != nil {
		return err
	}
	root := filepath.Dir(s.host)
	shots := Snapshots{Layers: filepath.Join(root, "layers"), Dir: filepath.Join(root, "snapshots")}
	if _, err := shots.Make("one"); err != nil {
		return err
	}
	if err := l.Commit(l.Plan(changes, CommitOptions{})); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(s.host, "huge"), filepath.Join(shots.Dir, "one", layersName, "workspace", upperName, "huge")} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		if st.Size != size || st.Blocks > 1024 {
			return fmt.Errorf("%s: got %d bytes in %d blocks, want %d in few", path, st.Size, st.Blocks, size)
		}
	}
	return nil
}

// TestNamesAreBounded: the agent chooses how long names are, and they are held in
// memory several times.
func TestNamesAreBounded(t *testing.T) {
	d := differ{layer: &Layer{}}
	path := strings.Repeat("n", maxPath)
	n := 0
	for d.count(path) == nil {
		if n++; n > maxNames/maxPath {
			t.Fatalf("%d names of %d bytes were taken, want an error", n, maxPath)
		}
	}
	if n < maxNames/maxPath-1 {
		t.Errorf("%d names were taken, want %d", n, maxNames/maxPath)
	}
}

// TestRepairWhereDirectoriesAreGone: a commit can be finished after the host lost
// the directories that it writes in.
func TestRepairWhereDirectoriesAreGone(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"d/e/f": "1", "d/gone": "1", "m/x": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "d/e/f", To: "2"}, overlaytest.Op{Do: "remove", Path: "d/gone"},
		overlaytest.Op{Do: "mkdir", Path: "d/new"}, overlaytest.Op{Do: "symlink", Path: "d/l", To: "e"}, overlaytest.Op{Do: "chmod", Path: "m", Mode: 0o700})
	l := s.open(t)
	p := l.Plan(diff(t, l), CommitOptions{})
	for _, dir := range []string{"d", "m"} {
		if err := os.RemoveAll(filepath.Join(s.host, dir)); err != nil {
			t.Fatal(err)
		}
	}
	j := l.journal(p)
	phases(j.Steps)
	if err := l.writeJournal(j); err != nil { // as a kill before the first step leaves it
		t.Fatal(err)
	}
	if err := l.Repair(false); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(s.host, "d/e/f")); string(got) != "2" {
		t.Errorf("d/e/f: got %q, want 2", got)
	}
	if st, err := os.Stat(filepath.Join(s.host, "d/new")); err != nil || !st.IsDir() {
		t.Errorf("d/new: got %v, want a directory", err)
	}
	if l.Unfinished() {
		t.Error("after the repair: got it unfinished")
	}
}

// TestRepairFollowsNoLink: a directory of the host that became a link meanwhile is
// never written through, whatever is forced.
func TestRepairFollowsNoLink(t *testing.T) {
	root := temp(t)
	s := newStand(t, root, map[string]string{"d/e/f": "1", "d/x": "1"})
	s.apply(t, overlaytest.Op{Do: "write", Path: "d/e/f", To: "2"}, overlaytest.Op{Do: "write", Path: "d/n", To: "2"},
		overlaytest.Op{Do: "remove", Path: "d/x"}, overlaytest.Op{Do: "chmod", Path: "d", Mode: 0o777})
	l := s.open(t)
	p := l.Plan(diff(t, l), CommitOptions{})
	outside := filepath.Join(root, "outside")
	if err := os.Rename(filepath.Join(s.host, "d"), outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(s.host, "d")); err != nil {
		t.Fatal(err)
	}
	before, err := overlaytest.Manifest(outside)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(p); err == nil {
		t.Error("commit: got no error")
	}
	if err := l.Repair(true); err == nil {
		t.Error("repair: got no error")
	}
	after, err := overlaytest.Manifest(outside)
	if err != nil {
		t.Fatal(err)
	}
	if d := overlaytest.Difference(after, before); d != "" {
		t.Errorf("outside of the tree:\n%s", d)
	}
}

// TestExceptedRenamesTakeNothingAway: what has the content of a deleted file stays
// in the layer, and so does the deletion.
func TestExceptedRenamesTakeNothingAway(t *testing.T) {
	s := newStand(t, temp(t), map[string]string{"build.txt": "all:\n", "x": "1"})
	s.apply(t, overlaytest.Op{Do: "rename", Path: "build.txt", To: "Makefile"}, overlaytest.Op{Do: "remove", Path: "x"})
	l := s.open(t)
	if err := l.Commit(l.Plan(diff(t, l), CommitOptions{ExceptExec: true})); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.host, "build.txt")); string(got) != "all:\n" {
		t.Errorf("build.txt: got %q, %v, want it kept", got, err)
	}
	if _, err := os.Stat(filepath.Join(s.host, "x")); !os.IsNotExist(err) {
		t.Errorf("x: got %v, want it deleted", err)
	}
}

// TestWhatIsExceptedTakesNothingAway: a directory whose replacement stays in the
// layer keeps its content on the host.
func TestWhatIsExceptedTakesNothingAway(t *testing.T) {
	for name, o := range map[string]CommitOptions{"links": {ExceptLinks: true, AcceptExec: true}, "exec": {ExceptExec: true, AcceptLinks: true}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, temp(t), map[string]string{"bin/a": "1", "bin/b/c": "1", "x": "1"})
			s.apply(t, overlaytest.Op{Do: "remove", Path: "bin"}, overlaytest.Op{Do: "symlink", Path: "bin", To: "/etc"}, overlaytest.Op{Do: "write", Path: "x", To: "2"})
			l := s.open(t)
			if err := l.Commit(l.Plan(diff(t, l), o)); err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{"bin/a": "1", "bin/b/c": "1", "x": "2"} {
				if got, err := os.ReadFile(filepath.Join(s.host, path)); string(got) != want {
					t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
				}
			}
			if got := list(diff(t, s.open(t))); !strings.Contains(got, "bin type") {
				t.Errorf("left in the layer: got %q, want the link", got)
			}
		})
	}
}

// TestSwappedDirectories: a program of the user's that exchanges a directory of
// the tree with a link out of it, all the time, gets nothing written there.
func TestSwappedDirectories(t *testing.T) {
	root := temp(t)
	outside := filepath.Join(root, "outside")
	put(t, filepath.Join(outside, "f"), "outside")
	put(t, filepath.Join(outside, "e/g"), "outside")
	before, err := overlaytest.Manifest(outside)
	if err != nil {
		t.Fatal(err)
	}
	met := 0
	for i, end := 0, time.Now().Add(30*time.Second); met < 20 && time.Now().Before(end); i++ {
		s := newStand(t, filepath.Join(root, fmt.Sprint(i)), map[string]string{"d/f": "1", "d/e/g": "1", "d/h": "1"})
		link := filepath.Join(s.host, "link")
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		// Upper as an overlay would leave it.
		for path, content := range map[string]string{"d/f": "2", "d/e/g": "2", "d/n/m": "2", "d/e/n": "2"} {
			put(t, filepath.Join(s.dir, upperName, path), content)
		}
		l := s.open(t)
		p := l.Plan(diff(t, l), CommitOptions{Force: true})
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(s.host, "d"), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
			}
		}()
		err := l.Commit(p)
		for n := 0; err != nil && n < 20; n++ {
			met++
			err = l.Repair(true)
		}
		close(stop)
		<-stopped
	}
	after, err := overlaytest.Manifest(outside)
	if err != nil {
		t.Fatal(err)
	}
	if d := overlaytest.Difference(after, before); d != "" {
		t.Errorf("outside of the tree:\n%s", d)
	}
	if met == 0 {
		t.Error("no commit met a link: nothing was tried")
	}
}

// Package state_test kills the commands that change copy-on-write layers at
// random moments, over many files and through real overlays, and looks whether
// anything was lost. HERMES_STATE_FILES is the number of files (2,000), "make
// state FILES=50000" the long run.
package state_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/state"
	"github.com/hermes-wrap/hermes-wrap/state/overlaytest"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) {
	overlaytest.Main()
	os.Exit(wraptest.Main(m))
}

const (
	sessionName = "work"
	perDir      = 50
)

// files is how many the tree has.
func files(t testing.TB) int {
	t.Helper()
	s := os.Getenv("HERMES_STATE_FILES")
	if s == "" {
		return 2000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 4*perDir {
		t.Fatalf("HERMES_STATE_FILES=%s: want a number from %d", s, 4*perDir)
	}
	return n
}

// binary is the one to test.
func binary(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("HERMES_WRAP_BIN"); bin != "" {
		return bin
	}
	return wraptest.New(t).Bin
}

// stand is a session of this process's own user, with a tree.
type stand struct {
	bin, home, host string
	old, want       map[string]string // the tree on the host, and merged
}

// newStand makes a tree, and changes every part of it through an overlay. The
// layer lies beside the tree, or on another file system.
func newStand(t *testing.T, bin string, apart bool) stand {
	t.Helper()
	root, remove, err := overlaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	s := stand{bin: bin, home: root, host: filepath.Join(root, "tree")}
	if apart {
		s.home = t.TempDir()
	}
	n := files(t)
	for i := range n {
		dir := filepath.Join(s.host, fmt.Sprintf("d%03d", i/perDir))
		if i%perDir == 0 {
			must(t, os.MkdirAll(dir, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), []byte(fmt.Sprintf("old %d", i)), 0o644))
	}
	if s.old, err = overlaytest.Manifest(s.host); err != nil {
		t.Fatal(err)
	}
	must(t, os.MkdirAll(s.layer(), 0o700))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(s.layer())), 0o700))
	meta, err := state.NewMeta(s.host, state.Overlay, "directory")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(s.layer())
	if err != nil {
		t.Fatal(err)
	}
	must(t, meta.Write(dir))
	must(t, dir.Close())
	s.want = overlaytest.Apply(t, s.host, s.layer(), changes(n))
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// changes touches half of the files: changed, deleted, added, whole directories
// removed, replaced, and turned into files.
func changes(n int) (ops []overlaytest.Op) {
	add := func(do, path, to string) { ops = append(ops, overlaytest.Op{Do: do, Path: path, To: to}) }
	for d := range n / perDir {
		dir := fmt.Sprintf("d%03d", d)
		name := func(i int) string { return fmt.Sprintf("%s/f%d", dir, d*perDir+i) }
		switch d % 8 {
		case 1:
			add("remove", dir, "")
		case 2:
			add("remove", dir, "")
			add("mkdir", dir, "")
			for i := range perDir / 2 {
				add("write", name(i), "replaced")
			}
		case 3:
			add("remove", dir, "")
			add("write", dir, "a file now")
		case 4:
			add("remove", name(0), "")
			add("mkdir", name(0), "")
			add("write", name(0)+"/inner", "a directory now")
			add("symlink", dir+"/link", "f1")
		default:
			for i := range perDir {
				switch i % 5 {
				case 0:
					add("write", name(i), fmt.Sprintf("new %d", i))
				case 1:
					add("remove", name(i), "")
				case 2:
					add("write", name(i)+"-added", fmt.Sprintf("added %d", i))
				}
			}
		}
	}
	return ops
}

func (s stand) session() string { return filepath.Join(s.home, "hermes-wrap", "sessions", sessionName) }
func (s stand) layer() string   { return filepath.Join(s.session(), "state", "workspace") }
func (s stand) upper() string   { return filepath.Join(s.layer(), "upper") }

func (s stand) merged(t testing.TB) map[string]string {
	t.Helper()
	return overlaytest.Apply(t, s.host, s.layer(), nil)
}

func (s stand) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, args...)
	cmd.Dir = s.home
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+s.home)
	return cmd
}

// run runs a command to its end.
func (s stand) run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// kill starts a command, waits for what begun says, and kills it a random time
// of at most limit later. It tells whether the command was still at work.
func (s stand) kill(t testing.TB, begun func() bool, limit time.Duration, args ...string) bool {
	t.Helper()
	cmd := s.command(args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for tick := time.NewTicker(100 * time.Microsecond); !begun(); {
		select {
		case err := <-done:
			tick.Stop()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, errs.String())
			}
			return false
		case <-tick.C:
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, errs.String())
		}
		return false
	case <-time.After(rand.N(limit + 1)):
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	err := <-done
	if err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	return err != nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// window runs a command in peace and tells how long what begun says held.
func (s stand) window(t testing.TB, begun func() bool, args ...string) time.Duration {
	t.Helper()
	cmd := s.command(args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var first, last time.Time
	for tick := time.NewTicker(100 * time.Microsecond); ; {
		select {
		case err := <-done:
			tick.Stop()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, errs.String())
			}
			return last.Sub(first)
		case now := <-tick.C:
			if begun() {
				if last = now; first.IsZero() {
					first = now
				}
			}
		}
	}
}

const acceptAll = "--accept-exec"

// TestKilledCommits: however often a commit and its repairs are killed, each file
// of the host is the old or the new one, what is not new yet is in the layer, and
// the last repair gives exactly the merged tree.
func TestKilledCommits(t *testing.T) {
	bin := binary(t)
	for _, tc := range []struct {
		name  string
		apart bool
	}{{"moved", false}, {"copied", true}} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStand(t, bin, tc.apart)
			journal := func() bool { return exists(filepath.Join(s.layer(), "commit.journal")) }
			whole := s.window(t, journal, "commit", sessionName, acceptAll)
			if d := overlaytest.Difference(manifest(t, s.host), s.want); d != "" {
				t.Fatalf("host after a commit in peace:\n%.2000s", d)
			}
			killed := 0
			for range 3 {
				s := newStand(t, bin, tc.apart)
				journal = func() bool { return exists(filepath.Join(s.layer(), "commit.journal")) }
				args := []string{"commit", sessionName, acceptAll}
				for range 6 {
					if s.kill(t, journal, whole, args...) {
						killed++
						s.checkHalf(t)
					}
					if !journal() {
						break
					}
					args = []string{"commit", "--repair", sessionName}
				}
				s.run(t, "commit", "--repair", sessionName)
				s.run(t, "commit", sessionName, acceptAll)
				s.checkWhole(t)
			}
			if killed == 0 {
				t.Error("killed in the middle: got never, want it at least once")
			}
			t.Logf("%d kills in the middle, the work on %d files took %v", killed, files(t), whole)
		})
	}
}

func manifest(t testing.TB, dir string) map[string]string {
	t.Helper()
	m, err := overlaytest.Manifest(dir)
	must(t, err)
	return m
}

// checkHalf looks at a commit that was broken off.
func (s stand) checkHalf(t *testing.T) {
	t.Helper()
	host, upper := manifest(t, s.host), manifest(t, s.upper())
	for path, want := range s.want {
		got, there := host[path]
		if got == want {
			continue
		}
		old, had := s.old[path]
		typeChanges := had && old[0] != want[0]
		if there != had && !(typeChanges && !there) || there && got != old {
			t.Errorf("%s: got %q, want %q or %q", path, got, old, want)
		}
		// A directory can be made again from its children alone; files cannot.
		if kept := upper[path]; kept != want && want[0] == '-' {
			t.Errorf("%s: got %q in the layer and %q on the host, want %q in one of them", path, kept, got, want)
		}
	}
	for path, got := range host {
		if old, had := s.old[path]; got != s.want[path] && (!had || got != old) && !temporary(path) {
			t.Errorf("%s: got %q, want the old entry or none", path, got)
		}
	}
}

func temporary(path string) bool { return strings.HasPrefix(filepath.Base(path), ".hermes-wrap-") }

// checkWhole looks at a commit that is finished.
func (s stand) checkWhole(t *testing.T) {
	t.Helper()
	if d := overlaytest.Difference(manifest(t, s.host), s.want); d != "" {
		t.Fatalf("host after the repair:\n%.2000s", d)
	}
	left, err := os.ReadDir(s.upper())
	if err != nil || len(left) > 0 {
		t.Errorf("layer after the repair: got %d entries, %v, want none", len(left), err)
	}
}

// TestKilledDiscards: a discard that is killed leaves the whole layer or nothing
// of it, and the next one leaves no rest.
func TestKilledDiscards(t *testing.T) {
	s := newStand(t, binary(t), false)
	begun := func() bool { return exists(filepath.Join(s.layer(), "trash-upper")) }
	for range 5 {
		s.kill(t, begun, 30*time.Millisecond, "discard", sessionName)
		if got := manifest(t, s.host); overlaytest.Difference(got, s.old) != "" {
			t.Fatal("a discard changed the host")
		}
		merged := s.merged(t)
		if overlaytest.Difference(merged, s.want) != "" && overlaytest.Difference(merged, s.old) != "" {
			t.Fatalf("after the kill: got neither the old nor the changed tree:\n%.2000s", overlaytest.Difference(merged, s.want))
		}
	}
	s.run(t, "discard", sessionName)
	if d := overlaytest.Difference(s.merged(t), s.old); d != "" {
		t.Errorf("after a discard:\n%.2000s", d)
	}
	rest, err := filepath.Glob(filepath.Join(s.layer(), "trash-*"))
	if err != nil || len(rest) > 0 {
		t.Errorf("left: got %v, %v, want nothing", rest, err)
	}
}

// TestKilledSnapshots: a snapshot is there whole or not at all, and a restore
// gives the one state or the other, with every deletion and replacement.
func TestKilledSnapshots(t *testing.T) {
	s := newStand(t, binary(t), false)
	dir := filepath.Join(s.session(), "snapshots")
	half := func(name string) func() bool { return func() bool { return exists(filepath.Join(dir, ".new-"+name)) } }
	whole := s.window(t, half("first"), "snapshot", sessionName, "--as", "first")
	killed := 0
	for i := range 4 {
		label := fmt.Sprintf("try%d", i)
		if s.kill(t, half(label), whole, "snapshot", sessionName, "--as", label) {
			killed++
		}
		if there := exists(filepath.Join(dir, label)); there != strings.Contains(s.run(t, "snapshots", sessionName), label) {
			t.Errorf("snapshot %s: got it on disk: %t, and listed otherwise", label, there)
		}
	}
	// The second state: nothing is changed.
	s.run(t, "discard", sessionName)
	s.run(t, "snapshot", sessionName, "--as", "empty")
	for i := range 6 {
		label := []string{"first", "empty"}[i%2]
		if s.kill(t, half("restore"), whole, "restore", sessionName, label) {
			killed++
		}
		merged := s.merged(t)
		if a, b := overlaytest.Difference(merged, s.want), overlaytest.Difference(merged, s.old); a != "" && b != "" {
			t.Fatalf("after a killed restore: got neither state:\n%.1000s\n%.1000s", a, b)
		}
	}
	s.run(t, "restore", sessionName, "first")
	if d := overlaytest.Difference(s.merged(t), s.want); d != "" {
		t.Errorf("after the restore:\n%.2000s", d)
	}
	s.run(t, "snapshots", "rm", sessionName, "empty")
	rest, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(rest) > 0 {
		t.Errorf("left: got %v, %v, want nothing", rest, err)
	}
	if killed == 0 {
		t.Error("killed in the middle: got never, want it at least once")
	}
	t.Logf("%d kills in the middle, a snapshot took %v", killed, whole)
	// What was restored can be committed.
	s.run(t, "commit", sessionName, acceptAll)
	s.checkWhole(t)
}

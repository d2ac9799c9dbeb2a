package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func take(t *testing.T, home, name string) *Session {
	t.Helper()
	s, err := Take(home, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func write(t *testing.T, s *Session, r Record) {
	t.Helper()
	if err := s.Write(r); err != nil {
		t.Fatal(err)
	}
}

func TestOneRunAName(t *testing.T) {
	home := t.TempDir()
	first := take(t, home, "a")
	var busy *BusyError
	if _, err := Take(home, "a"); !errors.As(err, &busy) || busy.Name != "a" {
		t.Errorf("a second one: got %v, want a BusyError", err)
	}
	take(t, home, "b")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	take(t, home, "a")
}

// Of many who want the name at once, each gets it for a time, and no two together,
// also while others look and remove.
func TestNameIsHeldByOne(t *testing.T) {
	home := t.TempDir()
	var held, had atomic.Int32
	stop := make(chan struct{})
	var others, takers sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, _ = List(home)
				_ = Remove(home, "a", true)
			}
		})
	}
	for range 4 {
		takers.Go(func() {
			for end := time.Now().Add(20 * time.Second); ; {
				s, err := Take(home, "a")
				if err != nil {
					if time.Now().After(end) {
						t.Errorf("take: got %v for 20 s, want the name", err)
						return
					}
					continue
				}
				if held.Add(1) != 1 {
					t.Error("got two who hold the name")
				}
				if err := s.Write(Record{}); err != nil {
					t.Errorf("write while held: %v", err)
				}
				held.Add(-1)
				had.Add(1)
				s.Close()
				return
			}
		})
	}
	takers.Wait()
	close(stop)
	others.Wait()
	if had.Load() != 4 {
		t.Errorf("got %d who had the name, want 4", had.Load())
	}
}

// TestHolder is no test: it is the launcher that TestKilledLauncher kills.
func TestHolder(t *testing.T) {
	home := os.Getenv("HW_TEST_SESSION")
	if home == "" {
		return
	}
	s := take(t, home, "k")
	write(t, s, Record{Pid: os.Getpid(), Started: time.Now()})
	fmt.Println("holding")
	time.Sleep(time.Hour)
}

func TestKilledLauncher(t *testing.T) {
	home := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), "HW_TEST_SESSION="+home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		t.Fatalf("holder: got %q, %v", line, err)
	}
	e, err := Find(home, "k")
	if err != nil || !e.Live || e.Status() != StatusRunning || e.Pid != cmd.Process.Pid {
		t.Errorf("while it lives: got %+v, %v, want it running", e, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	e, err = Find(home, "k")
	if err != nil || e.Live || e.Status() != StatusKilled {
		t.Errorf("afterwards: got %s %+v, %v, want it killed", e.Status(), e, err)
	}
	take(t, home, "k")
}

func TestRecordIsReplacedAsAWhole(t *testing.T) {
	home := t.TempDir()
	s := take(t, home, "a")
	write(t, s, Record{Run: "0"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			if err := s.Write(Record{Run: "r", Workspace: strings.Repeat("x", i*10)}); err != nil {
				t.Error(err)
			}
		}
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if e, err := Find(home, "a"); err != nil || e.Broken != "" || e.Name != "a" {
			t.Fatalf("got %+v, %v, want a whole record", e, err)
		}
	}
	left, err := os.ReadDir(s.Path)
	if err != nil || len(left) != 1 {
		t.Errorf("got %v, %v, want the record alone", left, err)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode: got %v, %v, want 0700", info.Mode(), err)
	}
}

func TestBrokenRecords(t *testing.T) {
	for name, breakIt := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"half":      func(path string) error { return os.WriteFile(path, []byte(`{"name": "x`), 0o600) },
		"none":      os.Remove,
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"huge":      func(path string) error { return os.WriteFile(path, make([]byte, maxRecord+1), 0o600) },
		"link":      func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/null", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			s := take(t, home, "a")
			write(t, s, Record{Run: "1"})
			if err := breakIt(filepath.Join(s.Path, recordName)); err != nil {
				t.Fatal(err)
			}
			if e, err := Find(home, "a"); err != nil || !e.Live || e.Broken == "" || e.Status() != StatusRunning {
				t.Errorf("held: got %+v, %v, want it live and broken", e, err)
			}
			s.Close()
			if e, err := Find(home, "a"); err != nil || e.Status() != StatusBroken || e.Name != "a" {
				t.Errorf("left: got %+v, %v, want it broken", e, err)
			}
			if err := Prune(home); err != nil {
				t.Errorf("prune: got %v, want it left alone", err)
			}
			again := take(t, home, "a")
			if name != "directory" {
				write(t, again, Record{Run: "2"})
			}
			again.Close()
			if err := Remove(home, "a", false); err != nil {
				t.Errorf("remove: got %v, want it gone", err)
			}
		})
	}
}

func TestForeignDirectoriesAreRefused(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(Root(home), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), Dir(home, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(Dir(home, "open"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(Dir(home, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "open", "", ".", "..", "a/b", ".hidden", strings.Repeat("x", 65), "a\nb"} {
		if s, err := Take(home, name); err == nil {
			s.Close()
			t.Errorf("%q: got it, want it refused", name)
		}
		if err := Remove(home, name, true); err == nil {
			t.Errorf("%q: got it removed, want it refused", name)
		}
	}
}

// Runs that are killed at once leave no heap of directories: neither those that
// wrote nothing yet, nor those that had half written.
func TestPruneUnwritten(t *testing.T) {
	home := t.TempDir()
	for i := range Kept + 5 {
		s := take(t, home, fmt.Sprintf("n%02d", i))
		if err := os.WriteFile(filepath.Join(s.Path, recordName+".new"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if err := Prune(home); err != nil {
		t.Fatal(err)
	}
	if all, err := List(home); err != nil || len(all) != Kept {
		t.Errorf("got %d and %v, want %d", len(all), err, Kept)
	}
}

func TestPrune(t *testing.T) {
	home := t.TempDir()
	began := time.Now()
	for i := range Kept + 5 {
		s := take(t, home, fmt.Sprintf("n%02d", i))
		write(t, s, Record{Started: began.Add(time.Duration(i) * time.Second), Ended: began.Add(time.Minute)})
		if i == 0 {
			if err := os.MkdirAll(filepath.Join(s.Path, StateName, "work"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if i != 1 {
			s.Close() // the second oldest is still in use
		}
	}
	if err := Prune(home); err != nil {
		t.Fatal(err)
	}
	all, err := List(home)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
	}
	got := strings.Join(names, " ")
	if len(all) != Kept+2 || !strings.HasPrefix(got, "n24 n23 ") || !strings.HasSuffix(got, " n05 n01 n00") {
		t.Errorf("got %d: %s, want the newest %d, what runs, and what has state", len(all), got, Kept)
	}
	if err := Remove(home, "n00", false); !errors.Is(err, ErrState) {
		t.Errorf("remove with state: got %v, want ErrState", err)
	}
	if err := os.Chmod(filepath.Join(Dir(home, "n00"), StateName, "work"), 0); err != nil {
		t.Fatal(err)
	}
	if err := Remove(home, "n00", true); err != nil {
		t.Errorf("remove, asked for: got %v", err)
	}
	if err := Remove(home, "n01", true); !errors.As(err, new(*BusyError)) {
		t.Errorf("remove what runs: got %v, want a BusyError", err)
	}
	if err := Remove(home, "nn", true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remove nothing: got %v, want ErrNotExist", err)
	}
}

// Tidy leaves Slack more than it keeps, and what it must not remove does not count.
func TestTidy(t *testing.T) {
	home := t.TempDir()
	const withState, runs = 2 * Slack, Kept + 3*Slack
	most := 0
	for i := range withState + runs {
		s := take(t, home, fmt.Sprintf("n%03d", i))
		if i < withState {
			if err := os.Mkdir(filepath.Join(s.Path, StateName), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := Tidy(home); err != nil {
			t.Fatal(err)
		}
		write(t, s, Record{Started: time.Unix(int64(i), 0), Ended: time.Unix(int64(i), 1)})
		s.Close()
		all, err := os.ReadDir(Root(home))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(all)-withState)
	}
	all, err := List(home)
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("n%03d", withState+runs-1)
	if left := len(all) - withState; most != Kept+Slack || left < Kept || left > Kept+Slack || all[0].Name != last {
		t.Errorf("got %d at most and %d at last, the newest %s; want %d, then %d or more, and %s", most, left, all[0].Name, Kept+Slack, Kept, last)
	}
}

func TestNames(t *testing.T) {
	for _, s := range []string{"a", "Z9", "0", "a._-", strings.Repeat("x", maxName)} {
		if err := CheckName(s); err != nil {
			t.Errorf("%q: got %v, want it taken", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", "-a", "_a", ".a", "a/b", "a b", "a\n", "a\x00", "é", "a\xff", "a\ufffd", strings.Repeat("x", maxName+1)} {
		if CheckName(s) == nil {
			t.Errorf("%q: got it taken, want it refused", s)
		}
	}
}

func TestDefaultName(t *testing.T) {
	for _, c := range []struct{ policy, run, want string }{
		{"strict", "f491a3f43231b41c", "strict-f491a3"},
		{"p", "ab", "p-ab"},
		{strings.Repeat("x", 64), "f491a3f43231b41c", strings.Repeat("x", 57) + "-f491a3"},
	} {
		got := DefaultName(c.policy, c.run)
		if got != c.want || CheckName(got) != nil {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

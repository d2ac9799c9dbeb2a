package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Several runs, each with a launcher that rotates and a proxy that is handed
// descriptors, lose and double nothing while files change under them.
func TestRotationLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	const runs, events = 3, 600
	var wg sync.WaitGroup
	for n := range runs {
		run := fmt.Sprint("run-", n)
		launcher, proxy := signed(t, path, run, "launcher"), signed(t, path, run, "proxy")
		turn := make(chan struct{}, 1)
		wg.Go(func() {
			defer close(turn)
			for i := range events {
				if i%50 == 49 {
					turn <- struct{}{}
				}
				if err := proxy.Write(Event{Kind: KindConnection, Verdict: Allow, Host: fmt.Sprint("e", i, ".", run)}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range turn {
				f, err := launcher.Rotate(path, 16<<10, 1000)
				if err != nil {
					t.Error(err)
				}
				if f != nil {
					other, err := openAppend(f.Name())
					if err == nil {
						err = proxy.Swap(other)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			if err := errors.Join(proxy.Close(), launcher.Close("proxy")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 4 {
		t.Errorf("files: got %d, want several", len(files))
	}
	r := verify(t, files...)
	if !r.Intact() || !r.Closed() {
		t.Errorf("got %s, want nothing wrong", problems(r))
	}
	seen := map[string]int{}
	for _, f := range files {
		all, err := ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Kind == KindConnection {
				seen[e.Host]++
			}
		}
	}
	if len(seen) != runs*events {
		t.Errorf("events: got %d, want %d", len(seen), runs*events)
	}
	for host, n := range seen {
		if n != 1 {
			t.Errorf("%s: got %d lines, want 1", host, n)
		}
	}
}

func TestRotateKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	for _, name := range []string{"audit.jsonl.bak", "audit.jsonl.1", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := signed(t, path, "run-1", "launcher")
	for i := range 6 {
		put(t, l, fmt.Sprint(i, ".example"))
		f, err := l.Rotate(path, 1, 2)
		if err != nil || f == nil {
			t.Fatalf("rotation: got %v, %v, want another file", f, err)
		}
	}
	put(t, l, "last.example")
	files, err := Files(path)
	if err != nil || len(files) != 3 {
		t.Fatalf("files: got %v (%v), want 2 old ones and the one of now", files, err)
	}
	for _, name := range []string{"audit.jsonl.bak", "audit.jsonl.1", "other"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s, which is no file of ours: got %v, want it to stay", name, err)
		}
	}
	if r := verify(t, files...); !r.Intact() {
		t.Errorf("what is kept: got %s, want nothing wrong", problems(r))
	}
	if r := verify(t, files[1:]...); r.Intact() && len(files[1:]) == 1 {
		t.Error("one file alone: got intact, want the missing beginning to show")
	}
	// A file taken out of the middle shows.
	if r := verify(t, files[0], files[2]); r.Intact() {
		t.Error("a file is missing: got intact, want a problem")
	}
}

func TestRotateWaitsForTheSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := signed(t, path, "run-1", "launcher")
	if f, err := l.Rotate(path, 1<<20, 2); err != nil || f != nil {
		t.Errorf("a small file: got %v, %v, want nothing", f, err)
	}
	// A file that is gone is made again.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if f, err := l.Rotate(path, 1<<20, 2); err != nil || f == nil {
		t.Fatalf("a removed file: got %v, %v, want another", f, err)
	}
	put(t, l, "again.example")
	if got := readEvents(t, path); len(got) != 1 || got[0].Host != "again.example" {
		t.Errorf("got %+v, want the event in the new file", got)
	}
	// What somebody put in its place is not followed.
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Rotate(path, 1<<20, 2); err == nil {
		t.Error("a symbolic link: got no error, want one")
	}
	put(t, l, "still.example")
	if _, err := os.Stat(target); err == nil {
		t.Error("got the link's target made, want nothing written through it")
	}
}

func TestTailFollowsAcrossRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := signed(t, path, "run-1", "launcher")
	tail := NewTail(path, []string{path})
	defer tail.Close()
	var got []string
	read := func() {
		for {
			b, err := tail.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			e, derr := Decode(b)
			if err != nil || derr != nil {
				t.Fatal(err, derr)
			}
			if e.Kind == KindConnection {
				got = append(got, e.Host)
			}
		}
	}
	read()
	put(t, l, "a")
	read()
	put(t, l, "b")
	if _, err := l.Rotate(path, 1, 5); err != nil {
		t.Fatal(err)
	}
	put(t, l, "c")
	read()
	put(t, l, "d")
	read()
	if want := "a b c d"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// killed writes a run whose first proxy was killed and whose second one was not.
func killed(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	launcher := signed(t, path, "run-1", "launcher")
	var lines uint64
	first, err := Open(path, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.file.Close() }() // and no end is written
	first.Written = func(n uint64) { lines = n }
	if err := first.Sign("proxy", testKey.ForWriter("run-1", "proxy")); err != nil {
		t.Fatal(err)
	}
	put(t, first, "a.example", "b.example", "c.example")
	if lines != 4 {
		t.Fatalf("written: got %d lines, want 4", lines)
	}
	if err := launcher.Write(Event{Kind: KindProxy, Writers: []string{"proxy"}, Count: int64(lines)}); err != nil {
		t.Fatal(err)
	}
	second := signed(t, path, "run-1", Later("proxy", 2))
	put(t, second, "d.example")
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Close("proxy-2"); err != nil {
		t.Fatal(err)
	}
	return path
}

// A record whose proxy was killed and replaced is whole, and says so.
func TestKilledWriter(t *testing.T) {
	r := verify(t, killed(t))
	if !r.Intact() || !r.Closed() {
		t.Fatalf("got intact %v, closed %v: %s", r.Intact(), r.Closed(), problems(r))
	}
	for _, c := range r.Runs[0].Chains {
		if want := c.Writer == "proxy"; c.Killed != want || c.Closed == want {
			t.Errorf("%s: got killed %v and closed %v, want killed %v", c.Writer, c.Killed, c.Closed, want)
		}
	}
}

// What is missing of it is missed: at the end of the killed one's lines, and as a whole.
func TestKilledWriterIsMissed(t *testing.T) {
	has := func(text string) func([]byte) bool {
		return func(l []byte) bool { return bytes.Contains(l, []byte(text)) }
	}
	for name, c := range map[string]struct {
		remove func([]byte) bool
		want   string
	}{
		"its last line":       {has("c.example"), "lines 4 to 4 of this chain are missing at its end"},
		"all of its lines":    {has(`"log_provider":"proxy"`), "missing proxy\n"},
		"its successor":       {has(`"log_provider":"proxy-2"`), "missing proxy-2\n"},
		"the launcher's word": {has(`"event_code":"proxy"`), "are missing before this one"},
	} {
		t.Run(name, func(t *testing.T) {
			path := killed(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(b, []byte("\n"))
			kept := slices.DeleteFunc(slices.Clone(lines), c.remove)
			if len(kept) == len(lines) {
				t.Fatal("control: nothing was removed")
			}
			if err := os.WriteFile(path, bytes.Join(kept, nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, path); r.Intact() || !strings.Contains(problems(r), c.want) {
				t.Errorf("got intact %v and %q, want %q", r.Intact(), problems(r), c.want)
			}
		})
	}
}

// A later proxy begins in a later file. When the first files fall off the end,
// nothing is missed that rotation took.
func TestKilledWriterRotatedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	launcher := signed(t, path, "run-1", "launcher")
	first, err := Open(path, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Sign("proxy", testKey.ForWriter("run-1", "proxy")); err != nil {
		t.Fatal(err)
	}
	put(t, first, "a.example")
	_ = first.file.Close()
	var proxy *Log
	for n := 2; n < 8; n++ {
		if f, err := launcher.Rotate(path, 1, 2); err != nil || f == nil {
			t.Fatalf("rotate: got %v, %v", f, err)
		}
		if err := launcher.Write(Event{Kind: KindProxy, Writers: []string{Later("proxy", n-1)}, Count: 2}); err != nil {
			t.Fatal(err)
		}
		proxy = signed(t, path, "run-1", Later("proxy", n))
		put(t, proxy, fmt.Sprint(n, ".example"))
		if n < 7 {
			_ = proxy.file.Close()
			proxy.closed = true
		}
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Close("proxy-7"); err != nil {
		t.Fatal(err)
	}
	files, err := Files(path)
	if err != nil || len(files) != 3 {
		t.Fatalf("got %v, %v, want three files", files, err)
	}
	if r := verify(t, files...); !r.Intact() || !r.Closed() {
		t.Errorf("got intact %v, closed %v: %s", r.Intact(), r.Closed(), problems(r))
	}
}

// Nobody but the launcher tells that a writer was killed.
func TestOnlyTheLauncherTellsOfTheKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	launcher, proxy := signed(t, path, "run-1", "launcher"), signed(t, path, "run-1", "proxy")
	if err := proxy.Write(Event{Kind: KindProxy, Writers: []string{"proxy", "launcher"}}); err != nil {
		t.Fatal(err)
	}
	_ = launcher
	if r := verify(t, path); r.Closed() {
		t.Error("got a closed record, want two chains without an end")
	}
}

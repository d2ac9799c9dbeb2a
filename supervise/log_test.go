package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func openLog(t *testing.T, limit int64, keep int) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	f, err := OpenFile(path, limit, keep, func(err error, lost int) { t.Errorf("got %v and %d lost, want none", err, lost) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &Log{File: f}, path
}

var entryForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ([a-z-]+) ([|+~]) (.*)$`)

// entries reads a log: "name mark text".
func entries(t testing.TB, paths ...string) (all []string) {
	t.Helper()
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := entryForm.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil {
				t.Fatalf("got the line %q, want an entry", line)
			}
			all = append(all, strings.Join(m[1:], " "))
		}
	}
	return all
}

func TestStreamKeepsEveryLine(t *testing.T) {
	l, path := openLog(t, 1<<30, 4)
	s, w, err := l.NewStream("gateway")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `for i in 1 2 3; do echo "line $i"; done; printf 'no end'; kill -9 $$`)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s.Flush() // the other end is still open here, as it would be in what the command left behind
	want := []string{"gateway | line 1", "gateway | line 2", "gateway | line 3", "gateway ~ no end"}
	if got := entries(t, path); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_, _ = io.WriteString(w, "from a child\n")
	w.Close()
	<-s.Done()
	if got := entries(t, path); got[len(got)-1] != "gateway | from a child" {
		t.Errorf("got %q last, want the child's line", got[len(got)-1])
	}
}

func TestEveryLineHasAHead(t *testing.T) {
	l, path := openLog(t, 1<<20, 1)
	l.Say("hermes-wrap", "main: x\n2026-12-01T03:00:00.000Z hermes-wrap | main: forged")
	want := []string{"hermes-wrap | main: x", "hermes-wrap | 2026-12-01T03:00:00.000Z hermes-wrap | main: forged"}
	if got := entries(t, path); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFlushAfterTheEnd(t *testing.T) {
	l, path := openLog(t, 1<<30, 4)
	s, w, err := l.NewStream("gateway")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "torn")
	w.Close()
	s.Flush()
	if got := entries(t, path); !slices.Equal(got, []string{"gateway ~ torn"}) {
		t.Errorf("got %q, want one torn line", got)
	}
}

// Two streams of one service at once, and what they write comes out whole.
func TestStreamsDoNotMix(t *testing.T) {
	l, path := openLog(t, 1<<30, 4)
	var shown bytes.Buffer
	l.Screen = NewScreen(&shown)
	var wg sync.WaitGroup
	const lines = 2000
	for _, name := range []string{"a", "b", "c"} {
		s, w, err := l.NewStream(name)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range lines {
				fmt.Fprintf(w, "%s %d %s\n", name, i, strings.Repeat(name, i%300))
			}
			w.Close()
			<-s.Done()
		})
	}
	wg.Wait()
	if err := l.Screen.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || (shown.String() != string(text) && !strings.Contains(shown.String(), "are in the log alone")) {
		t.Errorf("screen: got another order than in the file, or %v", err)
	}
	next := map[string]int{}
	for _, e := range entries(t, path) {
		name := e[:1]
		if want := strings.TrimRight(fmt.Sprintf("%s | %s %d %s", name, name, next[name], strings.Repeat(name, next[name]%300)), " "); strings.TrimRight(e, " ") != want {
			t.Fatalf("got %q, want %q", e, want)
		}
		next[name]++
	}
	for name, n := range next {
		if n != lines {
			t.Errorf("%s: got %d lines, want %d", name, n, lines)
		}
	}
}

var anyEntry = regexp.MustCompile(`(?s)^[^ ]+ x ([|+~]) (.*)\n$`)

// Whatever is written in whatever pieces, the entries put together are it.
func TestSplitterLosesNothing(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		f, err := OpenFile(path, 1<<30, 1, func(error, int) {})
		if err != nil {
			t.Fatal(err)
		}
		s := splitter{log: &Log{File: f}, name: "x"}
		pieces := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", "\n", "ü", "漢", "😀", "\r", "\x1b[2J", "\xff", "\x80"}).Draw(t, "text"), rapid.SampledFrom([]int{1, 1, 2, 3, 5461, MaxLine}).Draw(t, "times"))
		}), 0, 8).Draw(t, "pieces")
		for _, p := range pieces {
			s.take([]byte(p))
		}
		s.end()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range strings.Lines(string(text)) {
			m := anyEntry.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("got the line %q, want an entry", line)
			}
			if len(m[2]) > MaxLine {
				t.Fatalf("got an entry of %d bytes, want at most %d", len(m[2]), MaxLine)
			}
			got.WriteString(m[2])
			if m[1] == "|" {
				got.WriteByte('\n')
			}
		}
		if want := strings.Join(pieces, ""); got.String() != want {
			t.Fatalf("got %q, want %q", got.String(), want)
		}
	})
}

// A character is not torn apart where a long line is split.
func TestSplitKeepsCharacters(t *testing.T) {
	l, path := openLog(t, 1<<30, 1)
	s := splitter{log: l, name: "x"}
	s.take([]byte(strings.Repeat("漢", MaxLine) + "\n"))
	for _, e := range entries(t, path) {
		if strings.ContainsRune(strings.ToValidUTF8(e, "\x00"), 0) {
			t.Fatalf("got %d bytes that end in a torn character", len(e))
		}
	}
}

func TestRotation(t *testing.T) {
	l, path := openLog(t, 4096, 3)
	const lines = 400
	for i := range lines {
		l.Say("x", fmt.Sprintf("line %d", i))
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 4 {
		t.Fatalf("got %q, %v, want the log and 3 old ones", files, err)
	}
	all := entries(t, path+".3", path+".2", path+".1", path)
	for i, e := range all {
		if want := fmt.Sprintf("x | line %d", lines-len(all)+i); e != want {
			t.Fatalf("got %q, want %q", e, want)
		}
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil || st.Size() > 4096 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v and mode %v, want at most 4096 bytes and 0600", f, st.Size(), st.Mode())
		}
	}
}

func TestLogOnlyInRegularFiles(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, "/dev/null"} {
		if f, err := OpenFile(path, 1<<20, 1, nil); err == nil {
			t.Errorf("%s: got a log, want an error", path)
			_ = f.Close()
		}
	}
}

// stuck is a reader that does not read until it is let go.
type stuck struct {
	release chan struct{}
	mu      sync.Mutex
	got     bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(b)
}

// A reader that does not read makes nobody wait, and is told what it missed;
// the file has all.
func TestBlockedScreen(t *testing.T) {
	l, path := openLog(t, 1<<30, 1)
	reader := &stuck{release: make(chan struct{})}
	l.Screen = NewScreen(reader)
	text := strings.Repeat("x", 1000)
	const lines = 3000
	for range lines {
		l.Say("x", text)
	}
	if n := len(entries(t, path)); n != lines {
		t.Errorf("file: got %d lines, want %d", n, lines)
	}
	close(reader.release)
	if err := l.Screen.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	shown := strings.Count(reader.got.String(), " x | ")
	var missed int
	for line := range strings.Lines(reader.got.String()) {
		if _, said, ok := strings.Cut(line, " hermes-wrap | "); ok {
			var n int
			if _, err := fmt.Sscanf(said, "%d lines", &n); err != nil {
				t.Fatalf("got %q, want a number of lines", said)
			}
			missed += n
		}
	}
	if shown+missed != lines || missed == 0 {
		t.Errorf("got %d lines shown and %d missed, want %d together and some missed", shown, missed, lines)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestScreenGone(t *testing.T) {
	l, path := openLog(t, 1<<30, 1)
	l.Screen = NewScreen(broken{})
	for range 10 {
		l.Say("x", "text")
	}
	if err := l.Screen.Close(time.Minute); err == nil {
		t.Error("got no error, want the screen's")
	}
	if n := len(entries(t, path)); n != 10 {
		t.Errorf("file: got %d lines, want 10", n)
	}
}

// Only the screen is escaped.
func TestEscape(t *testing.T) {
	l, path := openLog(t, 1<<30, 1)
	var shown bytes.Buffer
	l.Screen, l.Escape = NewScreen(&shown), func(s string) string { return strings.ReplaceAll(s, "\x1b", "<esc>") }
	l.Say("x", "\x1b]52;c;YQ==\x07")
	if err := l.Screen.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(shown.String(), "x | <esc>]52;c;YQ==\x07\n") {
		t.Errorf("screen: got %q, want it escaped", shown.String())
	}
	if got := entries(t, path); got[0] != "x | \x1b]52;c;YQ==\x07" {
		t.Errorf("file: got %q, want it as it was", got)
	}
}

package audit

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openTemp(t *testing.T) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

func readEvents(t *testing.T, path string) []Event {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	scan := bufio.NewScanner(bytes.NewReader(b))
	for scan.Scan() {
		e, err := Decode(scan.Bytes())
		if err != nil {
			t.Fatalf("line %q: %v", scan.Text(), err)
		}
		events = append(events, e)
	}
	return events
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"symlink": link, "directory": dir, "fifo": fifo, "device": "/dev/null", "missing folder": filepath.Join(dir, "no", "file"),
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := Open(path, "r"); err == nil {
				_ = l.Close()
				t.Errorf("Open(%q): got no error, want one", path)
			}
		})
	}
	l, err := Open(target, "r")
	if err != nil {
		t.Fatalf("control: got %v, want no error", err)
	}
	_ = l.Close()
}

func TestOpenMode(t *testing.T) {
	_, path := openTemp(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode: got %v, want 0600", got)
	}
}

func TestNewRefusesWithoutAppend(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := New(f, "r"); err == nil {
		t.Error("got no error, want one")
	}
}

// Whatever an agent writes into a name or path, an event is one line of plain
// characters (corpus E24, E25).
func TestWriteEscapes(t *testing.T) {
	hostile := map[string]string{
		"newline":   "a\nb\r\nc",
		"quotes":    `"},{"verdict":"allow`,
		"osc 52":    "\x1b]52;c;aGk=\x07",
		"c1 csi":    "\u009b2J",
		"del":       "a\x7fb",
		"bidi":      "a\u202eb\u2066c",
		"separator": "a\u2028b\u2029c",
		"zero":      "a\u200bb\ufeffc\u00adb",
		"invalid":   "a\xff\xfeb\x9b",
		"tag":       "a\U000e0041b",
	}
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			l, path := openTemp(t)
			if err := l.Write(Event{Kind: KindRequest, Verdict: Deny, Host: text, Path: text, Reason: text, Rule: text}); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(b, []byte("\n")); n != 1 {
				t.Errorf("lines: got %d, want 1", n)
			}
			for _, r := range strings.TrimSuffix(string(b), "\n") {
				if !plain(r) || r > 0x7e {
					t.Errorf("got %U in the line, want it escaped", r)
				}
			}
			got := readEvents(t, path)[0]
			if want := strings.ToValidUTF8(text, "\ufffd"); name != "invalid" && got.Host != want {
				t.Errorf("host: got %q, want %q", got.Host, want)
			}
		})
	}
}

func TestEscapeKeepsPlainText(t *testing.T) {
	for _, s := range []string{"", "plain", `quo"te\`, "grüße 漢字 ✓"} {
		if got := Escape(s); got != s {
			t.Errorf("Escape(%q): got %q, want it unchanged", s, got)
		}
	}
	if got, want := Escape("a\x1b[2J\nb"), `a\u001b[2J\u000ab`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteFromManyWriters(t *testing.T) {
	first, path := openTemp(t)
	second, err := Open(path, "run-2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	var wg sync.WaitGroup
	for i := range 8 {
		l := []*Log{first, second}[i%2]
		wg.Go(func() {
			for j := range 100 {
				if err := l.Write(Event{Kind: KindConnection, Verdict: Allow, Host: fmt.Sprint(i, "-", j, strings.Repeat("x", 500))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(readEvents(t, path)); got != 800 {
		t.Errorf("events: got %d, want 800", got)
	}
}

// A flood is cut, its number is recorded, and events not seen before still
// get through (corpus E23).
func TestFlood(t *testing.T) {
	l, path := openTemp(t)
	now := time.Unix(1_700_000_000, 0)
	l.Now = func() time.Time { return now }
	const flood = rateBurst + 50_000
	for range flood {
		if err := l.Write(Event{Kind: KindRequest, Verdict: Deny, Host: "flood.example"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Write(Event{Kind: KindRequest, Verdict: Deny, Host: "new.example"}); err != nil {
		t.Fatal(err)
	}
	events := readEvents(t, path)
	if len(events) > rateBurst+2 {
		t.Errorf("events: got %d, want at most %d", len(events), rateBurst+2)
	}
	last := events[len(events)-1]
	if last.Host != "new.example" {
		t.Errorf("last host: got %q, want new.example", last.Host)
	}
	var written, dropped int64
	for _, e := range events {
		dropped += e.Count
		if e.Host == "flood.example" {
			written++
		}
	}
	if written+dropped != flood {
		t.Errorf("written and dropped: got %d, want %d", written+dropped, flood)
	}
	now = now.Add(time.Minute)
	if err := l.Write(Event{Kind: KindRequest, Verdict: Deny, Host: "flood.example"}); err != nil {
		t.Fatal(err)
	}
	if got := len(readEvents(t, path)); got != len(events)+1 {
		t.Errorf("events after a pause: got %d, want %d", got, len(events)+1)
	}
}

func TestWriteFailureIsReported(t *testing.T) {
	l, _ := openTemp(t)
	if err := l.Write(Event{Kind: KindName}); err != nil {
		t.Fatalf("control: got %v, want no error", err)
	}
	_ = l.file.Close()
	if err := l.Write(Event{Kind: KindName}); err == nil {
		t.Error("closed file: got no error, want one")
	}
	if err := (*Log)(nil).Write(Event{}); err == nil {
		t.Error("no log: got no error, want one")
	}
}

// A write cut short by a limit leaves a torn line; the next event must not be
// glued to it.
func TestTornLine(t *testing.T) {
	l, path := openTemp(t)
	l.torn = true
	if _, err := l.file.WriteString(`{"torn":`); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Event{Kind: KindName, Host: "after.example"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	if e, err := Decode([]byte(lines[1])); err != nil || e.Host != "after.example" {
		t.Errorf("second line: got %q, want the whole event", lines[1])
	}
}

func TestRedact(t *testing.T) {
	cases := map[string][2]string{
		"plain":      {"/a/b", "/a/b"},
		"query":      {"/a?token=abc&q=x", "/a?token=[redacted]&q=[redacted]"},
		"bare":       {"/a?ghp_abc", "/a?[redacted]"},
		"secret key": {"/a?AbC1AbC1AbC1AbC1AbC1AbC1=1", "/a?[redacted]"},
		"telegram":   {"/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "/[redacted]/getMe"},
		"sha":        {"/c/0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "/c/0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"},
		"two marks":  {"/a?b=c?d=e", "/a?b=[redacted]"},
		"empty":      {"", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Redact(c[0]); got != c[1] {
				t.Errorf("Redact(%q): got %q, want %q", c[0], got, c[1])
			}
		})
	}
}

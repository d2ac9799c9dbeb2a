package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var testKey = Key{secret: [32]byte{1, 2, 3}}

func signed(t *testing.T, path, run, writer string) *Log {
	t.Helper()
	l, err := Open(path, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sign(writer, testKey.ForWriter(run, writer)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func put(t *testing.T, l *Log, hosts ...string) {
	t.Helper()
	for _, h := range hosts {
		if err := l.Write(Event{Kind: KindConnection, Verdict: Allow, Host: h}); err != nil {
			t.Fatal(err)
		}
	}
}

// record writes one whole run of a launcher and a proxy.
func record(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	launcher := signed(t, path, "run-1", "launcher")
	if err := launcher.Write(Event{Kind: KindLaunch, Policy: "p"}); err != nil {
		t.Fatal(err)
	}
	proxy := signed(t, path, "run-1", "proxy")
	for i := range 200 {
		put(t, proxy, fmt.Sprint("host-", i, ".example"))
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Close("proxy"); err != nil {
		t.Fatal(err)
	}
	return path
}

func verify(t *testing.T, files ...string) Report {
	t.Helper()
	r, err := Verify(files, testKey, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// problems gives all that is wrong, in words.
func problems(r Report) string {
	var b strings.Builder
	for _, run := range r.Runs {
		for _, m := range run.Missing {
			fmt.Fprintf(&b, "missing %s\n", m)
		}
		for _, c := range run.Chains {
			for _, p := range c.Problems {
				fmt.Fprintf(&b, "%s: %d: %s\n", c.Writer, p.Line, p.What)
			}
		}
	}
	for _, p := range r.Unsigned {
		fmt.Fprintf(&b, "unsigned %d\n", p.Line)
	}
	return b.String()
}

func TestVerifyAcceptsAWholeRecord(t *testing.T) {
	r := verify(t, record(t))
	if !r.Intact() || !r.Closed() || len(r.Torn) > 0 {
		t.Fatalf("got %s, want nothing wrong", problems(r))
	}
	if len(r.Runs) != 1 || len(r.Runs[0].Chains) != 2 || r.Runs[0].Policy != "p" {
		t.Fatalf("got %+v, want one run with two chains", r.Runs)
	}
	if got := r.Runs[0].Chains[1]; got.Writer != "proxy" || got.Lines != 202 || got.Last != 202 || !got.Closed {
		t.Errorf("got %+v, want 202 lines of the proxy", got)
	}
}

// Whoever may write the file, but has no key, is found out.
func TestVerifyFindsTampering(t *testing.T) {
	index := func(lines [][]byte, text string) int {
		return slices.IndexFunc(lines, func(l []byte) bool { return bytes.Contains(l, []byte(text)) })
	}
	cases := map[string]struct {
		change func(lines [][]byte) [][]byte
		want   string
	}{
		"changed": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			l[i] = bytes.Replace(l[i], []byte("host-7.example"), []byte("host-x.example"), 1)
			return l
		}, "was changed"},
		"verdict changed": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			l[i] = bytes.Replace(l[i], []byte(`"action_id":1`), []byte(`"action_id":2`), 1)
			return l
		}, "was changed"},
		"removed": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			return slices.Delete(l, i, i+1)
		}, "lines 9 to 9 of this chain are missing"},
		"first removed": {func(l [][]byte) [][]byte { return l[1:] }, "lines 1 to 1 of this chain are missing"},
		"swapped": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			l[i], l[i+1] = l[i+1], l[i]
			return l
		}, "lines 9 to 9 of this chain are missing"},
		"repeated": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			return slices.Insert(l, i, l[i])
		}, "repeated"},
		"added without a code": {func(l [][]byte) [][]byte {
			text, _, _ := splitCode(l[5])
			return slices.Insert(l, 5, append(bytes.Clone(text), "}}"...))
		}, "unsigned 6"},
		"added with a made-up code": {func(l [][]byte) [][]byte {
			text, _, _ := splitCode(l[len(l)-3])
			forged := bytes.Replace(bytes.Clone(text), []byte(`"sequence":20`), []byte(`"sequence":90`), 1)
			return append(l, append(append(append(forged, beforeMAC...), bytes.Repeat([]byte("0"), 64)...), afterMAC...))
		}, "forged"},
		"a whole chain removed": {func(l [][]byte) [][]byte {
			return slices.DeleteFunc(l, func(b []byte) bool { return bytes.Contains(b, []byte(`"log_provider":"proxy"`)) })
		}, "missing proxy"},
		"the launcher's chain removed": {func(l [][]byte) [][]byte {
			return slices.DeleteFunc(l, func(b []byte) bool { return bytes.Contains(b, []byte(`"log_provider":"launcher"`)) })
		}, "missing launcher"},
		"another run's line": {func(l [][]byte) [][]byte {
			i := index(l, "host-7.example")
			l[i] = bytes.ReplaceAll(l[i], []byte("run-1"), []byte("run-2"))
			return l
		}, "was changed"},
		"before ours in the format of before": {func(l [][]byte) [][]byte {
			return slices.Insert(l, 0, []byte(`{"time":"2026-11-30T19:45:39Z","run":"r","kind":"launch"}`))
		}, "unsigned 1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := record(t)
			if r := verify(t, path); !r.Intact() {
				t.Fatalf("control: got %s, want nothing wrong", problems(r))
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := c.change(bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")))
			if err := os.WriteFile(path, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
			r := verify(t, path)
			if got := problems(r); r.Intact() || !strings.Contains(got, c.want) {
				t.Errorf("got intact %v and %q, want %q", r.Intact(), got, c.want)
			}
		})
	}
}

// What was cut off at the end leaves a run that was not closed.
func TestVerifySeesACutTail(t *testing.T) {
	for _, cut := range []int{1, 2, 50, 150} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			path := record(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(b, []byte("\n"))
			if err := os.WriteFile(path, bytes.Join(lines[:len(lines)-1-cut], nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, path); r.Closed() {
				t.Errorf("got closed, want the cut to show: %+v", r.Runs[0].Chains)
			}
			running := func(string) bool { return true }
			if r, err := Verify([]string{path}, testKey, 0, running); err != nil || !r.Closed() {
				t.Errorf("a run that goes on: got closed %v (%v), want no complaint", r.Closed(), err)
			}
		})
	}
}

// A key that a writer had does not make lines of another run, of another
// writer, or of its own past.
func TestVerifyFindsForgeryWithAWritersKey(t *testing.T) {
	path := record(t)
	stolen := newChain(testKey.ForWriter("run-1", "proxy"))
	stolen.advance(200) // what the proxy holds at its 200th line
	cases := map[string]Event{
		"another writer": {Kind: KindExit, Run: "run-1", Writer: "launcher", Sequence: 3},
		"another run":    {Kind: KindExit, Run: "run-9", Writer: "proxy", Sequence: 1},
		"its own past":   {Kind: KindConnection, Run: "run-1", Writer: "proxy", Sequence: 5, Host: "forged.example"},
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
			c := *stolen
			e.Pos = "p.yaml:1:1"
			forged := appendEvent(nil, &e, "")
			// There is no way back to an earlier key: the thief uses the one of now.
			forged = append(append(append(forged, beforePrev...), c.prev[:]...), '"')
			code := c.code(200, forged)
			forged = append(append(append(forged, beforeMAC...), code[:]...), afterMAC...)
			at := len(lines)
			if name == "its own past" {
				at = slices.IndexFunc(lines, func(l []byte) bool {
					return bytes.Contains(l, []byte(`"sequence":5,`)) && bytes.Contains(l, []byte(`"proxy"`))
				})
				lines = slices.Delete(lines, at, at+1)
			}
			lines = slices.Insert(lines, at, forged)
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			if err := os.WriteFile(file, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, file); r.Intact() {
				t.Errorf("got intact, want the forgery to show")
			}
		})
	}
}

func TestVerifyNeedsTheKey(t *testing.T) {
	r, err := Verify([]string{record(t)}, Key{secret: [32]byte{9}}, 0, nil)
	if err != nil || r.Intact() {
		t.Errorf("another key: got intact %v (%v), want not", r.Intact(), err)
	}
}

// A line that a full disk cut off costs no other line, whoever writes next.
func TestVerifyToleratesTornLines(t *testing.T) {
	for name, end := range map[string]string{"then a new line": "\n", "then another writer's line": ""} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			l := signed(t, path, "run-1", "launcher")
			put(t, l, "before.example")
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(`{"time":1764,"class_uid":4001,"mess` + end); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			put(t, l, "after.example")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			r := verify(t, path)
			if !r.Intact() || !r.Closed() || len(r.Torn) != 1 {
				t.Errorf("got %s and torn %v, want one torn line and nothing wrong", problems(r), r.Torn)
			}
			events, err := ReadFile(path)
			if err != nil || !slices.ContainsFunc(events, func(e Event) bool { return e.Host == "after.example" }) {
				t.Errorf("got %+v (%v), want the line behind the torn one", events, err)
			}
		})
	}
}

// A full file costs the event and nothing else: the chain goes on, and says
// that one is missing.
func TestFailedWriteIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := signed(t, path, "run-1", "launcher")
	put(t, l, "before.example")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	good := l.fd
	l.fd = int(full.Fd())
	if err := l.Write(Event{Kind: KindConnection, Verdict: Allow, Host: "lost.example"}); err == nil {
		t.Fatal("got no error, want one")
	}
	l.fd = good
	put(t, l, "after.example")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := verify(t, path)
	if !r.Intact() || r.Runs[0].Chains[0].Dropped != 1 {
		t.Errorf("got %s and %+v, want an intact chain that says one event was left out", problems(r), r.Runs[0].Chains[0])
	}
}

func TestManySignedWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var wg sync.WaitGroup
	for run := range 4 {
		l := signed(t, path, fmt.Sprint("run-", run), "launcher")
		for range 4 {
			wg.Go(func() {
				for i := range 400 {
					if err := l.Write(Event{Kind: KindConnection, Verdict: Allow, Host: fmt.Sprint(i, ".example")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() { l.Hide(fmt.Sprint("secret-", run)) })
	}
	wg.Wait()
	r := verify(t, path)
	if !r.Intact() || len(r.Runs) != 4 {
		t.Fatalf("got %d runs and %s, want 4 and nothing wrong", len(r.Runs), problems(r))
	}
	events, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	marks := 0
	for _, e := range events {
		if e.Kind == KindCheckpoint {
			marks++
			if e.Count != int64(e.Sequence)-1 || len(e.Digest) != 64 {
				t.Errorf("checkpoint: got %+v, want the lines before it and the head", e)
			}
		}
	}
	if marks != 4 {
		t.Errorf("checkpoints: got %d, want one for each 1,024 lines of a run", marks)
	}
}

func TestNothingFollowsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := signed(t, path, "run-1", "launcher")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(Event{Kind: KindExit}); err == nil {
		t.Error("write after the end: got no error, want one")
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second close: got %v, want no error", err)
	}
}

// No byte of a record can be changed without notice.
func TestVerifyFindsEveryByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	launcher := signed(t, path, "run-1", "launcher")
	proxy := signed(t, path, "run-1", "proxy")
	put(t, proxy, "a.example", "b.example")
	if err := errors.Join(proxy.Close(), launcher.Close("proxy")); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(t, path); !r.Intact() || !r.Closed() {
		t.Fatalf("control: got %s, want nothing wrong", problems(r))
	}
	for i := range good[:len(good)-1] { // the end of the last line says nothing
		bad := bytes.Clone(good)
		bad[i] ^= []byte{1, 0x20}[i%2]
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, path); r.Intact() && r.Closed() {
			t.Fatalf("byte %d as %q: got intact, want it to show", i, bad[i])
		}
	}
}

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fuzzRecord writes three runs over a rotated set of three files, and gives the
// lines of each file. The first run begins in the first file, the second goes
// over into the next one.
func fuzzRecord(t testing.TB) (files [][][]byte) {
	t.Helper()
	dir := t.TempDir()
	path := func(n int) string { return filepath.Join(dir, fmt.Sprint(n)) }
	open := func(at, run int, writer string) *Log {
		l, err := Open(path(at), fmt.Sprint("run-", run))
		if err == nil {
			l.Number = int64(run)
			if writer != launcherWriter {
				l.Number = 0
			}
			err = l.Sign(writer, testKey.ForWriter(l.Run(), writer))
		}
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	say := func(l *Log, host string) {
		if err := l.Write(Event{Kind: KindConnection, Verdict: Allow, Host: host, Reason: "r\u00e9ason"}); err != nil {
			t.Fatal(err)
		}
	}
	for run := 1; run <= 3; run++ {
		at := max(run-1, 0)
		launcher, proxy := open(at, run, launcherWriter), open(at, run, "proxy")
		say(proxy, "a.example")
		say(launcher, "b.example")
		if run == 2 {
			for _, l := range []*Log{launcher, proxy} {
				f, err := openAppend(path(at + 1))
				if err == nil {
					l.mu.Lock()
					err = l.lockedSwap(f)
					l.mu.Unlock()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		say(proxy, "c.example")
		if err := errors.Join(proxy.Close(), launcher.Close("proxy")); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		b, err := os.ReadFile(path(n))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(b, []byte("\n"))
		files = append(files, lines[:len(lines)-1])
	}
	return files
}

// tamper changes a record as the bytes say, with a few whole-line operations and
// a few on bytes. It leaves files of the record alone that it does not touch.
func tamper(files [][][]byte, how []byte) [][][]byte {
	files = slices.Clone(files)
	for i := range files {
		files[i] = slices.Clone(files[i])
	}
	next := func(n int) int {
		if len(how) == 0 || n == 0 {
			return 0
		}
		v := int(how[0])
		if how = how[1:]; n > 256 && len(how) > 0 {
			v, how = v<<8|int(how[0]), how[1:]
		}
		return v % n
	}
	for range 4 {
		if len(how) == 0 {
			break
		}
		op, at := next(8), next(len(files))
		lines := files[at]
		if len(lines) == 0 {
			continue
		}
		i := next(len(lines))
		if len(lines[i]) == 0 {
			continue // all of it was taken out before
		}
		switch op {
		case 0: // cut out
			files[at] = slices.Delete(lines, i, i+1)
		case 1: // repeat, perhaps in another file
			to := next(len(files))
			files[to] = slices.Insert(slices.Clone(files[to]), next(len(files[to])+1), lines[i])
		case 2: // swap
			j := next(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
		case 3: // cut off the end of the file
			files[at] = lines[:i]
		case 4: // change a byte
			line := bytes.Clone(lines[i])
			line[next(len(line))] ^= byte(1 + next(255))
			lines[i] = line
		case 5: // put in bytes
			line, n := bytes.Clone(lines[i]), next(64)
			piece := how[:min(n, len(how))]
			how = how[len(piece):]
			lines[i] = slices.Insert(line, next(len(line)+1), piece...)
		case 6: // take bytes out
			line := bytes.Clone(lines[i])
			from := next(len(line))
			lines[i] = slices.Delete(line, from, min(len(line), from+1+next(64)))
		case 7: // move to another file
			to := next(len(files))
			moved := lines[i]
			files[at] = slices.Delete(lines, i, i+1)
			files[to] = append(slices.Clone(files[to]), moved)
		}
	}
	return files
}

// FuzzTamper: a rotated set of files in which anything was changed, cut, swapped
// or repeated is never taken for intact and complete, unless what is left is what
// was written: all of it, or what rotation leaves, in an order that keeps each
// writer's.
func FuzzTamper(f *testing.F) {
	for op := range 8 {
		for at := range 3 {
			f.Add([]byte{byte(op), byte(at), 1, 2, 3, 4, 5, 6, 7, 8})
		}
	}
	f.Add([]byte{0, 0, 0, 3, 1, 2, 2, 2, 0, 1})
	whole := fuzzRecord(f)
	if !intact(f, whole) {
		f.Fatal("control: got a problem, want none")
	}
	f.Fuzz(func(t *testing.T, how []byte) {
		files := tamper(whole, how)
		if intact(t, files) && !keepsAll(whole, files) {
			t.Fatalf("got intact and closed, want a problem: %q", files)
		}
	})
}

// intact tells whether Verify finds nothing.
func intact(t testing.TB, files [][][]byte) bool {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, lines := range files {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.WriteFile(paths[i], bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(paths, testKey, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Intact() && r.Closed() && len(r.Torn) == 0
}

// keepsAll tells whether the files still hold every line of each writer in its
// order. That lines of two writers change places says nothing: they write at the
// same time. Of the oldest file's first lines some may be gone, as after rotation.
func keepsAll(whole, files [][][]byte) bool {
	was, is := byWriter(whole), byWriter(files)
	for writer, lines := range is {
		if n := len(was[writer]) - len(lines); n < 0 || !slices.EqualFunc(was[writer][n:], lines, bytes.Equal) {
			return false
		}
	}
	// What rotation takes is the beginning of the record.
	first := was["run-1 launcher"]
	for writer, lines := range was {
		gone := len(lines) - len(is[writer])
		if gone > 0 && !bytes.Contains(lines[0], []byte(`run-1`)) {
			return false
		}
	}
	return len(first) > 0
}

// byWriter sorts the lines by run and writer.
func byWriter(files [][][]byte) map[string][][]byte {
	all := map[string][][]byte{}
	for _, lines := range files {
		for _, line := range bytes.SplitAfter(bytes.Join(lines, nil), []byte("\n")) {
			line = bytes.TrimRight(line, "\n")
			if len(line) == 0 {
				continue
			}
			e, err := Decode(line)
			if err != nil {
				all["unreadable"] = append(all["unreadable"], line)
				continue
			}
			writer := e.Run + " " + e.Writer
			all[writer] = append(all[writer], line)
		}
	}
	return all
}

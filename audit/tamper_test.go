package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// pair writes two runs, each of a launcher and a proxy, and gives the lines.
func pair(t *testing.T) [][]byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for n := range 2 {
		run := fmt.Sprint("run-", n+1)
		launcher, err := Open(path, run)
		if err != nil {
			t.Fatal(err)
		}
		launcher.Number = int64(n + 1)
		if err := launcher.Sign("launcher", testKey.ForWriter(run, "launcher")); err != nil {
			t.Fatal(err)
		}
		proxy := signed(t, path, run, "proxy")
		put(t, proxy, "a.example", "b.example", "c.example")
		put(t, launcher, "d.example")
		if err := proxy.Close(); err != nil {
			t.Fatal(err)
		}
		if err := launcher.Close("proxy"); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	return lines[:len(lines)-1]
}

// accepted tells whether Verify finds nothing in the lines, spread over files.
func accepted(t *testing.T, files ...[][]byte) bool {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i, lines := range files {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.WriteFile(paths[i], bytes.Join(lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(paths, testKey, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Intact() && r.Closed()
}

// Every single line removed, repeated at every place, moved, and every byte
// changed is found.
func TestVerifyFindsEverySingleChange(t *testing.T) {
	lines := pair(t)
	if !accepted(t, lines) || !accepted(t, lines[:5], lines[5:]) {
		t.Fatal("control: got a problem, want none")
	}
	for i, line := range lines {
		without := slices.Delete(slices.Clone(lines), i, i+1)
		if accepted(t, without) {
			t.Errorf("line %d removed: got no problem", i+1)
		}
		for j := range len(lines) + 1 {
			if accepted(t, slices.Insert(slices.Clone(lines), j, line)) {
				t.Errorf("line %d repeated at %d: got no problem", i+1, j+1)
			}
		}
	}
	for i := range len(lines[3]) {
		changed := slices.Clone(lines)
		changed[3] = bytes.Clone(lines[3])
		changed[3][i] ^= 1
		if accepted(t, changed) {
			t.Errorf("byte %d changed: got no problem", i)
		}
	}
}

// What rotation cannot take is missed, also where files are split or emptied.
func TestVerifyMissesWhatRotationLeaves(t *testing.T) {
	lines := pair(t)
	run := len(lines) / 2
	inRun := func(writer string) (at []int) {
		for i, l := range lines[:run] {
			if bytes.Contains(l, []byte(`"log_provider":"`+writer+`"`)) {
				at = append(at, i)
			}
		}
		return at
	}
	for _, writer := range []string{"launcher", "proxy"} {
		for n := range len(inRun(writer)) {
			cut := slices.Clone(lines)
			for _, i := range slices.Backward(inRun(writer)[:n+1]) {
				cut = slices.Delete(cut, i, i+1)
			}
			if accepted(t, cut[:4], cut[4:]) {
				t.Errorf("the first %d lines of the %s removed, and not the other's: got no problem", n+1, writer)
			}
		}
	}
	if accepted(t, [][]byte{}) || accepted(t, [][]byte{}, [][]byte{}) {
		t.Error("emptied files: got no problem")
	}
	if accepted(t, lines[:run]) {
		t.Error("the last run removed: got no problem")
	}
	if !accepted(t, lines[run-1:run+3], lines[run+3:]) {
		t.Error("control: the oldest lines gone as by rotation: got a problem")
	}
}

// A file full of forged lines does not keep Verify for days, however they are
// spread over runs, and what is genuine is still told from them.
func TestVerifyEndsOnForgedNumbers(t *testing.T) {
	lines := pair(t)
	forged := bytes.Replace(lines[1], []byte(`"sequence":`), fmt.Appendf(nil, `"sequence":%d`, maxAhead/10), 1)
	var all [][]byte
	for i := range 200 {
		all = append(all, bytes.ReplaceAll(forged, []byte("run-1"), fmt.Appendf(nil, "run-%d", i)))
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, bytes.Join(append(all, lines...), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r, err := Verify([]string{path}, testKey, 2, nil)
	if err != nil || r.Intact() {
		t.Errorf("got intact and %v, want problems", err)
	}
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("took %v, want seconds", took)
	}
	for _, run := range r.Runs {
		if run.Run == "run-2" && (len(run.Chains) != 2 || run.Chains[0].Lines+run.Chains[1].Lines != uint64(len(lines)/2)) {
			t.Errorf("got %+v, want every line of the second run", run)
		}
	}
}

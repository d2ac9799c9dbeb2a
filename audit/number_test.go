package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// Runs that begin at the same time get numbers in the order of their lines.
func TestNumberRun(t *testing.T) {
	dir := t.TempDir()
	path, record := filepath.Join(dir, "runs", "count"), filepath.Join(dir, "audit.jsonl")
	if n, err := Runs(path); n != 0 || err != nil {
		t.Errorf("before the first: got %d, %v, want 0", n, err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := NumberRun(path, func(number int64) error {
				l, err := Open(record, fmt.Sprint("run-", i))
				if err != nil {
					return err
				}
				l.Number = number
				return errors.Join(l.Sign("launcher", testKey.ForWriter(l.Run(), "launcher")), l.Close())
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var numbers []int64
	for _, e := range readEvents(t, record) {
		if e.Kind == KindOpen {
			numbers = append(numbers, e.Count)
		}
	}
	if len(numbers) != 20 || !slices.IsSorted(numbers) || numbers[0] != 1 || numbers[19] != 20 {
		t.Errorf("got %v, want 1 to 20 in order", numbers)
	}
	failed := errors.New("no")
	if err := NumberRun(path, func(int64) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a run that cannot begin: got %v, want its error", err)
	}
	if n, err := Runs(path); n != 20 || err != nil {
		t.Errorf("after it: got %d, %v, want 20", n, err)
	}
	if err := os.WriteFile(path, []byte("many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NumberRun(path, func(int64) error { return nil }); err == nil {
		t.Error("no number: got no error, want one")
	}
}

// A run that was taken out of the record as a whole is missed.
func TestVerifyMissesWholeRuns(t *testing.T) {
	dir := t.TempDir()
	path, count := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "count")
	for i := range 5 {
		l, err := Open(path, fmt.Sprint("run-", i+1))
		if err != nil {
			t.Fatal(err)
		}
		err = NumberRun(count, func(n int64) error {
			l.Number = n
			return l.Sign("launcher", testKey.ForWriter(l.Run(), "launcher"))
		})
		if err := errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		remove []int
		total  int64
		want   []Gap
	}{
		"nothing":           {nil, 5, nil},
		"nothing, no total": {nil, 0, nil},
		"one":               {[]int{3}, 5, []Gap{{3, 3}}},
		"several":           {[]int{2, 4}, 0, []Gap{{2, 2}, {4, 4}}},
		"the last":          {[]int{4, 5}, 5, []Gap{{4, 5}}},
		"the last, unknown": {[]int{5}, 0, nil},
		"the oldest":        {[]int{1, 2}, 5, nil}, // as rotation does
	} {
		t.Run(name, func(t *testing.T) {
			var kept []byte
			for line := range bytes.Lines(good) {
				if !slices.ContainsFunc(c.remove, func(n int) bool { return bytes.Contains(line, fmt.Appendf(nil, `"run-%d"`, n)) }) {
					kept = append(kept, line...)
				}
			}
			if err := os.WriteFile(path, kept, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Verify([]string{path}, testKey, c.total, nil)
			if err != nil || !slices.Equal(r.Gaps, c.want) || r.Intact() != (c.want == nil) {
				t.Errorf("got %v, intact %v (%v), want %v", r.Gaps, r.Intact(), err, c.want)
			}
		})
	}
}

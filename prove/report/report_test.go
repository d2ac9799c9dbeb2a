package report

import (
	"strings"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		part Part
		want int
	}{
		"green":           {Part{}, 0},
		"failed":          {Part{Failed: []string{"A01 escaped"}}, 1},
		"kernel":          {Part{Missing: []Missing{{ID: "A23", Reason: "kernel: no AF_ALG"}}}, 0},
		"machine":         {Part{Missing: []Missing{{ID: "G09", Reason: "machine: no WSL2"}}}, 0},
		"no good reason":  {Part{Missing: []Missing{{ID: "A01", Reason: "control: did not work"}}}, 1},
		"nearly a reason": {Part{Missing: []Missing{{ID: "A01", Reason: "kernel"}}}, 1},
	} {
		if got := c.part.Faults(); len(got) != c.want {
			t.Errorf("%s: got %q, want %d faults", name, got, c.want)
		}
	}
}

func TestPage(t *testing.T) {
	p := Part{
		Name: "escapes", Title: "Escape suite: tried", Seed: 7, Short: true, Took: time.Minute, Failed: []string{"a\nb"},
		Tables: []Table{{Columns: []string{"id", "result"}, Rows: [][]string{{"A01", "x|y\x1b[31m"}}}},
	}
	page := Page(Head{}, []Part{p, {Title: "other", Took: time.Minute}, {Title: "kernels", Absent: true}})
	for _, want := range []string{"| kernels | | | | | **not run** |", "(#escape-suite-tried)", "**1 failed**", "* a b\n", `| A01 | x\|y [31m |`, "| 7 | 1m0s | **1 failed**, short form |", "| all parts took | 2m0s |"} {
		if !strings.Contains(page, want) {
			t.Errorf("got %q, want %q in it", page, want)
		}
	}
}

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	want := Part{Name: "x", Title: "X", Failed: []string{"f"}}
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(dir, "x"); err != nil || got.Title != "X" || len(got.Failed) != 1 {
		t.Errorf("got %+v (%v), want what was saved", got, err)
	}
}

package fuzz

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// fixture is a module with targets that hold, break at some input, and break at
// a seed.
const fixture = `package fixture

import "testing"

// FuzzHolds: twice the length is even,
// whatever the input | is.
func FuzzHolds(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := twice(b); n%2 != 0 {
			t.Fatal(n)
		}
	})
}

// FuzzBreaks: no input is long.
func FuzzBreaks(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if twice(b) > 6 {
			t.Fatalf("got %d, want less", len(b))
		}
	})
}

// FuzzBreaksAtOnce: nothing holds.
func FuzzBreaksAtOnce(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, b []byte) { t.Fatal("never") })
}
`

func fixtureOptions(t *testing.T) report.Options {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module fixture\n\ngo 1.26\n", "fixture_test.go": fixture,
		"fixture.go":     "package fixture\n\nfunc twice(b []byte) int {\n\tif len(b) > 3 {\n\t\treturn len(b) + len(b)\n\t}\n\treturn 2 * len(b)\n}\n",
		"other/other.go": "package other\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return report.Options{Root: root, Work: filepath.Join(root, "work"), Patience: 3 * time.Second, Say: t.Logf}
}

// A target that breaks is a failure of the part, with the input that did it; one
// that holds is counted, and goes on from what was kept.
func TestRunTellsWhatBreaks(t *testing.T) {
	o := fixtureOptions(t)
	part, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(part.Failed, "\n")
	for _, want := range []string{"FuzzBreaks: ", "(the input: testdata/fuzz/FuzzBreaks/", "want less", "FuzzBreaksAtOnce: ", "never"} {
		if !strings.Contains(all, want) {
			t.Errorf("got %q, want %q in it", all, want)
		}
	}
	if strings.Contains(all, "FuzzHolds") || len(part.Failed) != 3 {
		t.Errorf("got %q, want the two targets, and that their seeds fail when coverage is measured", all)
	}
	rows := map[string][]string{}
	for _, row := range part.Tables[0].Rows {
		rows[row[0]] = row
	}
	holds := rows["`.` FuzzHolds"]
	if holds == nil || holds[1] != `twice the length is even, whatever the input \| is.` || holds[2] == "0" {
		t.Errorf("got %q in %v, want what the comment says and some inputs", holds, rows)
	}
	first, err := loadTotals(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(o.Root, "testdata")); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(fixture, "t.Fatal", "t.Log")
	if err := os.WriteFile(filepath.Join(o.Root, "fixture_test.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if part, err = Run(t.Context(), o); err != nil || len(part.Failed) > 0 {
		t.Fatalf("got %v and %q, want no failure once nothing breaks", err, part.Failed)
	}
	if again, err := loadTotals(o); err != nil || again[". FuzzHolds"].Executed <= first[". FuzzHolds"].Executed {
		t.Errorf("got %v in all (%v), want more than %v", again, err, first)
	}
	if table := part.Tables[1]; len(table.Rows) != 1 || !strings.HasSuffix(table.Rows[0][2], "%") {
		t.Errorf("got %+v, want how much is covered", table)
	}
}

func TestParse(t *testing.T) {
	const ended = "fuzz: elapsed: 3s, gathering baseline coverage: 54/64 completed\nfuzz: elapsed: 6s, execs: 7472 (2473/sec), new interesting: 11 (total: 75)\nfuzz: elapsed: 9s, execs: 8000 (0/sec), new interesting: 12 (total: 76)\nPASS\n"
	if got := parse(ended); got != (result{executed: 8000, interesting: 12, kept: 76}) {
		t.Errorf("got %+v", got)
	}
	if got := parse("fuzz: elapsed: 3s, gathering baseline coverage: 54/64 completed\nPASS\n"); got != (result{executed: 54, kept: 64}) {
		t.Errorf("before anything new was tried: got %+v", got)
	}
	const lost = "--- FAIL: FuzzX (50.65s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n"
	if got := parse(lost); got.crasher != "" || !strings.Contains(got.trouble, "hung or terminated") {
		t.Errorf("a process that was lost: got %+v", got)
	}
	const late = "fuzz: elapsed: 5s, execs: 5480 (1484/sec), new interesting: 33 (total: 52)\n--- FAIL: FuzzX (5.02s)\n    context deadline exceeded\nFAIL\n"
	if got := parse(late); got.trouble != "" || !got.timeUp {
		t.Errorf("the end of the time: got %+v", got)
	}
	const both = "Failing input written to testdata/fuzz/FuzzX/1\n" + late
	if got := parse(both); got.trouble == "" || got.timeUp {
		t.Errorf("an input that failed at the end: got %+v", got)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       report.Options
		targets int
		want    time.Duration
	}{
		{"full", report.Options{}, 40, 12 * time.Second},
		{"full, few", report.Options{}, 0, 8 * time.Minute},
		{"full, very many", report.Options{}, 1000, least},
		{"short", report.Options{Short: true}, 40, shortly},
		{"as told", report.Options{Short: true, Patience: time.Hour}, 40, time.Hour},
	} {
		if got := share(c.o, c.targets); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// Every target of the repository says what it checks: a stranger reads it.
func TestEveryTargetPromises(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := discover(t.Context(), report.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range packages {
		for name, text := range p.holds {
			if n++; len(text) < 20 {
				t.Errorf("%s %s: got the promise %q, want a sentence", p.rel, name, text)
			}
		}
	}
	if n < 40 {
		t.Errorf("got %d targets, want all of them", n)
	}
}

// Command tally reads the events of "go test -json" on standard input, prints
// what a person wants to see of them, and closes with "N passed, N failed". It
// ends with 1 when a test or a package failed, or when nothing was tested at
// all.
//
// With HERMES_MUST_WORK=1 a test that was skipped has failed. With HERMES_TALLY
// the counts are also appended to that file, for a total over several runs.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	t := tally{out: os.Stdout, mustWork: os.Getenv("HERMES_MUST_WORK") == "1"}
	err := t.read(os.Stdin)
	if err == nil {
		err = t.keep(os.Getenv("HERMES_TALLY"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
	t.close()
	if !t.good() {
		os.Exit(1)
	}
}

// event is one line of "go test -json", as far as it matters here.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build that failed
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// tally counts tests, subtests included. The zero value, with out set, is ready.
type tally struct {
	out      io.Writer
	mustWork bool

	passed, failed, skipped int
	lost                    []string            // what failed, in order
	output                  map[string][]string // what a test that still runs has printed
	broken                  map[string]bool     // packages with a test that failed
}

func (t *tally) read(r io.Reader) error {
	t.output, t.broken = map[string][]string{}, map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			t.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
}

// line takes one event; what is none (a compiler's words) is shown as it is.
func (t *tally) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		_, _ = t.out.Write(line)
		return
	}
	if e.Test == "" {
		t.pkg(e)
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		t.output[key] = append(t.output[key], e.Output)
		return
	case "pass":
		t.passed++
	case "fail":
		t.failed++
		t.broken[e.Package] = true
		t.show(key)
		t.lost = append(t.lost, "FAIL "+key)
	case "skip":
		t.skip(e.Package, key)
	default:
		return
	}
	delete(t.output, key)
}

func (t *tally) skip(pkg, key string) {
	if !t.mustWork {
		t.skipped++
		return
	}
	t.failed++
	t.broken[pkg] = true
	t.show(key)
	t.lost = append(t.lost, "SKIP "+key+" (here a skip is a failure)")
}

// pkg takes an event about a whole package.
func (t *tally) pkg(e event) {
	switch e.Action {
	case "output":
		t.output[e.Package] = append(t.output[e.Package], e.Output)
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "pass":
		fmt.Fprintf(t.out, "ok    %-60s %7.1f s\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Fprintf(t.out, "FAIL  %-60s %7.1f s\n", e.Package, e.Elapsed)
		if !t.broken[e.Package] {
			// It did not compile, panicked outside of a test, or ran out of time.
			t.show(e.Package)
			t.failed++
			t.lost = append(t.lost, "FAIL "+e.Package)
		}
	}
}

func (t *tally) show(key string) {
	for _, s := range t.output[key] {
		fmt.Fprint(t.out, s)
	}
	delete(t.output, key)
}

func (t *tally) good() bool { return t.failed == 0 && t.passed > 0 }

// close prints what failed once more, since it is far up by now, and the counts.
func (t *tally) close() {
	for _, s := range t.lost {
		fmt.Fprintln(t.out, s)
	}
	if t.skipped > 0 {
		fmt.Fprintf(t.out, "%d skipped\n", t.skipped)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed\n", t.passed, t.failed)
}

func (t *tally) keep(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep the counts: %w", err)
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, t.passed, t.failed)
	return err
}

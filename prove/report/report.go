// Package report is what the parts of a proof share: what each part found, and
// the page that a stranger reads.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options are what every part is told.
type Options struct {
	// Bin is the hermes-wrap binary under test, an absolute path that the
	// account can execute.
	Bin string
	// Root is the checkout; Work a directory of the part's own below
	// .cache/prove, which exists.
	Root, Work string
	// User is the ordinary account for what root starts; empty when the proof
	// itself is run by an ordinary user.
	User string
	// Seed decides what is generated. It is printed, and the same seed makes
	// the same cases.
	Seed int64
	// Short asks for what a continuous integration run has time for.
	Short bool
	// Patience bounds work that could go on for ever, fuzzing for example;
	// zero leaves it to the part.
	Patience time.Duration
	// Sandbox is the command line of another sandbox to put in our place, for
	// the parts that can. Empty means ours.
	Sandbox string
	// Say prints a line of progress.
	Say func(format string, args ...any)
}

// Part is what one part of the proof found.
type Part struct {
	Name, Title string
	// Intro says in plain words what was done, and what a result means.
	Intro  string
	Tables []Table
	// Failed lists what must not be: escapes, limits that did not hold. A
	// proof with one of these is not green.
	Failed []string
	// Missing lists what was not exercised, with the reason.
	Missing []Missing
	// Notes are remarks below the tables.
	Notes []string
	// Absent says that the part has not been run.
	Absent bool
	// Release, Seed, Short, Began and Took are filled in by who runs the part.
	Release string
	Seed    int64
	Short   bool
	Began   time.Time
	Took    time.Duration
}

// Table is one table of the page. Cells hold Markdown of one line.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

// Missing is something that was not exercised here.
type Missing struct {
	ID, What string
	// Reason says why. It starts with "kernel: " when a feature of the kernel is
	// missing, and with "machine: " when something else cannot be had on this
	// machine; any other reason makes the proof fail.
	Reason string
}

// Func is how a part is run. An error means that it could not be carried out.
type Func func(context.Context, Options) (Part, error)

// Save writes a part where Load finds it.
func (p Part) Save(dir string) error {
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("save part %s: %w", p.Name, err)
	}
	return os.WriteFile(filepath.Join(dir, p.Name+".json"), append(b, '\n'), 0o644)
}

// Load reads what Save wrote.
func Load(dir, name string) (Part, error) {
	var p Part
	b, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("load part %s: %w", name, err)
	}
	return p, nil
}

// Print writes the whole report as JSON.
func Print(w io.Writer, h Head, parts []Part) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(struct {
		Head  Head
		Parts []Part
	}{h, parts})
}

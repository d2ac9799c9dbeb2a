package escape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Status is what came of a case under one configuration, account and variant.
type Status string

// The statuses. Failed means that the proof cannot tell, or that a legitimate
// use was broken; it is as bad as an escape.
const (
	StatusContained    Status = "contained"
	StatusEscaped      Status = "escaped"
	StatusNotExercised Status = "not exercised"
	StatusFailed       Status = "failed"
	// StatusDropped is a variant made by chance that is no attack: it does not
	// work bare either.
	StatusDropped Status = "dropped"
)

// Result is one line of the record.
type Result struct {
	ID            string
	Account       string
	Configuration string
	Variant       string `json:",omitempty"`
	Status        Status
	// Reason says why, except for what was contained.
	Reason []string `json:",omitempty"`
	// Twin says how the twin escaped, as far as it fits; Ways counts.
	Twin []string `json:",omitempty"`
	Ways int      `json:",omitempty"`
	// Again says that a first try did not run to its end.
	Again bool `json:",omitempty"`
	// Millis is the time of the run inside, in milliseconds.
	Millis int64
	// Output is the end of what a run printed that failed or escaped.
	Output string `json:",omitempty"`
}

// job is a case for one account, under each of its configurations.
type job struct {
	Case           Case
	Account        account
	Configurations []string
	Variants       []variant
}

// do runs the twins of a job and what may then be run inside.
func (w *worker) do(ctx context.Context, j job, say func(Result)) error {
	for _, variant := range j.Variants {
		t := trial{Case: j.Case, Configuration: j.Configurations[0], Account: j.Account, Variant: variant, Twin: true}
		twin, again, err := w.patient(ctx, t, 4, func(o Outcome) bool { return variant.Random || o.damaged() })
		if err != nil {
			return fmt.Errorf("%s: twin: %w", j.Case.ID, err)
		}
		for _, configuration := range j.Configurations {
			r := Result{ID: j.Case.ID, Account: j.Account.Kind, Configuration: configuration, Variant: variant.Value, Twin: twin.Why[:min(len(twin.Why), mostWays)], Ways: len(twin.Why), Again: again}
			if !twin.damaged() {
				r.Status, r.Reason = StatusNotExercised, []string{"control: " + j.Case.Control + ", nothing was touched: " + strings.Join(append(twin.Missed, twin.Why...), "; ")}
				r.Twin, r.Ways, r.Output = nil, 0, output(twin)
				if variant.Random {
					r.Status = StatusDropped
				}
				say(r)
				continue
			}
			t.Configuration, t.Twin = configuration, false
			tries := 2
			if _, other := peers[configuration]; other && configuration != custom {
				tries = 1 // many do not end there, and that tells nothing of ours
			}
			got, again, err := w.patient(ctx, t, tries, Outcome.told)
			if err != nil {
				return fmt.Errorf("%s: %w", j.Case.ID, err)
			}
			r.Again = r.Again || again
			say(r.with(got))
		}
	}
	return nil
}

// patient runs a trial, and again where a run is not good enough: on a busy
// machine a host script can come too late for its own time limits, and a twin
// for what it is to spoil. Each further try has twice the time of the one before,
// up to four times a first. An escape is never tried again.
func (w *worker) patient(ctx context.Context, t trial, tries int, good func(Outcome) bool) (o Outcome, again bool, err error) {
	for n := range tries {
		again, t.Slack = n > 0, 1<<min(n, 2)
		if o, err = w.run(ctx, t); err != nil || good(o) {
			break
		}
	}
	return o, again, err
}

// damaged tells whether a twin did all that it was to do.
func (o Outcome) damaged() bool { return o.Verdict == Escaped && len(o.Missed) == 0 }

// told tells whether a run inside says something of the sandbox.
func (o Outcome) told() bool { return o.Verdict == Contained || o.Verdict == Escaped }

// mostWays bounds what a record tells of one twin.
const mostWays = 40

func (r Result) with(o Outcome) Result {
	r.Millis, r.Reason = o.Took.Milliseconds(), o.Why[:min(len(o.Why), mostWays)]
	switch o.Verdict {
	case Contained:
		r.Status = StatusContained
		return r
	case Escaped:
		r.Status = StatusEscaped
	default:
		r.Status = StatusFailed
		r.Reason = append([]string{string(o.Verdict)}, r.Reason...)
	}
	r.Output = output(o)
	return r
}

func output(o Outcome) string {
	return fmt.Sprintf("exit %d\nstdout: %s\nstderr: %s", o.Exit, tail(o.Stdout), tail(o.Stderr))
}

// missing says why a case cannot be exercised on this machine; "" when it can.
func missing(c Case, lean bool) string {
	if c.Absent != "" {
		return c.Absent
	}
	if lack := lacking(c.Kernel); lack != "" {
		return "kernel: " + lack
	}
	for _, name := range c.Needs {
		if find(name) == "" {
			if lean {
				return "machine: no command " + name
			}
			return "no command " + name + ": the suite is incomplete"
		}
	}
	return ""
}

func find(name string) string {
	for _, dir := range filepath.SplitList(binPath) {
		if path := filepath.Join(dir, name); executable(path) {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// compile makes the programs of the cases, once, and gives them by ID.
func compile(ctx context.Context, cases []Case, dir string) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for _, c := range cases {
		if c.Sections["c"] == "" {
			continue
		}
		program := filepath.Join(dir, c.ID)
		out[c.ID] = program
		if _, err := os.Stat(program); err == nil {
			continue // brought along, see Settings.Programs
		}
		source := program + ".c"
		if err := os.WriteFile(source, []byte(c.Sections["c"]), 0o644); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "cc", "-static", "-O1", "-w", "-D_GNU_SOURCE", "-pthread", "-o", program, source) // #nosec: the table is ours
		if text, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: compile: %w\n%s", c.At, c.ID, err, text))
		}
		_ = os.Remove(source)
	}
	return out, errors.Join(errs...)
}

// wanted tells whether a case is meant by one of the patterns: "A10", "B*".
func wanted(c Case, patterns []string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := filepath.Match(p, c.ID)
		return ok
	})
}

package fuzz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// result is what fuzzing one target gave.
type result struct {
	executed    int64
	interesting int
	kept        int // of the corpus, seeds included
	took        time.Duration
	// crasher is the file of an input that breaks the property, in the package.
	crasher string
	// trouble is how it ended otherwise than well; "" for well.
	trouble string
	// timeUp says that Go called the end of the time a failure.
	timeUp bool
}

// grace is what a target may take beyond its time: to start its helpers, to read
// its corpus, to shorten an input that failed.
const grace = 3 * time.Minute

// fuzz runs the target. One whose process was lost is run once more, unless the
// input that is blamed for it does it again: Go takes an input for one that hangs
// after ten seconds, which on a machine that is out of breath is no time. The
// second run must then end well.
func (t *target) fuzz(ctx context.Context, o report.Options, each time.Duration) {
	t.result = t.once(ctx, o, each)
	if !strings.Contains(t.result.trouble, "hung or terminated unexpectedly") {
		return
	}
	if t.result.crasher != "" {
		if !t.passes(ctx, filepath.Base(t.result.crasher)) {
			return
		}
		_ = os.Remove(filepath.Join(o.Root, t.result.crasher))
	}
	t.result = t.once(ctx, o, each)
}

// passes tells whether an input in the package does no harm by itself.
func (t *target) passes(ctx context.Context, name string) bool {
	cmd := exec.CommandContext(ctx, t.pkg.bin, "-test.run", "^"+t.name+"$/^"+name+"$", "-test.timeout", "2m")
	cmd.Dir = t.pkg.dir
	return cmd.Run() == nil
}

func (t *target) once(ctx context.Context, o report.Options, each time.Duration) result {
	ctx, cancel := context.WithTimeout(ctx, each+grace)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.pkg.bin,
		"-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime", each.String(), "-test.fuzzminimizetime", "50x",
		"-test.parallel", "1", "-test.timeout", "0", "-test.fuzzcachedir", t.pkg.corpus(o))
	cmd.Dir = t.pkg.dir
	// Its workers and their helpers are in one group, and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	r := parse(out.String())
	r.took = time.Since(began)
	if r.crasher != "" {
		r.crasher = filepath.Join(t.pkg.rel, r.crasher)
	}
	switch {
	case ctx.Err() != nil:
		r.trouble = "it did not end within its time: " + context.Cause(ctx).Error()
	case err != nil && r.trouble == "" && !r.timeUp:
		r.trouble = err.Error() + ": " + tail(out.String())
	case (err == nil || r.timeUp) && r.executed == 0:
		r.trouble = "it tried no input"
	case err == nil:
		r.trouble = ""
	}
	return r
}

// What the fuzzer prints: its progress, the input that failed, and why.
var (
	progress = regexp.MustCompile(`execs: (\d+) \(\d+/sec\), new interesting: (\d+) \(total: (\d+)\)`)
	baseline = regexp.MustCompile(`gathering baseline coverage: (\d+)/(\d+) completed`)
	written  = regexp.MustCompile(`Failing input written to (\S+)`)
	// The fuzzer sometimes takes the end of its own time, in the middle of an input,
	// for a failure; then it names no input, and this is all that it says.
	timeUp = regexp.MustCompile(`--- FAIL: \w+ \([0-9.]+s\)\s+context deadline exceeded\s+FAIL`)
	reason = regexp.MustCompile(`(?m)^\s+(\w+\.go:\d+: .*|fuzzing process hung .*)$`)
)

func parse(out string) (r result) {
	if all := baseline.FindAllStringSubmatch(out, -1); len(all) > 0 {
		last := all[len(all)-1]
		r.executed, _ = strconv.ParseInt(last[1], 10, 64)
		r.kept, _ = strconv.Atoi(last[2])
	}
	if all := progress.FindAllStringSubmatch(out, -1); len(all) > 0 {
		last := all[len(all)-1]
		r.executed, _ = strconv.ParseInt(last[1], 10, 64)
		r.interesting, _ = strconv.Atoi(last[2])
		r.kept, _ = strconv.Atoi(last[3])
	}
	if m := written.FindStringSubmatch(out); m != nil {
		r.crasher = m[1]
	}
	r.timeUp = r.crasher == "" && timeUp.MatchString(out)
	if strings.Contains(out, "--- FAIL") && !r.timeUp {
		r.trouble = tail(out)
		// The last line that names a place in the source is the property's.
		if all := reason.FindAllStringSubmatch(out, -1); len(all) > 0 {
			r.trouble = all[len(all)-1][1]
		}
	}
	return r
}

// tail gives the end of what a program printed, as one line.
func tail(out string) string {
	const most = 600
	out = oneLine(out)
	if len(out) > most {
		out = "…" + strings.ToValidUTF8(out[len(out)-most:], "")
	}
	return out
}

// failures are what the part reports of the target.
func (t *target) failures() []string {
	r := t.result
	switch {
	case r.trouble == "":
		return nil
	case r.crasher != "":
		return []string{t.key() + ": " + oneLine(r.trouble) + " (the input: " + r.crasher + ")"}
	default:
		return []string{t.key() + ": " + oneLine(r.trouble)}
	}
}

// totals count over all runs on this machine, by target.
type totals map[string]total

type total struct {
	Executed int64   `json:"executed"`
	Seconds  float64 `json:"seconds"`
}

func loadTotals(o report.Options) (totals, error) {
	all := totals{}
	b, err := os.ReadFile(filepath.Join(o.Work, "totals.json"))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(b, &all)
}

func (all totals) save(o report.Options) error {
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Work, "totals.json"), append(b, '\n'), 0o644)
}

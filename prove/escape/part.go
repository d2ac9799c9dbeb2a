package escape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

const intro = `Each case is an attack with a twin. The twin is the same script without the sandbox, in the same world; it must do damage, or the
case counts as not exercised. Then the script runs inside, and damage is looked for outside: fresh secrets in the home directory, a directory
and a workspace that are compared entry by entry, a process with secrets in its memory, its environment, its sockets and its shared memory,
the session keyring, mounts and settings of the kernel, processes that are left over, and a network where every connection, every name that
is asked for and every byte that arrives is kept. What the attack says of itself counts only against us: a line "ESCAPED" is an escape, and
without the line "DONE" at the end of the attack the run has failed.`

// Run runs the table and gives what came of it as a part of the proof.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	table := filepath.Join(o.Root, "testdata", "escapes")
	cases, err := Load(table)
	if err != nil {
		return report.Part{}, err
	}
	program, err := build(ctx, o)
	if err != nil {
		return report.Part{}, err
	}
	file := filepath.Join(o.Work, "escapes.json")
	args := []string{"--bin", o.Bin, "--table", table, "--seed", strconv.FormatInt(o.Seed, 10), "--user", o.User, "--json", file}
	var each time.Duration
	if o.Short {
		args = append(args, "--short")
	} else if o.Sandbox == "" || o.Sandbox == allPeers {
		if each, err = launchTime(ctx, o.Bin); err != nil {
			return report.Part{}, err
		}
		if each > slowLaunch {
			args = append(args, "--thin")
		}
	}
	if o.Sandbox != "" {
		args = append(args, "--sandbox", o.Sandbox, "--tools", filepath.Join(o.Work, "tools"))
		if o.Sandbox == allPeers {
			args = append(args, "--case", comparedCases)
		}
	}
	record, err := launch(ctx, program, args, file, &progress{say: o.Say, every: 30 * time.Second, told: time.Now(), peers: o.Sandbox != ""})
	if err != nil {
		return report.Part{}, err
	}
	if o.Sandbox != "" {
		part := compared(cases, record)
		if record.Thinned > 0 {
			part.Notes = append(part.Notes, fmt.Sprintf("A launch of ours took %v here: two thirds of the cases, %d, were left out for the time of the whole. The seed chose them.",
				each.Round(time.Millisecond), record.Thinned))
		}
		return part, nil
	}
	part := partOf(cases, record)
	if record.Thinned > 0 {
		part.Notes = append(part.Notes, fmt.Sprintf("A launch took %v here, so not everything was run. Left out were %d runs as root of what an "+
			"ordinary user ran: of groups D and F and of every policy but strict two of three, and variants beyond three. The seed chose them.",
			each.Round(time.Millisecond), record.Thinned))
	}
	return part, nil
}

// slowLaunch is a median from which on a machine has no time for everything.
const slowLaunch = 120 * time.Millisecond

// launchTime is the median of a few launches.
func launchTime(ctx context.Context, bin string) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "launch-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return 0, err
	}
	var all []time.Duration
	for range 7 {
		cmd := exec.CommandContext(ctx, bin, "--quiet", "--policy", "strict", "--", "true") // #nosec: ours
		cmd.Dir, cmd.Env = work, append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("launch true: %w\n%s", err, out)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// build makes the program that runs the table: static, so that it can be started
// in every world and by every account.
func build(ctx context.Context, o report.Options) (string, error) {
	program := filepath.Join(o.Work, "escapes")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "netgo osusergo", "-o", program, "./prove/escape/escapes") // #nosec: ours
	cmd.Dir, cmd.Env = o.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build escapes: %w\n%s", err, out)
	}
	return program, nil
}

// launch runs the program. That something escaped is no error: the record says so.
func launch(ctx context.Context, program string, args []string, file string, out *progress) (Record, error) {
	_ = os.Remove(file)
	var r Record
	cmd := exec.CommandContext(ctx, program, args...) // #nosec: built above
	// It clears its directories away when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return r, fmt.Errorf("run the table: %w\n%s", err, out.end(20))
	}
	out.say("%s", out.end(1))
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// count is how many results there are of each status.
type count map[Status]int

func (c count) String() string {
	return fmt.Sprintf("%d/%d/%d", c[StatusContained], c[StatusEscaped]+c[StatusFailed], c[StatusNotExercised])
}

// partOf makes a part of the proof of a record.
func partOf(cases []Case, r Record) report.Part {
	p := report.Part{Title: "Escapes", Intro: intro}
	total := count{}
	for _, x := range r.Results {
		total[x.Status]++
		switch x.Status {
		case StatusEscaped, StatusFailed:
			p.Failed = append(p.Failed, fmt.Sprintf("%s as %s under %s%s: %s: %s", x.ID, x.Account, x.Configuration, withVariant(x.Variant), x.Status, few(x.Reason)))
		case StatusNotExercised:
			m := report.Missing{ID: x.ID, What: titleOf(cases, x.ID), Reason: few(x.Reason)}
			if !slices.Contains(p.Missing, m) {
				p.Missing = append(p.Missing, m)
			}
		}
	}
	again := map[string]bool{}
	for _, x := range r.Results {
		if x.Again {
			again[x.ID] = true
		}
	}
	p.Tables = []report.Table{matrix(cases, r), list(cases, r)}
	p.Notes = []string{
		fmt.Sprintf("%d runs were contained, %d escaped, %d failed, %d were not exercised; %d random variants were no attacks bare and were dropped.",
			total[StatusContained], total[StatusEscaped], total[StatusFailed], total[StatusNotExercised], total[StatusDropped]),
		fmt.Sprintf("Runs that did not come to their end at first, or twins without effect, were tried again, escapes never: %s.",
			orNone(slices.Sorted(maps.Keys(again)))),
		fmt.Sprintf("One case again: `go run ./prove/escape/escapes --bin bin/hermes-wrap --case ID --seed %d -v`.", r.Seed),
	}
	return p
}

func withVariant(v string) string {
	if v == "" {
		return ""
	}
	return fmt.Sprintf(", variant %q", v)
}

// comparedCases leaves out how an allowed request is judged (in most other
// sandboxes none is allowed), and limits, signals and the ends of runs: few promise
// anything of those, and to see that nothing comes takes half of the time.
const comparedCases = "A*,B*,C*,F*,G*"

// few are the first of several reasons.
func few(reasons []string) string {
	const most = 4
	if len(reasons) > most {
		return strings.Join(reasons[:most], "; ") + fmt.Sprintf("; and %d more", len(reasons)-most)
	}
	return strings.Join(reasons, "; ")
}

func titleOf(cases []Case, id string) string {
	for _, c := range cases {
		if c.ID == id {
			return c.Title
		}
	}
	return ""
}

// matrix counts by configuration and group.
func matrix(cases []Case, r Record) report.Table {
	groups := groupsOf(cases)
	t := report.Table{Title: "Runs by configuration and group: contained/escaped or failed/not exercised", Columns: append([]string{"configuration"}, groups...)}
	cells := map[string]count{}
	var rows []string
	for _, x := range r.Results {
		for _, configuration := range strings.Fields(x.Configuration) {
			key := configuration + " " + x.ID[:1]
			if cells[key] == nil {
				cells[key] = count{}
			}
			cells[key][x.Status]++
			if !slices.Contains(rows, configuration) {
				rows = append(rows, configuration)
			}
		}
	}
	slices.Sort(rows)
	for _, configuration := range rows {
		row := []string{configuration}
		for _, g := range groups {
			if c := cells[configuration+" "+g]; c != nil {
				row = append(row, c.String())
			} else {
				row = append(row, "–")
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func groupsOf(cases []Case) []string {
	var out []string
	for _, c := range cases {
		if g := c.Group(); !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// list has a line a case.
func list(cases []Case, r Record) report.Table {
	t := report.Table{Title: "Cases", Columns: []string{"id", "attack", "under", "as", "variants", "ways of the twin", "runs", "result"}}
	for _, c := range cases {
		n, ways := count{}, 0
		variants, as, runs := map[string]bool{}, map[string]bool{}, 0
		for _, x := range r.Results {
			if x.ID != c.ID || x.Status == StatusDropped {
				continue
			}
			n[x.Status]++
			runs++
			variants[x.Variant], as[x.Account] = true, true
			ways = max(ways, x.Ways)
		}
		if runs == 0 {
			continue
		}
		t.Rows = append(t.Rows, []string{c.ID, c.Title, strings.Join(c.Where, ", "), accountsOf(as), strconv.Itoa(len(variants)), strconv.Itoa(ways), strconv.Itoa(runs), n.verdict()})
	}
	return t
}

func accountsOf(as map[string]bool) string {
	if as["user"] && as["root"] {
		return "both"
	}
	for _, kind := range []string{"user", "root"} {
		if as[kind] {
			return kind
		}
	}
	return ""
}

// verdict is one word for a case; the worst result counts.
func (c count) verdict() string {
	for _, s := range []Status{StatusEscaped, StatusFailed} {
		if c[s] > 0 {
			return fmt.Sprintf("**%s** (%d)", s, c[s])
		}
	}
	if c[StatusContained] == 0 {
		return string(StatusNotExercised)
	}
	if c[StatusNotExercised] > 0 {
		return fmt.Sprintf("contained; %d not exercised", c[StatusNotExercised])
	}
	return string(StatusContained)
}

// compared makes a part of a record of other sandboxes. What escaped there is no
// failure of ours.
func compared(cases []Case, r Record) report.Part {
	p := report.Part{Title: "Escapes from another sandbox", Intro: intro}
	groups := groupsOf(cases)
	t := report.Table{Title: "Runs: contained/escaped/not exercised", Columns: append([]string{"sandbox"}, groups...)}
	var names []string
	cells := map[string]count{}
	escaped := map[string][]string{}
	for _, x := range apart(r.Results) {
		if other, ok := peers[x.Configuration]; ok && x.Status == StatusNotExercised && strings.HasPrefix(x.Reason[0], "machine: ") && other.Program != "" {
			m := report.Missing{ID: strings.TrimPrefix(x.Configuration, "@"), What: "every case", Reason: x.Reason[0]}
			if !slices.Contains(p.Missing, m) {
				p.Missing = append(p.Missing, m)
			}
			continue
		}
		name := x.Configuration
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		key := name + " " + x.ID[:1]
		if cells[key] == nil {
			cells[key] = count{}
		}
		switch x.Status {
		case StatusFailed: // it did not run to its end there: that tells nothing
			cells[key][StatusNotExercised]++
		default:
			cells[key][x.Status]++
		}
		if x.Status == StatusEscaped && !slices.Contains(escaped[name], x.ID) {
			escaped[name] = append(escaped[name], x.ID)
		}
	}
	for _, name := range names {
		row := []string{strings.TrimPrefix(name, "@")}
		for _, g := range groups {
			if c := cells[name+" "+g]; c != nil {
				row = append(row, c.String())
			} else {
				row = append(row, "–")
			}
		}
		t.Rows = append(t.Rows, row)
		p.Notes = append(p.Notes, fmt.Sprintf("%s: %s Escaped: %s.", strings.TrimPrefix(name, "@"), r.Peers[name], orNone(escaped[name])))
	}
	p.Tables = []report.Table{t}
	p.Notes = append(p.Notes,
		fmt.Sprintf("%d cases are about hermes-wrap alone and were left out.", r.Left),
		"Where several are compared, group D is left out (how an allowed request is judged: most of them allow none), and so is E (limits, signals, the ends of runs, of which few promise anything; "+
			"`make prove SANDBOX=NAME` has both), and of the variants of a case the first alone is run.",
		"Not exercised are cases whose legitimate use fails there (without a network nothing can be allowed past a filter), and those that do not run to their end.",
		"The table holds others to our promises. Several do not make them: to protect entries of the workspace that somebody executes later, to leave nothing in it, to pass a terminal's size on.")
	return p
}

// apart gives what was said of several sandboxes at once, that a case cannot be
// exercised, for each of them.
func apart(results []Result) (out []Result) {
	for _, x := range results {
		all := strings.Fields(x.Configuration)
		for _, name := range all {
			one := x
			one.Configuration = name
			if len(all) > 1 {
				one.Reason = append([]string{"the case: "}, x.Reason...)
			}
			out = append(out, one)
		}
	}
	return out
}

func orNone(ids []string) string {
	if len(ids) == 0 {
		return "nothing"
	}
	return strings.Join(ids, " ")
}

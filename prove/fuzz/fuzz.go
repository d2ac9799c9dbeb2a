// Package fuzz is the part of the proof that feeds parsers and judges what nobody
// thought of, and holds the answers against properties.
package fuzz

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

const (
	// budget is what all targets share where nobody says how long each is to have:
	// the whole proof fits an hour, and other parts need most of it.
	budget = 4 * time.Minute
	// atOnce is how many targets run at a time, each with one process.
	atOnce = 2
	// shortly is what each has in a short proof, least what it always has.
	shortly = 5 * time.Second
	least   = 10 * time.Second
)

// intro is for a stranger; the verb is how long each target had.
const intro = `Each target takes bytes that the fuzzer makes up, guided by which branches of the code they reach, and checks a
property, never only that nothing crashes: that what is accepted means the same to us and to Python, Node and curl; that a
plain second reading of a policy, written for the test alone, decides as the engine does; that a denial more or a layer more never opens
anything; that what is forwarded is what was judged; that a changed record is found.

An hour for each target and a proof that ends within an hour exclude each other. Here each had %s, two at a time;
"make prove FUZZTIME=1h" gives each the hour, and takes a day.
Inputs that reached something new are kept below .cache/prove, and each run goes on where the last one ended: the
columns "in all" count from the first run on this machine.`

// Run fuzzes every target of the repository.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	part := report.Part{Title: "Fuzzing"}
	packages, err := discover(ctx, o)
	if err != nil {
		return part, err
	}
	targets, err := build(ctx, o, packages)
	if err != nil {
		return part, err
	}
	each := share(o, len(targets))
	part.Intro = fmt.Sprintf(intro, each)
	o.Say("fuzz: %d targets in %d packages, %s each, %d at a time", len(targets), len(packages), each, atOnce)
	runAll(ctx, o, targets, each)
	before, err := loadTotals(o)
	if err != nil {
		return part, err
	}
	part.Tables = append(part.Tables, before.table(targets))
	if err := before.save(o); err != nil {
		return part, err
	}
	for _, t := range targets {
		part.Failed = append(part.Failed, t.failures()...)
	}
	if o.Short {
		part.Notes = append(part.Notes, "How much of each package the inputs reach is measured in a full proof.")
		return part, ctx.Err()
	}
	table, failed := coverage(ctx, o, packages)
	part.Tables = append(part.Tables, table)
	part.Failed = append(part.Failed, failed...)
	return part, ctx.Err()
}

// share gives how long each target has.
func share(o report.Options, targets int) time.Duration {
	switch {
	case o.Patience > 0:
		return o.Patience
	case o.Short:
		return shortly
	}
	return max(least, (budget * atOnce / time.Duration(max(targets, 1))).Truncate(time.Second))
}

// runAll fuzzes the targets, a few at a time.
func runAll(ctx context.Context, o report.Options, targets []*target, each time.Duration) {
	queue := make(chan *target)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for t := range queue {
				t.fuzz(ctx, o, each)
				o.Say("fuzz: %s: %d inputs, %d new%s", t.name, t.result.executed, t.result.interesting, t.verdict())
			}
		})
	}
	for _, t := range targets {
		queue <- t
	}
	close(queue)
	wg.Wait()
}

func (t *target) verdict() string {
	if len(t.failures()) > 0 {
		return ", FAILED"
	}
	return ""
}

// table shows each target with what it did now and, with the totals that are
// brought up to date, in all.
func (all totals) table(targets []*target) report.Table {
	table := report.Table{
		Title:   "What must hold, and how many inputs were tried",
		Columns: []string{"Target", "What must hold", "Inputs", "New", "Kept", "Inputs in all", "Time in all"},
	}
	for _, t := range targets {
		sum := all[t.key()]
		sum.Executed += t.result.executed
		sum.Seconds += t.result.took.Seconds()
		all[t.key()] = sum
		table.Rows = append(table.Rows, []string{
			"`" + filepath.ToSlash(t.pkg.rel) + "` " + t.name, t.holds,
			strconv.FormatInt(t.result.executed, 10), strconv.Itoa(t.result.interesting), strconv.Itoa(t.result.kept),
			strconv.FormatInt(sum.Executed, 10), (time.Duration(sum.Seconds) * time.Second).String(),
		})
	}
	return table
}

// oneLine makes a cell of a text.
func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

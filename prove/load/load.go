// Package load puts all the load on sandboxes that it can, one kind at a time,
// and looks whether limits hold, whether another sandbox and the host stay well
// meanwhile, and whether everything is given back.
package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// Run is the part of the proof.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	p := report.Part{
		Name: "load", Title: "Limits under load", Began: time.Now(),
		Intro: "One sandbox after the other does its worst: many of them, bombs of processes and memory, full disks, floods of output, names and connections. " +
			"Meanwhile a second sandbox and a program on the bare host start a process and write a file fifty times a second. A limit must hold, neither of the two may stand still for " +
			fmt.Sprint(longestPause) + ", and afterwards the host has what it had before.",
	}
	y, err := newYard(ctx, o)
	if y != nil {
		defer y.close()
	}
	if err == nil {
		err = (&strain{yard: y, part: &p}).run(ctx)
	}
	p.Took = time.Since(p.Began)
	return p, err
}

// strain is one run of this part.
type strain struct {
	*yard
	part     *report.Part
	watching []*watcher
	table    report.Table
}

// kind is one kind of load.
type kind struct {
	name string
	// do gives the figure, and what must not be.
	do func(ctx context.Context) (figure string, wrong []string, err error)
}

// scaled is how much is done: less in a short run.
func (s *strain) scaled(full, short int) int {
	if s.Short {
		return short
	}
	return full
}

func (s *strain) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	before := look(s.dir)
	defer func() {
		for _, w := range s.watching {
			w.stop()
		}
	}()
	if s.watching, err = s.watchers(ctx); err != nil {
		return err
	}
	s.table = report.Table{Title: "Load, and what it did to others", Columns: []string{"Load", "Figure", "Took", "Host: median, worst beat, longest pause", "Second sandbox: the same"}}
	for _, k := range s.kinds() {
		if err := s.one(ctx, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	for _, w := range s.watching {
		w.stop()
	}
	s.watching = nil
	s.part.Tables = append(s.part.Tables, s.table, s.returned(ctx, before))
	return nil
}

// one puts one kind of load on, and measures the two watchers.
func (s *strain) one(ctx context.Context, k kind) error {
	for _, w := range s.watching {
		w.mark()
	}
	began := time.Now()
	figure, wrong, err := k.do(ctx)
	if err != nil {
		return err
	}
	row := []string{k.name, figure, fmt.Sprintf("%.1f s", time.Since(began).Seconds())}
	for _, w := range s.watching {
		median, worst, gap := w.stretch()
		row = append(row, fmt.Sprintf("%s, %s, %s", ms(median), ms(worst), ms(gap)))
		if gap > longestPause {
			wrong = append(wrong, fmt.Sprintf("the %s stood still for %v", w.name, gap))
		}
	}
	s.table.Rows = append(s.table.Rows, row)
	for _, what := range wrong {
		s.part.Failed = append(s.part.Failed, k.name+": "+what)
	}
	s.Say("load: %s: %s %v", k.name, figure, wrong)
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// What the host may have less of, or more in use, afterwards: other programs of
// the machine come and go. It has patience to settle.
const (
	slackMemory = 512 << 20
	slackInodes = 20_000
	slackPids   = 100
	slackFiles  = 2_000
	settleLimit = 30 * time.Second
)

// returned compares the host with what it was.
func (s *strain) returned(ctx context.Context, before host) report.Table {
	var after host
	var left, short []string
	for end := time.Now().Add(settleLimit); ; {
		after, left = look(s.dir), s.left()
		short = missing(before, after)
		if len(left)+len(short) == 0 || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	for _, what := range append(left, short...) {
		s.part.Failed = append(s.part.Failed, "left behind: "+what)
	}
	row := func(what string, a, b, slack int64) []string {
		return []string{what, fmt.Sprint(a), fmt.Sprint(b), fmt.Sprint(slack)}
	}
	return report.Table{
		Title: "The host before and after", Columns: []string{"", "Before", "After", "Slack"},
		Rows: [][]string{
			row("memory available, MiB", before.memory>>20, after.memory>>20, slackMemory>>20), row("free inodes", before.inodes, after.inodes, slackInodes),
			row("processes", before.pids, after.pids, slackPids), row("open files", before.files, after.files, slackFiles),
			row("processes, run directories and mounts of ours", 0, int64(len(left)), 0),
		},
	}
}

func missing(before, after host) (out []string) {
	if d := before.memory - after.memory; d > slackMemory {
		out = append(out, fmt.Sprintf("%d MiB of memory", d>>20))
	}
	if d := before.inodes - after.inodes; d > slackInodes {
		out = append(out, fmt.Sprintf("%d inodes", d))
	}
	if d := after.pids - before.pids; d > slackPids {
		out = append(out, fmt.Sprintf("%d processes", d))
	}
	if d := after.files - before.files; d > slackFiles {
		out = append(out, fmt.Sprintf("%d open files", d))
	}
	return out
}

var errNotAsked = errors.New("the load did not do what it was asked for")

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
			fmt.Sprintf("%v and %d times its longest pause with no load (and %d times that under the same load without a sandbox, where that is tried), and afterwards nothing is held that was not held before.", longestPause, busy, bareTimes),
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
	// bare says that it is the next one without a sandbox, which holds to nothing.
	bare bool
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
	end, err := adopt()
	if err != nil {
		return err
	}
	defer end()
	before := s.holding()
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
	bury()
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
		if w.idle == 0 {
			w.idle = gap // the first load is none
		}
		if most := longestPause + busy*w.idle + bareTimes*w.bare; !k.bare && gap > most {
			wrong = append(wrong, fmt.Sprintf("the %s stood still for %v, of %v at most", w.name, gap, most))
		}
		w.bare = 0
		if k.bare {
			w.bare = gap
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

var errNotAsked = errors.New("the load did not do what it was asked for")

package audit

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxProblems is how many problems of a chain are listed; the rest is counted.
const maxProblems = 8

// maxAhead is how far a line's number may be ahead of its chain (lines). One
// that is further ahead is forged: the key of a line takes work to find.
const maxAhead = 1 << 30

// Once forged lines have cost so many steps from key to key, lines that are
// further ahead than maxAheadThen are not tried any more: a file full of them
// would take days.
const (
	maxWasted    = maxAhead / epochLines / 4
	maxAheadThen = 1 << 16
)

// Problem is something in the record that should not be.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.What) }

// ChainReport is what was found of one writer in one run.
type ChainReport struct {
	Writer string `json:"writer"`
	// Lines is how many lines are as they were written, First and Last the
	// numbers of the first and the last of them.
	Lines uint64 `json:"lines"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// Dropped is how many events the writer itself says it left out.
	Dropped int64 `json:"dropped,omitempty"`
	// Closed tells that the writer said it was done.
	Closed bool `json:"closed"`
	// Killed tells that it could not, since it was killed during the run, as the
	// launcher says.
	Killed bool `json:"killed,omitempty"`
	// Problems are the first of them, More how many there are beyond.
	Problems []Problem `json:"problems,omitempty"`
	More     int       `json:"more,omitempty"`
}

// RunReport is what was found of one run.
type RunReport struct {
	Run string `json:"run"`
	// Number is the run's among those of the record; 0 where its first line is not there.
	Number int64          `json:"number,omitempty"`
	Policy string         `json:"policy,omitempty"`
	Began  time.Time      `json:"began,omitzero"`
	Chains []*ChainReport `json:"chains"`
	// Missing names writers of which there is no line although there must be.
	Missing []string `json:"missing,omitempty"`
	// Running tells that the run goes on, so that its chains have no end yet.
	Running bool `json:"running,omitempty"`
}

// Gap is a range of run numbers.
type Gap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Report is what Verify found.
type Report struct {
	Files []string     `json:"files"`
	Lines int          `json:"lines"`
	Runs  []*RunReport `json:"runs"`
	// Gaps are runs of which nothing is left, though runs before and after them are there.
	Gaps []Gap `json:"gaps,omitempty"`
	// Torn are pieces of lines that a crash or a full disk left; the record
	// lacks nothing for them that a chain does not show.
	Torn []Problem `json:"torn,omitempty"`
	// Unsigned are whole lines without a code: anybody may have written them.
	Unsigned []Problem `json:"unsigned,omitempty"`
	// UnsignedCount is how many there are.
	UnsignedCount int `json:"unsigned_count,omitempty"`
}

// Intact tells that every line is as it was written, none is missing between
// the first and the last of a chain, and none was added that reads as one.
func (r Report) Intact() bool {
	return r.UnsignedCount == 0 && len(r.Gaps) == 0 && !slices.ContainsFunc(r.Runs, func(run *RunReport) bool {
		return len(run.Missing) > 0 || slices.ContainsFunc(run.Chains, func(c *ChainReport) bool { return len(c.Problems) > 0 })
	})
}

// Closed tells that every chain has its end, so that nothing is missing behind
// the last line either. Runs that go on are not counted, nor are writers that
// the launcher says were killed: they were not there to write an end.
func (r Report) Closed() bool {
	return !slices.ContainsFunc(r.Runs, func(run *RunReport) bool {
		return !run.Running && slices.ContainsFunc(run.Chains, func(c *ChainReport) bool { return !c.Closed && !c.Killed })
	})
}

// verifier is the state of Verify.
type verifier struct {
	key    Key
	report Report
	runs   map[string]*runState
	wasted uint64 // steps from key to key that forged lines took
}

type runState struct {
	report  *RunReport
	chains  map[string]*chainState
	writers []string
	killed  map[string]uint64 // how many lines they wrote
}

type chainState struct {
	report *ChainReport
	began  Problem // where its first line stands
	keys   *chain
	next   uint64 // the number that the next line must have
	prev   string
}

// Verify checks the files of a record, oldest first, as one. Total is how many
// runs there were, 0 where that is not known. Running tells whether a run still
// goes on; nil: none does.
func Verify(files []string, key Key, total int64, running func(run string) bool) (Report, error) {
	v := &verifier{key: key, report: Report{Files: files}, runs: map[string]*runState{}}
	for i, file := range files {
		err := eachLine(file, func(line []byte, number int) error {
			v.line(i, Problem{File: file, Line: number}, line)
			return nil
		})
		if err != nil {
			return v.report, err
		}
	}
	var numbers []int64
	for _, run := range v.report.Runs {
		if run.Number > 0 {
			numbers = append(numbers, run.Number)
		}
		run.Running = running != nil && running(run.Run)
		v.missing(v.runs[run.Run])
	}
	v.report.Gaps = absent(numbers, total)
	if len(v.report.Runs) == 0 && total > 0 {
		v.report.Gaps = []Gap{{1, total}} // rotation leaves more than nothing
	}
	return v.report, nil
}

func (v *verifier) line(file int, at Problem, line []byte) {
	v.report.Lines++
	line, torn := untorn(line)
	if torn != nil {
		v.torn(at)
	}
	e, w, err := decode(line)
	if err != nil && !errors.Is(err, errForeign) {
		v.torn(at)
		return
	}
	text, code, ok := splitCode(line)
	if err != nil || !ok || e.Writer == "" || e.Run == "" || e.Sequence == 0 {
		at.What = "carries no code: it was written without a key, or by somebody else"
		v.report.UnsignedCount++
		if len(v.report.Unsigned) < maxProblems {
			v.report.Unsigned = append(v.report.Unsigned, at)
		}
		return
	}
	run, c := v.chainOf(e)
	first := c.next == 0
	if first {
		c.next = 1
	}
	if !v.genuine(c, e.Sequence, text, code) {
		c.problem(at, fmt.Sprintf("line %d of this chain was changed, forged or repeated", e.Sequence))
		if e.Sequence == c.next {
			c.next, c.prev = c.next+1, string(code)
		}
		return
	}
	c.follows(e, w.Unmapped.Prev, at, first && file == 0 && len(v.report.Files) > 1)
	c.next, c.prev = e.Sequence+1, string(code)
	if c.report.First == 0 {
		c.began = at
	}
	c.took(e)
	run.took(e)
}

func (v *verifier) torn(at Problem) {
	at.What = "no whole line: cut off by a crash or a full disk, or no line of the record at all"
	if len(v.report.Torn) < maxProblems {
		v.report.Torn = append(v.report.Torn, at)
	}
}

func (v *verifier) chainOf(e Event) (*runState, *chainState) {
	run := v.runs[e.Run]
	if run == nil {
		run = &runState{report: &RunReport{Run: e.Run}, chains: map[string]*chainState{}, killed: map[string]uint64{}}
		v.runs[e.Run] = run
		v.report.Runs = append(v.report.Runs, run.report)
	}
	c := run.chains[e.Writer]
	if c == nil {
		keys := newChain(v.key.ForWriter(e.Run, e.Writer))
		c = &chainState{report: &ChainReport{Writer: e.Writer}, keys: keys, prev: string(keys.prev[:])}
		run.chains[e.Writer] = c
		run.report.Chains = append(run.report.Chains, c.report)
	}
	return run, c
}

// genuine tells whether the line was written by the chain's writer, as it is,
// and is none that was there already.
func (v *verifier) genuine(c *chainState, sequence uint64, text, code []byte) bool {
	if sequence < c.next || sequence-c.next > maxAhead || (v.wasted > maxWasted && sequence-c.next > maxAheadThen) {
		return false
	}
	keys := *c.keys
	want := keys.code(sequence, text)
	if !hmac.Equal(want[:], code) {
		v.wasted += keys.epoch - c.keys.epoch
		return false
	}
	c.keys = &keys
	return true
}

// follows checks that a genuine line stands where it belongs. beginning tells
// that earlier files may have been removed with the chain's first lines.
func (c *chainState) follows(e Event, prev string, at Problem, beginning bool) {
	switch {
	case e.Sequence > c.next && !beginning:
		c.problem(at, fmt.Sprintf("lines %d to %d of this chain are missing before this one", c.next, e.Sequence-1))
	case e.Sequence == c.next && prev != c.prev:
		c.problem(at, fmt.Sprintf("line %d of this chain does not follow the one before it", e.Sequence))
	case c.report.Closed:
		c.problem(at, "the chain had ended before this line")
	}
}

func (c *chainState) problem(at Problem, what string) {
	at.What = what
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, at)
		return
	}
	c.report.More++
}

func (c *chainState) took(e Event) {
	r := c.report
	r.Lines++
	r.Last = e.Sequence
	if r.First == 0 {
		r.First = e.Sequence
	}
	switch e.Kind {
	case KindDropped:
		r.Dropped += e.Count
	case KindEnd:
		r.Closed = true
	}
}

func (r *runState) took(e Event) {
	if r.report.Began.IsZero() {
		r.report.Began = e.Time
	}
	if e.Policy != "" {
		r.report.Policy = e.Policy
	}
	if e.Kind == KindOpen && e.Writer == launcherWriter {
		r.report.Number = e.Count
	}
	if e.Kind == KindProxy {
		if e.Writer == launcherWriter {
			for _, w := range e.Writers {
				r.killed[w] = uint64(max(e.Count, 0))
			}
		}
		return
	}
	r.writers = append(r.writers, e.Writers...)
}

// launcherWriter is the writer that every run has.
const launcherWriter = "launcher"

// missing looks for writers whose chain is gone, as a whole or its beginning,
// though rotation cannot have taken it.
func (v *verifier) missing(run *runState) {
	whole := false
	for name, c := range run.chains {
		whole = whole || c.report.First == 1 && !later(name)
		lines, killed := run.killed[name]
		c.report.Killed = killed
		if last := c.report.Last; killed && last > 0 && last < lines {
			c.problem(c.began, fmt.Sprintf("lines %d to %d of this chain are missing at its end: its writer was killed after them", last+1, lines))
		}
	}
	launcher := run.chains[launcherWriter]
	want := run.writers
	if launcher != nil && launcher.report.Lines == 1 && launcher.report.First > 1 {
		want = nil // its end alone is left, and the others had theirs before
	}
	if whole {
		// Of the killed the whole part may have been rotated away, of those that
		// end with the launcher it cannot.
		want = append(append(want, launcherWriter), slices.Sorted(maps.Keys(run.killed))...)
	}
	for _, w := range want {
		if c := run.chains[w]; (c == nil || c.report.Lines == 0) && !slices.Contains(run.report.Missing, w) {
			run.report.Missing = append(run.report.Missing, w)
		}
	}
	for _, c := range run.chains {
		// The first ones begin in one file: a run takes over a new one once its proxy
		// serves. A later proxy begins in that one or after it.
		if first := c.report.First; whole && first > 1 && len(c.report.Problems) == 0 {
			c.problem(c.began, fmt.Sprintf("lines 1 to %d of this chain are missing, though the beginning of its run is there", first-1))
		}
	}
}

// Later names the n-th writer of a kind in one run, from 1 on: "proxy", "proxy-2".
func Later(writer string, n int) string {
	if n < 2 {
		return writer
	}
	return writer + "-" + strconv.Itoa(n)
}

// later tells whether a writer's name is one of a successor.
func later(writer string) bool { return strings.Contains(writer, "-") }

package inference

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// unstated is what an answer is taken to have when neither the request nor the
// route bounds it.
const unstated = 16384

// window is the span of the numbers "per minute".
const window = time.Minute

// Need is what a call may use at most.
type Need struct {
	// Input is an estimate of the tokens sent.
	Input int64
	// Output is the most tokens of each answer, 0 when nobody says; Choices the
	// number of answers; Least the smallest bound that makes sense.
	Output, Choices, Least int64
	// Silent tells that the answer has no tokens (embeddings), Free that the call
	// is charged with none at all.
	Silent, Free bool
	Price        policy.Price
}

// output is the tokens of all answers together.
func (n Need) output() int64 {
	switch {
	case n.Silent || n.Free:
		return 0
	case n.Output == 0:
		return unstated * max(n.Choices, 1)
	}
	return n.Output * max(n.Choices, 1)
}

// Usage is what a call used.
type Usage struct {
	Input, CachedInput, Output int64
	// Estimated tells that the provider did not say it, or not all of it.
	Estimated bool
}

// Cost gives the money for it.
func (u Usage) Cost(p policy.Price) float64 {
	cached := p.CachedInput
	if cached == 0 {
		cached = p.Input
	}
	plain := max(u.Input-u.CachedInput, 0)
	return (float64(plain)*p.Input + float64(min(u.CachedInput, u.Input))*cached + float64(u.Output)*p.Output) / 1e6
}

// Totals are the numbers of one run.
type Totals struct {
	Requests, Input, CachedInput, Output int64
	Money                                float64
}

// Alarm is a number that came near its limit, or reached it.
type Alarm struct {
	// Field is the policy path ("inference.budget.money").
	Field string
	// Used and Limit are in the unit of the field.
	Used, Limit float64
	// Full tells that the limit is reached.
	Full bool
}

// Ledger counts what one run uses. It outlives reloads, which change the limits
// alone. The zero value is ready for use.
type Ledger struct {
	// Save is handed every change before it has any effect, under the ledger's
	// lock; it copies the balance. Nil: nothing outlives the process.
	Save func(*Balance)

	mu     sync.Mutex
	total  Totals
	held   Totals    // by calls that are under way
	recent []booking // of the last minute, in order
	warned map[string]float64
	filled map[string]float64

	balance Balance // for Save
}

// booking is what one call added, and when.
type booking struct {
	at time.Time
	Totals
}

// Hold is what is set aside for one call. It must be settled.
type Hold struct {
	need    Need
	amount  Totals
	each    int64 // the bound of each answer that the budget makes; 0: none
	settled bool
}

// Totals gives what was used so far, calls under way not counted.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Reserve sets aside what a call may use, so that calls at the same time cannot
// together go over a limit. Where less is left than the call asks for, the hold
// bounds its output.
func (l *Ledger) Reserve(now time.Time, b policy.Budget, n Need) (*Hold, *Denial, []Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockedForget(now)
	used := l.lockedUsed(b)
	output := n.output()
	least := max(n.Least, 1) * max(n.Choices, 1)
	if output == 0 {
		least = 0
	}
	for i := range used {
		room := used[i].limit - used[i].used
		fits := used[i].tokens(room, n)
		if fits < float64(least) || room <= 0 {
			alarms := l.lockedAlarm(&used[i], true)
			return nil, used[i].denial(), alarms
		}
		output = min(output, int64(min(fits, math.MaxInt32)))
	}
	h := &Hold{need: n}
	if n.output() > output {
		h.each = max(output/max(n.Choices, 1), 1)
		output = h.each * max(n.Choices, 1)
	}
	h.amount = Totals{Requests: 1, Input: n.Input, Output: output}
	if n.Free {
		h.amount = Totals{Requests: 1}
	}
	h.amount.Money = Usage{Input: h.amount.Input, Output: h.amount.Output}.Cost(n.Price)
	// A request counts from its start: nothing that happens later unsends it.
	l.total.Requests++
	l.recent = append(l.recent, booking{now, Totals{Requests: 1}})
	l.held = l.held.plus(h.amount, 1)
	l.held.Requests--
	l.lockedSave()
	return h, nil, l.lockedWarn(b)
}

// Attempt counts another request for the same call.
func (l *Ledger) Attempt(now time.Time, b policy.Budget) (*Denial, []Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockedForget(now)
	for _, u := range l.lockedUsed(b) {
		if u.kind == countRequests && u.used >= u.limit {
			return u.denial(), l.lockedAlarm(&u, true)
		}
	}
	l.total.Requests++
	l.recent = append(l.recent, booking{now, Totals{Requests: 1}})
	l.lockedSave()
	return nil, l.lockedWarn(b)
}

// Settle puts what was used in place of what was set aside. It may be called
// more than once; the first counts.
func (l *Ledger) Settle(now time.Time, b policy.Budget, h *Hold, u Usage) []Alarm {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.settled {
		return nil
	}
	h.settled = true
	l.lockedRelease(h)
	t := Totals{Input: u.Input, CachedInput: u.CachedInput, Output: u.Output, Money: u.Cost(h.need.Price)}
	l.total = l.total.plus(t, 1)
	l.lockedForget(now)
	l.recent = append(l.recent, booking{now, t})
	l.lockedSave()
	return l.lockedWarn(b)
}

// Cancel takes a call back that was not sent.
func (l *Ledger) Cancel(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.settled {
		return
	}
	h.settled = true
	l.lockedRelease(h)
	l.total.Requests--
	for i := len(l.recent) - 1; i >= 0; i-- {
		if l.recent[i].Requests > 0 {
			l.recent = slices.Delete(l.recent, i, i+1)
			break
		}
	}
	l.lockedSave()
}

// Bound gives how many tokens each answer may have when the call goes to a route
// that needs n; 0: what the request says already.
func (l *Ledger) Bound(h *Hold, n Need) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.need.Price = n.Price
	set := h.amount.Output / max(h.need.Choices, 1)
	switch {
	case h.each > 0:
		return h.each
	case h.need.Output > 0 && (n.Output == 0 || n.Output > set) && !n.Silent:
		return set
	}
	return 0
}

// Full is what a call is charged when nothing is known of its answer.
func (h *Hold) Full() Usage {
	return Usage{Input: h.amount.Input, Output: h.amount.Output, Estimated: true}
}

func (l *Ledger) lockedRelease(h *Hold) {
	a := h.amount
	a.Requests = 0
	l.held = l.held.plus(a, -1)
}

func (t Totals) plus(o Totals, sign int64) Totals {
	t.Requests += sign * o.Requests
	t.Input += sign * o.Input
	t.CachedInput += sign * o.CachedInput
	t.Output += sign * o.Output
	t.Money += float64(sign) * o.Money
	return t
}

// lockedForget drops what is older than the window.
func (l *Ledger) lockedForget(now time.Time) {
	old := 0
	for old < len(l.recent) && now.Sub(l.recent[old].at) >= window {
		old++
	}
	l.recent = slices.Delete(l.recent, 0, old)
}

// countKind is what a limit counts.
type countKind uint8

const (
	countRequests countKind = iota
	countInput
	countOutput
	countTokens
	countMoney
)

// line is one limit and what is used of it.
type line struct {
	field       string
	kind        countKind
	used, limit float64
	minute      bool
}

// lockedUsed gives the limits that are set, with what was used and set aside.
func (l *Ledger) lockedUsed(b policy.Budget) []line {
	run := l.total.plus(l.held, 1)
	minute := l.held
	for _, r := range l.recent {
		minute = minute.plus(r.Totals, 1)
	}
	all := []line{
		{"requests", countRequests, float64(run.Requests), float64(b.Requests), false},
		{"input_tokens", countInput, float64(run.Input), float64(b.InputTokens), false},
		{"output_tokens", countOutput, float64(run.Output), float64(b.OutputTokens), false},
		{"tokens", countTokens, float64(run.Input + run.Output), float64(b.Tokens), false},
		{"money", countMoney, run.Money, b.Money, false},
		{"requests_per_minute", countRequests, float64(minute.Requests), float64(b.RequestsPerMinute), true},
		{"tokens_per_minute", countTokens, float64(minute.Input + minute.Output), float64(b.TokensPerMinute), true},
		{"money_per_minute", countMoney, minute.Money, b.MoneyPerMinute, true},
	}
	return slices.DeleteFunc(all, func(x line) bool { return x.limit <= 0 })
}

// tokens gives how many tokens of output a call may have in the room that is
// left; a negative number when not even its input fits.
func (x *line) tokens(room float64, n Need) float64 {
	input := float64(n.Input)
	if n.Free {
		input = 0
	}
	free := n.output() == 0
	switch x.kind {
	case countInput:
		if input > room {
			return -1
		}
	case countOutput:
		return room
	case countTokens:
		return room - input
	case countMoney:
		room -= input * n.Price.Input / 1e6
		switch {
		case room < 0:
			return -1
		case n.Price.Output > 0 && !free:
			return math.Floor(room * 1e6 / n.Price.Output)
		}
	}
	return math.MaxInt32
}

func (x *line) denial() *Denial {
	what := "the budget of this run"
	if x.minute {
		what = "the budget of one minute"
	}
	d := &Denial{Budget: true, Rule: "inference.budget." + x.field}
	state := "is used up"
	if x.used < x.limit {
		state = "does not suffice for this call"
	}
	d.Reason = fmt.Sprintf("%s %s: of %s %s, %s are used or set aside for calls under way", what, state, number(x.limit), x.field, number(x.used))
	return d
}

// number writes an amount without needless digits.
func number(f float64) string {
	if f == math.Trunc(f) {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.4g", f)
}

// near is the part of a limit from which on it is said.
const near = 0.8

// lockedWarn gives the numbers that came near their limit for the first time.
// What is only set aside does not count.
func (l *Ledger) lockedWarn(b policy.Budget) []Alarm {
	held := l.held
	l.held = Totals{}
	lines := l.lockedUsed(b)
	l.held = held
	var alarms []Alarm
	for i := range lines {
		if lines[i].used >= near*lines[i].limit {
			alarms = append(alarms, l.lockedAlarm(&lines[i], lines[i].used >= lines[i].limit)...)
		}
	}
	return alarms
}

// lockedAlarm tells each number once, near its limit and at it; again when the
// limit is another one.
func (l *Ledger) lockedAlarm(x *line, full bool) []Alarm {
	if l.warned == nil {
		l.warned, l.filled = map[string]float64{}, map[string]float64{}
	}
	var alarms []Alarm
	if l.warned[x.field] != x.limit {
		l.warned[x.field] = x.limit
		alarms = append(alarms, Alarm{Field: "inference.budget." + x.field, Used: x.used, Limit: x.limit})
	}
	if full && l.filled[x.field] != x.limit {
		l.filled[x.field] = x.limit
		alarms = append(alarms, Alarm{Field: "inference.budget." + x.field, Used: x.used, Limit: x.limit, Full: true})
	}
	return alarms
}

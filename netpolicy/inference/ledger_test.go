package inference

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// call reserves and settles, and gives the alarms and the denial.
func call(l *Ledger, at time.Time, b policy.Budget, n Need, u Usage) (*Denial, []Alarm) {
	h, d, alarms := l.Reserve(at, b, n)
	if d != nil {
		return d, alarms
	}
	return nil, append(alarms, l.Settle(at, b, h, u)...)
}

// Each number ends further calls exactly when it is used up.
func TestBudgetNumbers(t *testing.T) {
	need := Need{Input: 10, Output: 10, Choices: 1, Price: policy.Price{Input: 1e6, Output: 1e6}}
	used := Usage{Input: 10, Output: 10}
	cases := []struct {
		name  string
		b     policy.Budget
		calls int // that are allowed
	}{
		{"requests", policy.Budget{Requests: 5}, 5},
		{"input_tokens", policy.Budget{InputTokens: 50}, 5},
		{"output_tokens", policy.Budget{OutputTokens: 50}, 5},
		{"tokens", policy.Budget{Tokens: 100}, 5},
		{"money", policy.Budget{Money: 100}, 5},
		{"requests_per_minute", policy.Budget{RequestsPerMinute: 5}, 5},
		{"tokens_per_minute", policy.Budget{TokensPerMinute: 100}, 5},
		{"money_per_minute", policy.Budget{MoneyPerMinute: 100}, 5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var l Ledger
			near, full := 0, 0
			count := func(alarms []Alarm) {
				for _, a := range alarms {
					if a.Field != "inference.budget."+c.name {
						t.Errorf("got alarm %+v, want one about %s", a, c.name)
					}
					if a.Full {
						full++
					} else {
						near++
					}
				}
			}
			for i := range c.calls {
				d, alarms := call(&l, noon, c.b, need, used)
				if d != nil {
					t.Fatalf("call %d: got denied: %s", i, d.Reason)
				}
				count(alarms)
				if want := 0; i < 3 && near != want || i == 3 && near != 1 {
					t.Errorf("call %d: got %d alarms at 80 %%", i, near)
				}
			}
			for range 3 {
				d, alarms := call(&l, noon, c.b, need, used)
				if d == nil || !d.Budget || d.Rule != "inference.budget."+c.name {
					t.Fatalf("got %+v, want a denial by %s", d, c.name)
				}
				count(alarms)
			}
			if near != 1 || full != 1 {
				t.Errorf("got %d alarms at 80 %% and %d at the end, want 1 and 1", near, full)
			}
			if d, _ := call(&l, noon, policy.Budget{}, need, used); d != nil {
				t.Errorf("after a reload without limits: got %s, want allowed", d.Reason)
			}
		})
	}
}

// Calls at the same time cannot together go over a limit.
func TestBudgetConcurrent(t *testing.T) {
	const limit = 10_000
	b := policy.Budget{Tokens: limit, OutputTokens: 6000, Requests: 500}
	var l Ledger
	var wg sync.WaitGroup
	var mu sync.Mutex
	var over int64
	for range 16 {
		wg.Go(func() {
			for range 50 {
				h, d, _ := l.Reserve(noon, b, Need{Input: 10, Output: 200, Choices: 1})
				if d != nil {
					continue
				}
				most := int64(200)
				if bound := l.Bound(h, Need{Output: 200}); bound > 0 {
					most = bound
				}
				l.Settle(noon, b, h, Usage{Input: 10, Output: rand.Int64N(most + 1)})
				got := l.Totals()
				mu.Lock()
				over = max(over, got.Input+got.Output-limit, got.Output-6000, got.Requests-500)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if over > 0 {
		t.Errorf("got %d more than a limit, want none: %+v", over, l.Totals())
	}
	if got := l.Totals(); got.Output < 5000 {
		t.Errorf("got %+v used, want most of the budget", got)
	}
	if l.held != (Totals{}) {
		t.Errorf("got %+v still set aside, want nothing", l.held)
	}
}

// The last call may use what is left and no more.
func TestBudgetBoundsTheLastCall(t *testing.T) {
	var l Ledger
	b := policy.Budget{OutputTokens: 1000}
	first, _, _ := l.Reserve(noon, b, Need{Output: 900, Choices: 1})
	second, d, _ := l.Reserve(noon, b, Need{Output: 900, Choices: 2})
	if d != nil {
		t.Fatal(d)
	}
	if got := l.Bound(first, Need{Output: 900}); got != 0 {
		t.Errorf("first: got bound %d, want none", got)
	}
	if got := l.Bound(second, Need{Output: 900}); got != 50 {
		t.Errorf("second: got bound %d for each of two answers, want 50", got)
	}
	if _, d, _ := l.Reserve(noon, b, Need{Output: 1, Choices: 1}); d == nil {
		t.Error("third: got allowed, want a denial while the others are under way")
	}
	l.Settle(noon, b, first, Usage{Output: 100})
	if h, d, _ := l.Reserve(noon, b, Need{Choices: 1}); d != nil || l.Bound(h, Need{}) != 800 {
		t.Errorf("fourth: got %v, want what the first left", d)
	}
	if _, d, _ := l.Reserve(noon, policy.Budget{OutputTokens: 1010}, Need{Output: 500, Least: 100, Choices: 1}); d == nil {
		t.Error("fifth: got allowed with less than it needs, want a denial")
	}
}

// A number per minute counts any 60 seconds.
func TestBudgetWindow(t *testing.T) {
	b := policy.Budget{RequestsPerMinute: 2, TokensPerMinute: 1000}
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	var l Ledger
	for _, c := range []struct {
		second  int
		tokens  int64
		allowed bool
	}{
		{0, 600, true},
		{50, 300, true},
		{59, 1, false},
		{60, 1, true},
		{61, 1, false},
		{109, 1, false},
		{110, 900, true},
		{121, 200, true},
		{122, 1, false},
		{170, 1, true},
	} {
		d, _ := call(&l, at(c.second), b, Need{Output: 50, Choices: 1}, Usage{Output: c.tokens})
		if (d == nil) != c.allowed {
			t.Errorf("second %d: got %v, want allowed %v", c.second, d, c.allowed)
		}
	}
	// What is under way counts in every minute until it is settled, and then in
	// the minute of its end.
	var slow Ledger
	h, _, _ := slow.Reserve(at(0), b, Need{Output: 990, Choices: 1})
	if _, d, _ := slow.Reserve(at(100), b, Need{Input: 20, Output: 20, Choices: 1}); d == nil {
		t.Error("got allowed beside a call that may use it all, want a denial")
	}
	slow.Settle(at(200), b, h, Usage{Output: 990})
	if d, _ := call(&slow, at(259), b, Need{Input: 20, Output: 20, Choices: 1}, Usage{}); d == nil {
		t.Error("got allowed 59 s after the call ended, want a denial")
	}
	if d, _ := call(&slow, at(260), b, Need{Input: 20, Output: 20, Choices: 1}, Usage{}); d != nil {
		t.Errorf("60 s after the call ended: got %s, want allowed", d.Reason)
	}
}

// A call that is not sent costs nothing, and nothing is settled twice.
func TestCancel(t *testing.T) {
	var l Ledger
	b := policy.Budget{Requests: 1, RequestsPerMinute: 1}
	h, _, _ := l.Reserve(noon, b, Need{Input: 5, Output: 5, Choices: 1})
	l.Cancel(h)
	l.Cancel(h)
	l.Settle(noon, b, h, Usage{Input: 9})
	if got := l.Totals(); got != (Totals{}) {
		t.Errorf("got %+v, want nothing used", got)
	}
	if d, _ := call(&l, noon, b, Need{}, Usage{}); d != nil {
		t.Errorf("got %s, want allowed", d.Reason)
	}
	if d, _ := l.Attempt(noon, b); d == nil {
		t.Error("got another attempt allowed, want the number of requests to hold")
	}
}

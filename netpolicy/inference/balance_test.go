package inference

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// keep is a ledger whose balance outlives it.
type keep struct {
	ledger *Ledger
	kept   Balance
}

func newKeep(t *testing.T, now time.Time, b Balance) (*keep, Totals) {
	t.Helper()
	k := &keep{ledger: &Ledger{}, kept: b}
	lost, err := k.ledger.Restore(now, b)
	if err != nil {
		t.Fatal(err)
	}
	k.ledger.Save = func(b *Balance) { k.kept = *b }
	k.ledger.Flush()
	return k, lost
}

// However often the ledger dies, and in whatever moment, no more is used than
// the budget has: not in the run, not in any minute.
func TestBudgetsOutliveTheLedger(t *testing.T) {
	const calls, price = 4000, 1.0
	random := rand.New(rand.NewPCG(1, 2))
	b := policy.Budget{Requests: 3000, Tokens: 12_000, Money: 0.011, RequestsPerMinute: 90, TokensPerMinute: 1500}
	need := Need{Input: 5, Output: 20, Choices: 1, Price: policy.Price{Input: price, Output: price}}
	now := noon
	k, _ := newKeep(t, now, Balance{})
	var open []*Hold
	var used []booking // what really happened: a call that was sent may have used all that it could
	sent := func(h *Hold) {
		used = append(used, booking{now, Totals{Requests: 1, Input: need.Input, Output: h.amount.Output}})
	}
	deaths := 0
	for range calls {
		now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
		switch r := random.IntN(100); {
		case r < 3:
			k, _ = newKeep(t, now, k.kept)
			open = nil
			deaths++
		case r < 50 && len(open) > 0:
			h := open[0]
			open = open[1:]
			k.ledger.Settle(now, b, h, Usage{Input: need.Input, Output: h.amount.Output})
		default:
			if h, d, _ := k.ledger.Reserve(now, b, need); d == nil {
				sent(h)
				open = append(open, h)
			}
		}
	}
	var all Totals
	for i, u := range used {
		all = all.plus(u.Totals, 1)
		var minute Totals
		for _, o := range used[:i+1] {
			if u.at.Sub(o.at) < window {
				minute = minute.plus(o.Totals, 1)
			}
		}
		if minute.Requests > int64(b.RequestsPerMinute) {
			t.Fatalf("got %d requests in one minute, want at most %d", minute.Requests, b.RequestsPerMinute)
		}
	}
	money := float64(all.Input+all.Output) * price / 1e6
	if all.Requests > int64(b.Requests) || all.Input+all.Output > int64(b.Tokens) || money > b.Money {
		t.Errorf("got %+v and %.4f of money after %d deaths, want less than %+v", all, money, deaths, b)
	}
	if deaths < 50 || all.Input+all.Output < int64(b.Tokens)/3 {
		t.Errorf("control: got %d deaths and %+v used, want many and most of the budget", deaths, all)
	}
}

// A call that was under way is charged in full, once, and said to be.
func TestLostCallsAreCharged(t *testing.T) {
	b := policy.Budget{Tokens: 1000}
	need := Need{Input: 10, Output: 100, Choices: 1}
	k, _ := newKeep(t, noon, Balance{})
	if d, _ := call(k.ledger, noon, b, need, Usage{Input: 10, Output: 1}); d != nil {
		t.Fatal(d.Reason)
	}
	if _, d, _ := k.ledger.Reserve(noon, b, need); d != nil {
		t.Fatal(d.Reason)
	}
	k, lost := newKeep(t, noon.Add(time.Second), k.kept)
	if lost != (Totals{Input: 10, Output: 100}) {
		t.Errorf("got %+v lost, want the whole call", lost)
	}
	want := Totals{Requests: 2, Input: 20, Output: 101}
	if got := k.ledger.Totals(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	k, lost = newKeep(t, noon.Add(2*time.Second), k.kept)
	if got := k.ledger.Totals(); lost != (Totals{}) || got != want {
		t.Errorf("once more: got %+v lost of %+v, want nothing of %+v", lost, got, want)
	}
	if _, err := (&Ledger{}).Restore(noon, Balance{Total: Totals{Input: -1}}); err == nil {
		t.Error("a balance below zero: got no error")
	}
}

// A call that was taken back before it was sent leaves nothing behind.
func TestCancelledCallsAreNotLost(t *testing.T) {
	k, _ := newKeep(t, noon, Balance{})
	h, d, _ := k.ledger.Reserve(noon, policy.Budget{}, Need{Input: 10, Output: 100, Choices: 1, Price: policy.Price{Input: 0.1, Output: 0.3}})
	if d != nil {
		t.Fatal(d.Reason)
	}
	k.ledger.Cancel(h)
	if k, lost := newKeep(t, noon, k.kept); lost != (Totals{}) || k.ledger.Totals() != (Totals{}) {
		t.Errorf("got %+v lost of %+v, want nothing", lost, k.ledger.Totals())
	}
}

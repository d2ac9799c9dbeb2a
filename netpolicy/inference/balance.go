package inference

import (
	"errors"
	"math"
	"time"
)

// balanceSeconds is how many different seconds a window can touch, and some.
const balanceSeconds = 64

// Balance is what a ledger must not forget when its process is killed. It holds
// no pointers, so that it can lie in shared memory.
type Balance struct {
	// Total is what was used, Held what is set aside for calls under way.
	Total, Held Totals
	// Recent is what was used in the last minute, by seconds.
	Recent [balanceSeconds]Booked
}

// Booked is what was used in one second. The zero value is nothing.
type Booked struct {
	// Second is its Unix time.
	Second int64
	Totals
}

// lockedSave hands on the balance. Whatever was changed is in it before anything
// follows from the change.
func (l *Ledger) lockedSave() {
	if l.Save == nil {
		return
	}
	b := &l.balance
	*b = Balance{Total: l.total, Held: l.held}
	at := -1
	for _, r := range l.recent {
		if second := r.at.Unix(); at < 0 || b.Recent[at].Second != second && at+1 < len(b.Recent) {
			at++
			b.Recent[at].Second = second
		}
		b.Recent[at].Totals = b.Recent[at].plus(r.Totals, 1)
	}
	l.Save(b)
}

// Flush hands on the balance as it is.
func (l *Ledger) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockedSave()
}

// Restore begins with a balance. Calls that were under way then are charged in
// full, now: nobody knows what they used. It gives what that is.
func (l *Ledger) Restore(now time.Time, b Balance) (lost Totals, err error) {
	for _, t := range append([]Booked{{Totals: b.Total}, {Totals: b.Held}}, b.Recent[:]...) {
		if !t.valid() {
			return lost, errors.New("BUG: the balance of models is damaged")
		}
	}
	if b.Held.Money < 1e-9 { // sums and differences of fractions
		b.Held.Money = 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total, l.held, l.recent = b.Total.plus(b.Held, 1), Totals{}, nil
	for _, r := range b.Recent {
		if r.Totals == (Totals{}) {
			continue
		}
		at := time.Unix(r.Second+1, 0) // its end, which is forgotten last
		if at.After(now) {
			at = now
		}
		l.recent = append(l.recent, booking{at, r.Totals})
	}
	if b.Held != (Totals{}) {
		l.recent = append(l.recent, booking{now, b.Held})
	}
	return b.Held, nil
}

// valid tells whether these can be sums. Money that was set aside and given
// back may leave a rest below the smallest coin.
func (t Totals) valid() bool {
	return t.Requests >= 0 && t.Input >= 0 && t.CachedInput >= 0 && t.Output >= 0 && t.Money > -1e-6 && !math.IsInf(t.Money, 1)
}

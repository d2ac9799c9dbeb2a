package audit

import "time"

// The rate at which denials and other events that an agent can cause for
// nothing are written once the burst is used up. First occurrences are written
// always, up to maxSeen of them.
const (
	ratePerSecond = 500
	rateBurst     = 10_000
	maxSeen       = 4096
)

// limit leaves out what is too much, and counts it.
type limit struct {
	tokens  float64
	filled  time.Time
	seen    map[seenKey]struct{}
	dropped int64
}

// seenKey is what makes two events the same for the limit.
type seenKey struct {
	kind    Kind
	verdict Verdict
	host    string
	rule    string
	reason  string
}

// always tells whether an event is written whatever the rate: what went out was
// allowed, and a record that leaves it out would hide it. The size of the
// record is bounded by its rotation.
func always(e *Event) bool {
	switch e.Kind {
	case KindLaunch, KindExit, KindReload, KindService, KindControl, KindProxy, KindInference, KindBudget, KindFault:
		return true
	}
	return e.Verdict == Allow || e.Kind.Bookkeeping()
}

// admit decides whether the event is written.
func (l *limit) admit(e *Event) bool {
	if always(e) {
		return true
	}
	if l.filled.IsZero() || e.Time.Before(l.filled) {
		l.filled = e.Time
	}
	l.tokens = min(rateBurst, l.tokens+e.Time.Sub(l.filled).Seconds()*ratePerSecond)
	l.filled = e.Time
	first := l.first(seenKey{e.Kind, e.Verdict, e.Host, e.Rule, e.Reason})
	switch {
	case l.tokens >= 1:
		l.tokens--
	case !first:
		l.dropped++
		return false
	}
	return true
}

func (l *limit) first(k seenKey) bool {
	if _, known := l.seen[k]; known || len(l.seen) >= maxSeen {
		return false
	}
	l.seen[k] = struct{}{}
	return true
}

package supervise

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The values of Rules.Restart.
const (
	Never     = "never"
	OnFailure = "on-failure"
	Always    = "always"
)

// Rules say when a service is started again; the fields are those of the policy.
type Rules struct {
	Restart                                 string
	Backoff, BackoffMax, ResetAfter, Within time.Duration
	Burst                                   int
	RestartStatus, FatalStatus              []int
}

// complete fills in what zero stands for.
func (r Rules) complete() Rules {
	r.Backoff = cmp.Or(r.Backoff, min(defaultBackoff, cmp.Or(r.BackoffMax, defaultBackoff)))
	r.BackoffMax = max(cmp.Or(r.BackoffMax, defaultBackoffMax), r.Backoff)
	r.ResetAfter = cmp.Or(r.ResetAfter, defaultResetAfter)
	r.Burst = cmp.Or(r.Burst, defaultBurst)
	r.Within = cmp.Or(r.Within, defaultWithin)
	return r
}

// Verdict is what becomes of a service that ended.
type Verdict int

// The verdicts. The zero value starts nothing.
const (
	GiveUp Verdict = iota // it should run and is not started again
	Done                  // it ended and may
	Again                 // it is started again
)

// Decision is what Machine makes of an end.
type Decision struct {
	Verdict Verdict
	// Delay is the pause before the next start (Again).
	Delay time.Duration
	// Asked: the service itself asked for the restart.
	Asked bool
	// Reason says in a few words why it is given up.
	Reason string
}

// Machine decides when one service is started again. It is told each start and
// each end with the time, and knows no other clock.
type Machine struct {
	Rules Rules

	began  time.Time     // the last start
	starts []time.Time   // those that count, within Rules.Within
	pause  time.Duration // before the next restart; 0 is the first
	asked  bool          // the next start was asked for and does not count
}

// Started tells that the service was started, or that this was tried.
func (m *Machine) Started(now time.Time) {
	m.began = now
	if !m.asked {
		m.starts = append(m.starts, now)
	}
	m.asked = false
}

// Ended tells that it ended, and decides what follows.
func (m *Machine) Ended(now time.Time, e Exit) Decision {
	ran := now.Sub(m.began)
	if ran >= m.Rules.ResetAfter {
		m.pause = 0
	}
	exited := e.Signal == 0 && e.Err == nil
	switch {
	case exited && slices.Contains(m.Rules.FatalStatus, e.Code):
		return Decision{Reason: fmt.Sprintf("exit code %d says that a restart is of no use", e.Code)}
	case exited && !e.Unhealthy && slices.Contains(m.Rules.RestartStatus, e.Code):
		m.asked = true
		// At once, but one that asks all the time does not run in circles.
		return Decision{Verdict: Again, Asked: true, Delay: max(0, m.Rules.Backoff-ran)}
	case m.Rules.Restart == Always, m.Rules.Restart == OnFailure && e.Failed():
		return m.again(now)
	case e.Failed():
		return Decision{Reason: "it is not to be started again"}
	}
	return Decision{Verdict: Done}
}

// again restarts after the next pause, unless that were one start too many.
func (m *Machine) again(now time.Time) Decision {
	m.pause = min(max(m.pause*2, m.Rules.Backoff), m.Rules.BackoffMax)
	next := now.Add(m.pause)
	m.starts = slices.DeleteFunc(m.starts, func(t time.Time) bool { return next.Sub(t) >= m.Rules.Within })
	if len(m.starts) >= m.Rules.Burst {
		return Decision{Reason: fmt.Sprintf("it was started %d times within %v", len(m.starts), m.Rules.Within)}
	}
	return Decision{Verdict: Again, Delay: m.pause}
}

package supervise

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

func rules(restart string) Rules {
	return Rules{
		Restart: restart, Backoff: time.Second, BackoffMax: 5 * time.Second, ResetAfter: 10 * time.Second, Burst: 5, Within: 2 * time.Minute,
		RestartStatus: []int{75}, FatalStatus: []int{78},
	}
}

func TestMachine(t *testing.T) {
	type step struct {
		ran  time.Duration
		exit Exit
		want Decision // without its reason
	}
	again := func(d time.Duration) Decision { return Decision{Verdict: Again, Delay: d} }
	failed := Exit{Code: 1}
	for name, tc := range map[string]struct {
		restart string
		steps   []step
	}{
		"success ends it":                  {OnFailure, []step{{time.Second, Exit{}, Decision{Verdict: Done}}}},
		"never after success":              {Never, []step{{time.Second, Exit{}, Decision{Verdict: Done}}}},
		"never after a failure":            {Never, []step{{time.Second, failed, Decision{}}}},
		"always after success":             {Always, []step{{time.Second, Exit{}, again(time.Second)}}},
		"a signal is a failure":            {OnFailure, []step{{time.Second, Exit{Signal: 9}, again(time.Second)}}},
		"no answer is a failure":           {OnFailure, []step{{time.Second, Exit{Unhealthy: true}, again(time.Second)}}},
		"no start is a failure":            {OnFailure, []step{{0, Exit{Err: errors.New("x")}, again(time.Second)}}},
		"no answer and a restart code":     {OnFailure, []step{{time.Second, Exit{Code: 75, Unhealthy: true}, again(time.Second)}}},
		"no answer and never":              {Never, []step{{time.Second, Exit{Unhealthy: true}, Decision{}}}},
		"fatal":                            {Always, []step{{time.Second, Exit{Code: 78}, Decision{}}}},
		"a signal is no exit code":         {Never, []step{{time.Second, Exit{Code: 75, Signal: 9}, Decision{}}}},
		"asked for, whatever restart says": {Never, []step{{time.Minute, Exit{Code: 75}, Decision{Verdict: Again, Asked: true}}}},
		"asked for too soon": {Never, []step{
			{300 * time.Millisecond, Exit{Code: 75}, Decision{Verdict: Again, Asked: true, Delay: 700 * time.Millisecond}},
		}},
		"pauses double and end": {OnFailure, []step{
			{0, failed, again(time.Second)},
			{0, failed, again(2 * time.Second)},
			{0, failed, again(4 * time.Second)},
			{0, failed, again(5 * time.Second)},
			{0, failed, Decision{}},
		}},
		"a stable time resets": {OnFailure, []step{
			{0, failed, again(time.Second)},
			{0, failed, again(2 * time.Second)},
			{10 * time.Second, failed, again(time.Second)},
		}},
		"asked for does not count": {OnFailure, []step{
			{0, failed, again(time.Second)},
			{2 * time.Second, Exit{Code: 75}, Decision{Verdict: Again, Asked: true}},
			{2 * time.Second, Exit{Code: 75}, Decision{Verdict: Again, Asked: true}},
			{2 * time.Second, Exit{Code: 75}, Decision{Verdict: Again, Asked: true}},
			{2 * time.Second, Exit{Code: 75}, Decision{Verdict: Again, Asked: true}},
			{2 * time.Second, failed, again(2 * time.Second)},
		}},
		"slow failures are not too many": {OnFailure, []step{
			{30 * time.Second, failed, again(time.Second)},
			{30 * time.Second, failed, again(time.Second)},
			{30 * time.Second, failed, again(time.Second)},
			{30 * time.Second, failed, again(time.Second)},
			{30 * time.Second, failed, again(time.Second)},
			{30 * time.Second, failed, again(time.Second)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := Machine{Rules: rules(tc.restart)}
			now := epoch
			for i, s := range tc.steps {
				m.Started(now)
				now = now.Add(s.ran)
				got := m.Ended(now, s.exit)
				if got.Verdict == GiveUp && got.Reason == "" {
					t.Errorf("end %d: got no reason, want one", i)
				}
				got.Reason = ""
				if got != s.want {
					t.Fatalf("end %d: got %+v, want %+v", i, got, s.want)
				}
				now = now.Add(got.Delay)
			}
		})
	}
}

func TestZeroValueStartsNothing(t *testing.T) {
	m := Machine{}
	m.Started(epoch)
	if got := m.Ended(epoch, Exit{Code: 1}); got.Verdict != GiveUp {
		t.Errorf("got %+v, want it given up", got)
	}
}

// Whatever happens to a service, its rules hold.
func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{
			Restart:       rapid.SampledFrom([]string{Never, OnFailure, Always}).Draw(t, "restart"),
			Backoff:       time.Duration(rapid.IntRange(0, 5000).Draw(t, "backoff")) * time.Millisecond,
			BackoffMax:    time.Duration(rapid.IntRange(0, 60000).Draw(t, "backoff_max")) * time.Millisecond,
			ResetAfter:    time.Duration(rapid.IntRange(0, 20000).Draw(t, "reset_after")) * time.Millisecond,
			Burst:         rapid.IntRange(0, 8).Draw(t, "burst"),
			Within:        time.Duration(rapid.IntRange(0, 300).Draw(t, "within")) * time.Second,
			RestartStatus: []int{75}, FatalStatus: []int{78},
		}.complete()
		m := Machine{Rules: r}
		now := epoch
		var counted []time.Time
		asked := false
		last := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "ends") {
			m.Started(now)
			if !asked {
				counted = append(counted, now)
			}
			recent := 0
			for _, c := range counted {
				if now.Sub(c) < r.Within {
					recent++
				}
			}
			if recent > r.Burst {
				t.Fatalf("got %d starts within %v, want at most %d", recent, r.Within, r.Burst)
			}
			ran := time.Duration(rapid.IntRange(0, 40000).Draw(t, "ran")) * time.Millisecond
			now = now.Add(ran)
			e := Exit{Code: rapid.SampledFrom([]int{0, 1, 75, 78}).Draw(t, "code"), Signal: rapid.SampledFrom([]int{0, 0, 9}).Draw(t, "signal")}
			d := m.Ended(now, e)
			exited := e.Signal == 0
			switch {
			case exited && e.Code == 78 && d.Verdict != GiveUp:
				t.Fatalf("fatal exit: got %+v, want it given up", d)
			case exited && e.Code == 75 && (d.Verdict != Again || !d.Asked || d.Delay > r.Backoff):
				t.Fatalf("asked for: got %+v, want it started again at once", d)
			case d.Verdict == Again && !d.Asked && r.Restart == Never:
				t.Fatalf("never: got %+v, want no restart", d)
			case d.Verdict == Again && !d.Asked && r.Restart == OnFailure && !e.Failed():
				t.Fatalf("success: got %+v, want no restart", d)
			case d.Verdict == Again && !d.Asked && (d.Delay < r.Backoff || d.Delay > r.BackoffMax):
				t.Fatalf("got a pause of %v, want one from %v to %v", d.Delay, r.Backoff, r.BackoffMax)
			case d.Verdict == Again && !d.Asked && ran >= r.ResetAfter && d.Delay != r.Backoff:
				t.Fatalf("after a stable time: got a pause of %v, want %v", d.Delay, r.Backoff)
			case d.Verdict == Again && !d.Asked && ran < r.ResetAfter && d.Delay < last:
				t.Fatalf("got a pause of %v after one of %v, want it no shorter", d.Delay, last)
			}
			if d.Verdict != Again {
				return
			}
			if asked = d.Asked; !asked || ran >= r.ResetAfter {
				last = d.Delay
				if asked {
					last = 0
				}
			}
			now = now.Add(d.Delay)
		}
	})
}

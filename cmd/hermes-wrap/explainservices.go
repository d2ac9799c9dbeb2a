package main

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/supervise"
)

// serviceLines says what is kept running, and how.
func serviceLines(p policy.Policy) (out []string) {
	if !p.Supervise.Active() {
		return nil
	}
	for _, s := range supervise.Services(p) {
		r := s.Rules
		line := fmt.Sprintf("%s: restart %s", s.Name, r.Restart)
		if v, ok := p.Supervise.Services[s.Name]; ok {
			line = fmt.Sprintf("%s (%s): restart %s", s.Name, strings.Join(v.Command, " "), r.Restart)
		}
		if r.Restart != supervise.Never {
			line += fmt.Sprintf(" after %v to %v, at most %d starts within %v", r.Backoff, r.BackoffMax, r.Burst, r.Within)
		}
		for _, codes := range []struct {
			what string
			of   []int
		}{{"at once on", r.RestartStatus}, {"never on", r.FatalStatus}} {
			if len(codes.of) > 0 {
				line += fmt.Sprintf(", %s exit %s", codes.what, strings.Trim(fmt.Sprint(codes.of), "[]"))
			}
		}
		if len(s.After) > 0 {
			line += ", after " + strings.Join(s.After, " ")
		}
		if s.Health.URL != "" {
			line += fmt.Sprintf(", asked at %s every %v", s.Health.URL, s.Health.Interval)
		}
		if s.Notify {
			line += ", says itself when it is up"
		}
		out = append(out, fmt.Sprintf("%s, %v to stop", line, s.StopGrace))
	}
	return out
}

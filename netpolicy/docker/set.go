package docker

import (
	"fmt"
	"net/http"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Label is on every container of a run. Its value is the run's identifier.
const Label = "hermes-wrap.run"

// Set is what a policy lets one run do with the engine.
type Set struct {
	policy policy.Docker
	run    string
	images []pattern
}

// Compile gives the set for a run; nil when the policy opens no engine.
func Compile(d policy.Docker, run string) *Set {
	if !d.Enabled() || run == "" {
		return nil
	}
	s := &Set{policy: d, run: run}
	for _, n := range d.Images {
		s.images = append(s.images, newPattern(n.Text))
	}
	return s
}

// Pos is where the policy opens the engine.
func (s *Set) Pos() policy.Pos { return s.policy.Images[0].Pos }

// Most is how many containers of the run may exist at a time.
func (s *Set) Most() int { return s.policy.Containers() }

// Refused is why a request is not carried.
type Refused struct {
	// Status is the answer's.
	Status int
	// Reason says what is not allowed.
	Reason string
}

func (e *Refused) Error() string { return e.Reason }

func deny(format string, args ...any) error {
	return &Refused{http.StatusForbidden, fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) error {
	return &Refused{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

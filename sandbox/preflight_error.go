package sandbox

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// LackError says what this machine lacks for a protection. It is never the
// user's mistake in a policy and never a bug of ours.
type LackError struct {
	Layer   policy.Layer // what require.may_degrade would have to name
	Feature string       // what cannot be enforced or done
	Needed  string       // what it takes
	Found   string       // what this machine has instead
	Hint    string       // one thing to do; never to weaken the sandbox
	Err     error        // the kernel's words, if there are any
}

// Error gives feature, needed, found and the kernel's words last.
func (e *LackError) Error() string {
	s := fmt.Sprintf("%s cannot be enforced: needed %s; found %s", e.Feature, e.Needed, e.Found)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the kernel's error.
func (e *LackError) Unwrap() error { return e.Err }

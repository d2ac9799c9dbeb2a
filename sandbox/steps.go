package sandbox

import "fmt"

// Step is one named step of a launch; the names are used in errors, in --trace
// and in the documentation.
type Step string

// The steps, in their order.
const (
	StepPlan      Step = "compile"   // policy → plan
	StepPreflight Step = "preflight" // what this machine offers
	StepRuntime   Step = "runtime"   // the run's own directory
	StepProxy     Step = "proxy"     // the egress proxy
	StepContainer Step = "container" // namespaces, through libcontainer
	StepNetwork   Step = "network"   // loopback, capture, listeners
	StepRoot      Step = "root"      // the private root
	StepLimits    Step = "limits"    // resource limits
	StepTerminal  Step = "terminal"  // the pseudo-terminal
	StepConfine   Step = "confine"   // capabilities, Landlock, guard, filter
	StepSelfTest  Step = "self-test" // what must fail, fails
	StepExec      Step = "exec"      // the command itself
)

// StepError is a launch that stopped at a step.
type StepError struct {
	Step Step
	Err  error
	// Hint is the one thing to do; empty when there is none.
	Hint string
}

// Error gives "step: cause".
func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

// stepErr names the step of an error; nil stays nil.
func stepErr(s Step, err error) error {
	if err == nil {
		return nil
	}
	return &StepError{Step: s, Err: err}
}

// Package supervise keeps the services of a run going: it starts them in their
// order, starts them again when they end, asks whether they work, stops them in
// reverse order, and writes what they print to a log, line by line. When a
// service is started again is decided by Machine, which is pure; Manager carries
// it out through functions that start processes, so that it needs no sandbox.
package supervise

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Main is the name of the command among the services.
const Main = "main"

// What the zero values of a policy stand for.
const (
	defaultBackoff    = time.Second
	defaultBackoffMax = 30 * time.Second
	defaultResetAfter = 10 * time.Second
	defaultBurst      = 5
	defaultWithin     = 2 * time.Minute
	defaultInterval   = 10 * time.Second
	defaultTimeout    = 5 * time.Second
	defaultFailures   = 3
	defaultGrace      = 30 * time.Second
)

// Service is one process that is kept running.
type Service struct {
	// Name identifies it; the command is Main.
	Name string
	// After are the services that must be up before this one starts, and that are
	// stopped after it.
	After []string
	// Rules say when it is started again.
	Rules Rules
	// StopGrace is how long it has between SIGTERM and SIGKILL. 0: none.
	StopGrace time.Duration
	// Health is how it is asked whether it works. The zero value does not ask.
	Health Check
	// Notify: it is up when it says so (READY=1).
	Notify bool
}

// Services gives what a policy supervises, by name, the command first. Nothing
// is left at zero that stands for something else.
func Services(p policy.Policy) []Service {
	s := p.Supervise
	all := []Service{{
		Name: Main, Notify: s.Notify, StopGrace: time.Duration(p.Process.StopGrace), Health: newCheck(s.Health),
		Rules: Rules{
			Restart: cmp.Or(s.Restart, Never), Backoff: time.Duration(s.Backoff), BackoffMax: time.Duration(s.BackoffMax),
			ResetAfter: time.Duration(s.ResetAfter), Burst: s.Burst, Within: time.Duration(s.Within),
			RestartStatus: s.RestartStatus, FatalStatus: s.FatalStatus,
		}.complete(),
	}}
	for name, v := range s.Services {
		one := Service{
			Name: name, StopGrace: time.Duration(cmp.Or(v.StopGrace, p.Process.StopGrace)), Health: newCheck(v.Health),
			Rules: Rules{
				Restart: cmp.Or(v.Restart, OnFailure), Backoff: time.Duration(v.Backoff), BackoffMax: time.Duration(v.BackoffMax),
				ResetAfter: time.Duration(v.ResetAfter), Burst: v.Burst, Within: time.Duration(v.Within),
				RestartStatus: v.RestartStatus, FatalStatus: v.FatalStatus,
			}.complete(),
		}
		for _, a := range v.After {
			one.After = append(one.After, a.Text)
		}
		all = append(all, one)
	}
	slices.SortFunc(all[1:], func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Exit is how a process ended, or that it could not be started.
type Exit struct {
	// Code is the exit code. It has no meaning with Signal or Err.
	Code int
	// Signal ended it; 0 when it exited.
	Signal int
	// Unhealthy: it was stopped because it did not answer.
	Unhealthy bool
	// Err says why it was not started.
	Err error
}

// Failed tells whether an end is one that "on-failure" is about.
func (e Exit) Failed() bool { return e.Code != 0 || e.Signal != 0 || e.Unhealthy || e.Err != nil }

func (e Exit) String() string {
	switch {
	case e.Err != nil:
		return "not started: " + e.Err.Error()
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("exited with %d", e.Code)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// Whatever the machine does to a launch, the message names the step and one
// thing to do.
func TestFailedLaunchNamesStepAndRemedy(t *testing.T) {
	disk := &os.PathError{Op: "mkdir", Path: "/state", Err: unix.ENOSPC}
	for _, c := range []struct {
		err        error
		text, hint string
	}{
		{disk, "runtime: mkdir /state: no space left on device", "make room"},
		{fmt.Errorf("open the record: %w", disk), "runtime: open the record: mkdir /state: no space left on device", "make room"},
		{&sandbox.StepError{Step: sandbox.StepProxy, Err: unix.EMFILE}, "proxy: too many open files", "ulimit -n"},
		{&sandbox.StepError{Step: sandbox.StepContainer, Err: errors.New("nsexec: Cannot allocate memory")}, "container: nsexec: Cannot allocate memory", "free memory"},
		{&sandbox.StepError{Step: sandbox.StepExec, Err: io.EOF}, "exec: EOF", "start it again"},
		{&sandbox.StepError{Step: sandbox.StepConfine, Err: errors.New("odd")}, "confine: odd", "doctor"},
		{&sandbox.StepError{Step: sandbox.StepConfine, Err: unix.EPERM, Hint: "own"}, "confine: operation not permitted", "own"},
		{&hintedError{disk, "own"}, "runtime: mkdir /state: no space left on device", "own"},
	} {
		got := remedied(located(sandbox.StepRuntime, c.err))
		if got.Error() != c.text || !strings.Contains(hintOf(got), c.hint) || !errors.Is(got, c.err) {
			t.Errorf("%v: got %q with hint %q, want %q with %q", c.err, got, hintOf(got), c.text, c.hint)
		}
	}
}

// Mistakes have a place of their own.
func TestMistakesStayAsTheyAre(t *testing.T) {
	for _, err := range []error{
		errors.New("flag --policy: the value is empty"), sandbox.ErrNotFound,
		policy.Problems{{Pos: policy.Pos{File: "dir"}, What: "read policy: is a directory"}},
		&sandbox.StepError{Step: sandbox.StepExec, Err: sandbox.ErrNotExecutable},
	} {
		got := remedied(located(sandbox.StepPlan, err))
		if got.Error() != err.Error() || hintOf(got) != hintOf(err) {
			t.Errorf("got %v with hint %q, want %v with %q", got, hintOf(got), err, hintOf(err))
		}
	}
}

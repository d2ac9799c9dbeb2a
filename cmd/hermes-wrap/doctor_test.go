package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// Only a step that the machine can fail is looked into; every other error
// stays what it is, with its hint.
func TestDiagnosedLeavesOtherErrorsAlone(t *testing.T) {
	lack := &sandbox.LackError{Feature: "cpu", Needed: "a", Found: "b", Hint: "c"}
	for _, err := range []error{
		errors.New("plain"), lack, &sandbox.StepError{Step: sandbox.StepExec, Err: sandbox.ErrNotFound},
		fmt.Errorf("limits: %w", lack), &sandbox.StepError{Step: sandbox.StepContainer, Err: lack},
	} {
		if got := diagnosed(err); !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("got %v, want %v", got, err)
		}
	}
}

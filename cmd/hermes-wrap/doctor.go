package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// diagnosis is what doctor found, for programs.
type diagnosis struct {
	OK       bool             `json:"ok"`
	Findings sandbox.Findings `json:"findings"`
}

func (c *commandLine) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Try what a launch needs on this machine, and say what is missing", Args: cobra.NoArgs,
		Long: "doctor tries every mechanism that a launch rests on in a throw-away sandbox and changes nothing.\n" +
			"Exit code: 0 nothing is missing, 1 something is.",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found := sandbox.Preflight(context.Background())
		ok := len(found.Missing()) == 0
		if !ok {
			c.code = 1
		}
		if *asJSON {
			return printJSON(diagnosis{ok, found})
		}
		return found.WriteTable(os.Stdout)
	}
	cmd.AddCommand(c.doctorHermes())
	return cmd
}

// machineSteps are the steps that fail for what a machine lacks. Confining is
// one of them: it begins with a user namespace inside the first.
var machineSteps = []sandbox.Step{sandbox.StepContainer, sandbox.StepNetwork, sandbox.StepRoot, sandbox.StepConfine}

// diagnosed adds to the error of a failed launch which feature of this machine
// is missing, when that is the cause.
func diagnosed(err error) error {
	var step *sandbox.StepError
	var lack *sandbox.LackError
	if errors.As(err, &lack) || !errors.As(err, &step) || !slices.Contains(machineSteps, step.Step) {
		return err
	}
	feature, needed, found, remedy := sandbox.Explain(context.Background(), err)
	if feature == "" {
		return err
	}
	return &sandbox.LackError{Feature: feature, Needed: needed, Found: found, Hint: remedy, Err: err}
}

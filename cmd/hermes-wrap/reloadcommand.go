package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

func (c *commandLine) reload() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload [NAME]", Short: "Put a changed policy in force in a run that is under way",
		Long: "reload has a run load its policy again, with the flags it was started with. Network rules,\n" +
			"credentials, inference and budgets change at once; everything else is fixed at launch, and a\n" +
			"change there is refused. On any error the old policy stays in force. SIGHUP does the same.\n\n" +
			sessionHelp +
			"Exit code: 0 the new policy is in force, 125 the old one stays.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeLive,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		e, err := liveSession(args)
		if err != nil {
			c.code = c.voice.fail(err)
			return nil
		}
		a, err := askRun(e, controlRequest{Op: opReload}, reloadWait)
		if err != nil {
			c.code = c.voice.fail(err)
			return nil
		}
		return c.sayReloaded(a, *asJSON)
	}
	return cmd
}

func (c *commandLine) sayReloaded(a controlAnswer, asJSON bool) error {
	if a.Error != "" {
		c.code = exitFailed
	}
	switch {
	case asJSON:
		return printJSON(a)
	case len(a.Problems) > 0:
		c.voice.fail(a.Problems)
		c.voice.note("the old policy stays in force")
	case a.Error != "":
		c.voice.fail(fmt.Errorf("reload %s: %s", a.Run, a.Error))
	case a.Reload == nil:
		c.code = c.voice.fail(errors.New("BUG: the run said nothing of its reload"))
	default:
		_, err := fmt.Println(audit.Escape(a.Reload.say(a.Run))) // root asks runs of others
		return err
	}
	return nil
}

// say is the outcome in a line.
func (r *reloaded) say(run string) string {
	s := fmt.Sprintf("%s: policy %s is in force (digest %.12s)", run, r.Policy, r.Digest)
	if len(r.Changed) == 0 {
		return s + "; nothing changed"
	}
	s += "; changed: " + strings.Join(r.Changed, ", ")
	if r.Closed > 0 {
		s += fmt.Sprintf("; tunnels closed: %d", r.Closed)
	}
	return s
}

// reloadWait is how long an answer is waited for: a reload may run a credential's
// command.
const reloadWait = 2 * time.Minute

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// commandLine holds what every command shares.
type commandLine struct {
	voice voice
	code  int
	args  []string
	flags runFlags
}

func newCommandLine() *commandLine { return &commandLine{voice: newVoice(os.Stderr)} }

// execute parses and runs; a mistake of the user's is exit 125, so that the
// command's own 2 stays its own.
func (c *commandLine) execute(args []string) int {
	root := c.root()
	c.args = args
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		c.voice.line("error", "31", err.Error())
		if h := usageHint(root, args, err); h != "" {
			c.voice.hint(h)
		}
		return exitFailed
	}
	return c.code
}

func usageHint(root *cobra.Command, args []string, err error) string {
	if strings.HasPrefix(err.Error(), "unknown command") && len(args) > 0 {
		if s := root.SuggestionsFor(args[0]); len(s) > 0 {
			return fmt.Sprintf("did you mean %q?", s[0])
		}
		return fmt.Sprintf("put the command to run behind --: hermes-wrap -- %s", strings.Join(args, " "))
	}
	return "hermes-wrap --help lists the commands and flags"
}

func (c *commandLine) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "hermes-wrap [flags] -- COMMAND [ARG…]",
		Short: "Run a command and everything it starts inside one sandbox",
		Long: "hermes-wrap runs a command and everything it starts inside one sandbox that one policy\n" +
			"describes: a private root, Landlock, a system call filter, limits, and an egress proxy.\n\n" +
			"Exit codes: the command's own; 124 time limit; 125 hermes-wrap failed;\n" +
			"126 not executable; 127 not found; 128+n ended by signal n.",
		SilenceUsage: true, SilenceErrors: true,
		SuggestionsMinimumDistance: 2,
		Args:                       c.afterDashes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			f := c.runFlags(cmd)
			switch {
			case f.tty && !f.detach:
				return errors.New("--tty is for --detach: a run in the foreground has the caller's terminal")
			case f.detach && !f.dryRun && !isBackgroundRole():
				c.code = c.detach(f)
			default:
				c.code = runCommand(c.voice, f, args)
			}
			return nil
		},
	}
	root.Flags().SetInterspersed(false)
	c.policyFlags(root)
	f := root.Flags()
	f.BoolVar(&c.flags.dryRun, "dry-run", false, "print the plan and start nothing")
	f.BoolVar(&c.flags.trace, "trace", false, "print each step of the launch with its time")
	f.BoolVar(&c.flags.json, "json", false, "with --dry-run or --detach: print JSON")
	f.BoolVarP(&c.flags.detach, "detach", "d", false, "run in the background; print the session's name once the command runs")
	f.BoolVarP(&c.flags.tty, "tty", "t", false, "with --detach: give the command a terminal, see hermes-wrap attach")
	f.StringVar(&c.flags.name, "name", "", "`NAME` of the session (default: made of the policy's name and the run)")
	f.BoolVar(&c.flags.noSupervise, "no-supervise", false, "run the command once: no restarts, and none of the policy's services")
	f.StringVar(&c.flags.commitOnSuccess, "commit-on-success", "", "commit copy-on-write trees after exit code 0; `HOW` strict (the default), except-exec or accept-exec")
	f.Lookup("commit-on-success").NoOptDefVal = commitStrict
	f.BoolVarP(&c.flags.quiet, "quiet", "q", false, "print no warnings (degradations are printed all the same)")
	f.StringVar(&c.flags.summary, "summary", "", "when the run has ended, write a summary as JSON to `FILE`")
	_ = root.MarkFlagFilename("summary")
	root.AddCommand(c.check(), c.explain(), c.why(), c.test(), c.reload(), c.doctor(), c.initCommand(), c.profiles(), c.audit(), c.schema(), c.version())
	root.AddCommand(c.sessionCommands()...)
	root.AddCommand(c.stateCommands()...)
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

// afterDashes accepts a command only behind "--": a typing error in a flag or
// a command of ours never starts anything.
func (c *commandLine) afterDashes(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && cmd.ArgsLenAtDash() < 0 {
		return nil
	}
	if cmd.ArgsLenAtDash() != 0 {
		return fmt.Errorf("unknown command %q", args[0])
	}
	if len(args) == 0 {
		return errors.New("no command behind --")
	}
	return nil
}

// policyFlags adds the flags that choose and overlay the policy.
func (c *commandLine) policyFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	l := &c.flags.layer
	f.StringVarP(&c.flags.policy, "policy", "p", "", "policy: a path, or a name in ~/.config/hermes-wrap, /etc/hermes-wrap or built in")
	f.StringArrayVar(&l.Read, "read", nil, "make `PATH` readable")
	f.StringArrayVar(&l.Write, "write", nil, "make `PATH` writable")
	f.StringArrayVar(&l.Exec, "exec", nil, "make `PATH` readable and executable")
	f.StringArrayVar(&l.Env, "env", nil, "pass `NAME` on, or set NAME=VALUE")
	f.StringArrayVar(&l.Publish, "publish", nil, "forward `[ADDR:]HOST:PORT` to a port inside")
	f.StringArrayVar(&l.AllowHost, "allow-host", nil, "allow connections to `HOST[:PORT]`")
	f.StringArrayVar(&l.Enable, "enable", nil, "switch the fragment `KIND/NAME` on (hermes-wrap profiles lists them)")
	_ = cmd.RegisterFlagCompletionFunc("policy", completePolicies)
	_ = cmd.RegisterFlagCompletionFunc("enable", completeFragments)
	for _, name := range []string{"read", "write", "exec"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

func (c *commandLine) runFlags(cmd *cobra.Command) runFlags {
	f := c.flags
	f.given = cmd.Flags().Changed("policy")
	return f
}

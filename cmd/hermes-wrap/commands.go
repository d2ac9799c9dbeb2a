package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// release is set by the build.
var release = "devel"

func version() string {
	if release != "devel" {
		return release
	}
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" {
		return bi.Main.Version
	}
	return release
}

// inspecting makes a command that looks at a policy as a run of argv would.
func (c *commandLine) inspecting(use, short string, args cobra.PositionalArgs, do func(p prepared, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	c.policyFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	command := cmd.Flags().String("for", "", "judge as for this `COMMAND` (default: sh)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f := c.runFlags(cmd)
		f.json = *asJSON
		c.flags.json = *asJSON
		p, err := c.prepareFor(f, *command)
		if err == nil {
			err = do(p, args)
		}
		if err != nil {
			c.code = c.voice.fail(err)
		}
		return nil
	}
	return cmd
}

func (c *commandLine) prepareFor(f runFlags, command string) (prepared, error) {
	who, err := whoCalls()
	if err != nil {
		return prepared{}, err
	}
	if command == "" {
		command = "sh"
	}
	return who.prepare(f.policyFlags, []string{command}, []string{sandbox.RuntimeBase(os.Getenv)})
}

func (c *commandLine) check() *cobra.Command {
	return c.inspecting("check", "Check a policy and report every mistake", cobra.NoArgs, func(p prepared, _ []string) error {
		for _, w := range p.policy.Warnings {
			c.voice.warn(w.Error())
		}
		for _, w := range p.plan.Warnings {
			c.voice.warn(w)
		}
		if c.flags.json {
			return printJSON(map[string]any{"name": p.policy.Name, "digest": p.policy.Digest, "sources": p.policy.Sources, "warnings": p.policy.Warnings})
		}
		printPlain("%s: ok (%d sources, digest %.12s)", p.policy.Name, len(p.policy.Sources), p.policy.Digest)
		return nil
	})
}

func (c *commandLine) explain() *cobra.Command {
	return c.inspecting("explain", "Print what a run would enforce, and which mechanism holds each rule", cobra.NoArgs, func(p prepared, _ []string) error {
		return explain(os.Stdout, p, c.flags.json)
	})
}

func (c *commandLine) why() *cobra.Command {
	cmd := c.inspecting("why KIND WHAT", "Say whether one thing is allowed, and why", cobra.ExactArgs(2), func(p prepared, args []string) error {
		a, err := ask(p, args[0], args[1])
		if err != nil {
			return err
		}
		if !a.Allowed {
			c.code = 1
		}
		if c.flags.json {
			return printJSON(a)
		}
		word := map[bool]string{true: "allowed", false: "denied"}[a.Allowed]
		printPlain("%s %s: %s: %s", args[0], args[1], word, a.Reason)
		if a.Rule != "" {
			printPlain("  rule %s (%s)", a.Rule, a.Pos)
		} else if a.Pos != (policy.Pos{}) {
			printPlain("  at %s", a.Pos)
		}
		if a.Hint != "" {
			printPlain("  hint: %s", a.Hint)
		}
		return nil
	})
	cmd.Long = "KIND is read, write, exec (a path), connect (HOST:PORT), url (\"METHOD URL\" or a URL), env or syscall (a name).\nExit code: 0 allowed, 1 denied, 125 the question could not be answered."
	cmd.ValidArgs = slices.Clone(questionKinds)
	return cmd
}

func (c *commandLine) test() *cobra.Command {
	return c.inspecting("test", "Run the policy's own assertions", cobra.NoArgs, func(p prepared, _ []string) error {
		failed := 0
		var problems policy.Problems
		for i, a := range p.policy.Assert {
			if problem := verdictOf(p, i, a); problem != nil {
				failed++
				problems = append(problems, *problem)
			}
		}
		if c.flags.json {
			if err := printJSON(map[string]any{"assertions": len(p.policy.Assert), "failed": problems}); err != nil {
				return err
			}
		} else {
			printPlain("%s: %d of %d assertions hold", p.policy.Name, len(p.policy.Assert)-failed, len(p.policy.Assert))
		}
		if failed > 0 {
			return problems
		}
		return nil
	})
}

func (c *commandLine) schema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of a policy", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := os.Stdout.Write(policy.Schema())
			return err
		},
	}
}

func (c *commandLine) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return printJSON(map[string]any{"version": version(), "go": runtime.Version(), "arch": runtime.GOARCH, "schema": policy.Version, "profiles": profiles.Names()})
		}
		fmt.Printf("hermes-wrap %s (%s, policy schema %d)\n", version(), runtime.Version(), policy.Version)
		return nil
	}
	return cmd
}

func completePolicies(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profiles.Names(), cobra.ShellCompDirectiveDefault
}

// printPlain prints a line in which nothing acts on the terminal, whoever chose
// its words.
func printPlain(format string, args ...any) {
	fmt.Println(audit.Escape(fmt.Sprintf(format, args...)))
}

func printJSON(v any) error {
	text, err := plainJSON(v)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// plainJSON escapes what the encoder leaves as it is and a terminal may not:
// controls beyond ASCII, bidi marks. They can only stand in strings, where the
// escapes mean the same.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) {
		out.WriteString(audit.Escape(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return out.Bytes(), nil
}

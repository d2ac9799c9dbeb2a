package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/registries"
)

// fragment gives the text of a fragment as it is on this machine: with what the
// environment and the configuration of package managers say.
func (c caller) fragment(name string) ([]byte, error) {
	text, ok := profiles.Fragment(name)
	if !ok {
		return nil, fmt.Errorf("BUG: there is no fragment %q", name)
	}
	if client, ok := strings.CutPrefix(name, "packages/"); ok {
		found, err := registries.Fragment(client, registries.World{Getenv: os.Getenv, Home: c.home, Workspace: c.cwd})
		if err != nil {
			return nil, lacking(name, err)
		}
		return append(text, found...), nil
	}
	filled, err := profiles.Fill(text, os.Getenv)
	if err != nil {
		return nil, policy.Problems{{
			Pos: policy.Pos{File: name}, What: err.Error(),
			Hint: "set it in the environment of hermes-wrap, or write what the fragment holds in your policy: hermes-wrap profiles show " + name,
		}}
	}
	return filled, nil
}

// lacking makes a mistake of the policy of what the configuration lacks.
func lacking(name string, err error) error {
	var t registries.Trouble
	if !errors.As(err, &t) {
		return err
	}
	return policy.Problems{{Pos: policy.Pos{File: name}, What: t.What, Hint: t.Hint}}
}

// builtIn is one line about a built-in.
type builtIn struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"` // profile or fragment
	Summary string   `json:"summary"`
	Needs   []string `json:"needs,omitempty"` // variables that must be set
}

func builtIns() (all []builtIn) {
	for _, name := range profiles.Names() {
		text, _ := profiles.Lookup(name)
		all = append(all, builtIn{name, "profile", profiles.Summary(text), nil})
	}
	for _, name := range profiles.Fragments() {
		text, _ := profiles.Fragment(name)
		all = append(all, builtIn{name, "fragment", profiles.Summary(text), profiles.Variables(text)})
	}
	return all
}

func (c *commandLine) profiles() *cobra.Command {
	cmd := &cobra.Command{
		Use: "profiles [NAME]", Short: "List the built-in profiles and fragments, or print one", Args: cobra.MaximumNArgs(1),
		Long: "Lists the profiles, for --policy NAME and extends: [builtin:NAME], and the fragments, for\n--enable KIND/NAME and enable: [KIND/NAME].",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return c.printBuiltIn(args[0])
		}
		if *asJSON {
			return printJSON(builtIns())
		}
		for _, b := range builtIns() {
			summary := b.Summary
			if len(b.Needs) > 0 {
				summary += " Needs " + strings.Join(b.Needs, ", ") + "."
			}
			fmt.Printf("%-24s %s\n", b.Name, summary)
		}
		return nil
	}
	cmd.AddCommand(c.showProfile())
	return cmd
}

func (c *commandLine) showProfile() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print a profile, or a fragment as it is on this machine", Args: cobra.ExactArgs(1),
		ValidArgs: slices.Concat(profiles.Names(), profiles.Fragments()),
		RunE:      func(_ *cobra.Command, args []string) error { return c.printBuiltIn(args[0]) },
	}
}

func (c *commandLine) printBuiltIn(name string) error {
	text, err := builtInText(name)
	if err != nil {
		c.code = c.voice.fail(err)
		return nil
	}
	_, err = os.Stdout.Write(text)
	return err
}

// builtInText gives a profile or a fragment. One that lacks something here is
// printed as it is stored, unless what it lacks is all that it would hold.
func builtInText(name string) ([]byte, error) {
	name = strings.TrimPrefix(name, "builtin:")
	if text, ok := profiles.Lookup(name); ok {
		return text, nil
	}
	text, ok := profiles.Fragment(name)
	if !ok {
		return nil, noBuiltIn(name)
	}
	who, err := whoCalls()
	if err != nil {
		return nil, err
	}
	here, err := who.fragment(name)
	if err != nil && len(profiles.Variables(text)) > 0 {
		return text, nil
	}
	return here, err
}

func noBuiltIn(name string) error {
	all := slices.Concat(profiles.Names(), profiles.Fragments())
	hint := "hermes-wrap profiles lists them"
	if near := policy.Nearest(name, all); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return policy.Problems{{Pos: policy.Pos{File: name}, What: "there is no such profile or fragment", Hint: hint}}
}

func completeFragments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profiles.Fragments(), cobra.ShellCompDirectiveNoFileComp
}

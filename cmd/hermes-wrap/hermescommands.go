package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/hermes"
	"github.com/hermes-wrap/hermes-wrap/profiles"
)

// hermesHome is HERMES_HOME, or where Hermes keeps its state without it.
func hermesHome(given string) (string, error) {
	if given == "" {
		given = os.Getenv("HERMES_HOME")
	}
	if given == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		given = filepath.Join(home, ".hermes")
	}
	return filepath.Abs(given)
}

// lookAtHermes reads the installation. Hermes itself is not started.
func lookAtHermes(given string) (hermes.Installation, error) {
	home, err := hermesHome(given)
	if err != nil {
		return hermes.Installation{}, err
	}
	program, err := exec.LookPath("hermes")
	if err != nil {
		program = ""
	}
	if info, err := os.Stat(home); err != nil && program == "" {
		return hermes.Installation{}, fmt.Errorf("there is no Hermes: no command \"hermes\" on PATH, and no directory %s; name the directory with --home", home)
	} else if err == nil && !info.IsDir() {
		return hermes.Installation{}, fmt.Errorf("%s is not a directory; name Hermes' own with --home", home)
	}
	return hermes.Look(home, program, os.Environ()), nil
}

// doctorHermes is "doctor hermes".
func (c *commandLine) doctorHermes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hermes", Short: "Name what endangers the installed Hermes, each with one remedy", Args: cobra.NoArgs,
		Long: "doctor hermes reads HERMES_HOME/.env and config.yaml, and changes nothing. No key is printed.\n" +
			"Exit code: 0 nothing was found, 1 something was, 125 there is no Hermes.",
	}
	home := cmd.Flags().String("home", "", "Hermes' state `DIRECTORY` (default: $HERMES_HOME, else ~/.hermes)")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	_ = cmd.MarkFlagDirname("home")
	cmd.RunE = func(*cobra.Command, []string) error {
		in, err := lookAtHermes(*home)
		if err != nil {
			c.code = c.voice.fail(err)
			return nil
		}
		found := in.Findings()
		if len(found) > 0 {
			c.code = 1
		}
		if *asJSON {
			return printJSON(map[string]any{"ok": len(found) == 0, "home": in.Home, "command": in.Command, "findings": found})
		}
		if len(found) == 0 {
			fmt.Printf("%s: nothing was found\n", in.Home)
			return nil
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, f := range found {
			fmt.Fprintf(w, "%s\t%s\n\t%s\n\tto do: %s\n", f.Level, audit.Escape(f.Where), audit.Escape(f.What), audit.Escape(f.Remedy))
		}
		return w.Flush()
	}
	return cmd
}

// initCommand is "init hermes".
func (c *commandLine) initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init hermes", Short: "Write a policy to begin with, after looking at what is installed", Args: cobra.ExactArgs(1), ValidArgs: []string{"hermes"},
		Long: "init hermes looks at what is configured in HERMES_HOME and writes a policy in which each line says why it is\n" +
			"there. It is checked before it is written, and a file that exists is kept unless --force is given.",
	}
	home := cmd.Flags().String("home", "", "Hermes' state `DIRECTORY` (default: $HERMES_HOME, else ~/.hermes)")
	output := cmd.Flags().StringP("output", "o", "", "where to write; - prints (default: hermes.yaml in ~/.config/hermes-wrap)")
	force := cmd.Flags().Bool("force", false, "replace a file that exists")
	_ = cmd.MarkFlagDirname("home")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if args[0] != "hermes" {
			return fmt.Errorf("unknown agent %q; for others extend a profile: hermes-wrap profiles lists them", args[0])
		}
		if err := c.initHermes(*home, *output, *force); err != nil {
			c.code = c.voice.fail(err)
		}
		return nil
	}
	return cmd
}

func (c *commandLine) initHermes(home, output string, force bool) error {
	in, err := lookAtHermes(home)
	if err != nil {
		return err
	}
	text := in.Starter(func(fragment string) bool {
		_, ok := profiles.Fragment(fragment)
		return ok
	})
	if output == "-" {
		_, err := os.Stdout.Write(text)
		return err
	}
	if output == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return err
		}
		output = filepath.Join(dir, "hermes-wrap", "hermes.yaml")
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o700); err != nil {
		return err
	}
	if err := c.writeChecked(output, text, force); err != nil {
		return err
	}
	fmt.Printf("%s\n", output)
	c.voice.note("next: hermes-wrap --policy " + output + " check, then hermes-wrap --policy " + output + " -- hermes")
	for _, f := range in.Findings() {
		c.voice.warn(fmt.Sprintf("%s: %s; %s", f.Where, f.What, f.Remedy))
	}
	return nil
}

// writeChecked writes a policy once it has been found to load.
func (c *commandLine) writeChecked(output string, text []byte, force bool) error {
	f, err := os.CreateTemp(filepath.Dir(output), ".new-*.yaml")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	who, err := whoCalls()
	if err != nil {
		return err
	}
	if _, err := who.load(policyFlags{policy: f.Name(), given: true}, []string{"hermes"}); err != nil {
		return fmt.Errorf("the policy for this installation does not load, and nothing was written (see it with --output -): %w", err)
	}
	if force {
		return os.Rename(f.Name(), output)
	}
	// link(2) replaces nothing.
	if err := os.Link(f.Name(), output); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already; look at it, and replace it with --force", output)
	} else if err != nil {
		return err
	}
	return nil
}

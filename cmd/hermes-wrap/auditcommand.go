package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func (c *commandLine) audit() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read the audit record, or check that nobody changed it", Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.auditVerify(), c.auditShow())
	return cmd
}

// reading makes a command that reads a record: the files named, or the policy's.
func (c *commandLine) reading(cmd *cobra.Command, do func(path string, files []string) error) *cobra.Command {
	f := cmd.Flags()
	f.StringVarP(&c.flags.policy, "policy", "p", "", "the policy whose record to read, where no file is named")
	_ = cmd.RegisterFlagCompletionFunc("policy", completePolicies)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		unhurried()
		path, files, err := c.recordFiles(cmd, args)
		if err == nil {
			err = do(path, files)
		}
		if err != nil {
			c.code = c.voice.fail(err)
		}
		return nil
	}
	return cmd
}

// recordFiles gives the record's files, oldest first. One file stands for those
// that were rotated away from it as well; several are taken as they are.
func (c *commandLine) recordFiles(cmd *cobra.Command, args []string) (path string, files []string, err error) {
	if len(args) > 1 {
		return args[len(args)-1], args, nil
	}
	if len(args) == 1 {
		path = args[0]
	} else {
		who, err := whoCalls()
		if err != nil {
			return "", nil, err
		}
		flags := c.runFlags(cmd).policyFlags
		p, err := who.load(flags, nil)
		switch {
		case err == nil:
			path = p.Audit.File.Abs
		case flags.given:
			return "", nil, err
		default:
			// Nothing runs here, so it does not matter that nothing could.
			path = filepath.Join(who.stateDir(), "audit.jsonl")
		}
	}
	if files, err = audit.Files(path); err == nil && len(files) == 0 {
		err = &os.PathError{Op: "read audit file", Path: path, Err: unix.ENOENT}
	}
	return path, files, err
}

func (c *commandLine) auditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [FILE…]", Short: "Check that no line of the record was changed, removed or added",
		Long: "verify checks the chain of each writer in each run with the key that lies beside the state of\n" +
			"hermes-wrap. A run whose last line is no end was killed, or its last lines were removed.\n\n" +
			"Runs are numbered, so that one that was removed is missed.\n\n" +
			"FILE is read with what was rotated away from it; several are read as they are, oldest first.\n" +
			"Exit code: 0 everything is there, 1 it is not, 125 it could not be read.",
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	open := cmd.Flags().Bool("open", false, "accept runs without an end")
	keyFile := cmd.Flags().String("key", "", "the `FILE` with the key (default: audit.key in the state directory)")
	return c.reading(cmd, func(path string, files []string) error {
		key, total, err := readAuditKey(*keyFile, path)
		if err != nil {
			return err
		}
		r, err := audit.Verify(files, key, total, runs(sandbox.RuntimeBase(os.Getenv)).live)
		if err != nil {
			return err
		}
		if !r.Intact() || (!r.Closed() && !*open) {
			c.code = 1
		}
		if *asJSON {
			return printJSON(struct {
				Intact bool `json:"intact"`
				Closed bool `json:"closed"`
				audit.Report
			}{r.Intact(), r.Closed(), r})
		}
		return printReport(os.Stdout, r)
	})
}

// readAuditKey reads the key, and how many runs the record had: with a key from
// elsewhere that is not known.
func readAuditKey(file, record string) (key audit.Key, total int64, err error) {
	if file != "" {
		key, err = audit.ReadKey(file)
		return key, 0, err
	}
	who, err := whoCalls()
	if err != nil {
		return key, 0, err
	}
	if record, err = filepath.Abs(record); err != nil {
		return key, 0, err
	}
	if total, err = audit.Runs(who.auditRuns(record)); err != nil {
		return key, 0, err
	}
	key, err = audit.ReadKey(who.auditKey())
	return key, total, err
}

// runs is the directory that holds one directory of each run.
type runs string

// live tells whether a run's launcher is alive: it holds a shared lock on the
// run's directory. Who sweeps what a killed launcher left holds it alone.
func (r runs) live(run string) bool {
	if run == "" || strings.ContainsAny(run, "/.") {
		return false
	}
	f, err := os.Open(filepath.Join(string(r), run))
	if err != nil {
		return false
	}
	defer f.Close()
	held := errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	return held && unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

func printReport(out io.Writer, r audit.Report) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tBEGAN\tPOLICY\tWRITER\tLINES\tEND")
	for _, run := range r.Runs {
		for _, c := range run.Chains {
			began := ""
			if !run.Began.IsZero() {
				began = run.Began.Local().Format(time.DateTime)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", audit.Escape(run.Run), began, audit.Escape(run.Policy), audit.Escape(c.Writer), c.Lines, endOf(run, c))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, run := range r.Runs {
		printProblems(out, run)
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(out, "BAD: no line is left of %d runs (numbers %d to %d)\n", g.To-g.From+1, g.From, g.To)
	}
	for _, p := range r.Torn {
		fmt.Fprintln(out, "note:", audit.Escape(p.String()))
	}
	for _, p := range r.Unsigned {
		fmt.Fprintln(out, "BAD:", audit.Escape(p.String()))
	}
	if n := r.UnsignedCount - len(r.Unsigned); n > 0 {
		fmt.Fprintf(out, "BAD: %d more lines without a code\n", n)
	}
	word := "intact"
	switch {
	case !r.Intact():
		word = "NOT INTACT"
	case !r.Closed():
		word = "intact as far as it goes; runs without an end were killed, or their last lines are missing"
	}
	_, err := fmt.Fprintf(out, "%d files, %d runs, %d lines: %s\n", len(r.Files), len(r.Runs), r.Lines, word)
	return err
}

func endOf(run *audit.RunReport, c *audit.ChainReport) string {
	end := "not closed"
	switch {
	case c.Closed:
		end = "closed"
	case c.Killed:
		end = "killed"
	case run.Running:
		end = "running"
	}
	if c.First > 1 {
		end += fmt.Sprintf(", begins at line %d", c.First)
	}
	if c.Dropped > 0 {
		end += fmt.Sprintf(", %d events left out", c.Dropped)
	}
	return end
}

func printProblems(out io.Writer, run *audit.RunReport) {
	for _, m := range run.Missing {
		fmt.Fprintf(out, "BAD: run %s: no line of the %s is left\n", audit.Escape(run.Run), audit.Escape(m))
	}
	for _, c := range run.Chains {
		for _, p := range c.Problems {
			fmt.Fprintf(out, "BAD: run %s, %s: %s\n", audit.Escape(run.Run), audit.Escape(c.Writer), audit.Escape(p.String()))
		}
		if c.More > 0 {
			fmt.Fprintf(out, "BAD: run %s, %s: %d more\n", audit.Escape(run.Run), audit.Escape(c.Writer), c.More)
		}
	}
}

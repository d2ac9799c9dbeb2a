package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/supervise"
)

func (c *commandLine) logs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [NAME]", Short: "Print what a run printed", Args: cobra.MaximumNArgs(1), ValidArgsFunction: c.completeAny,
		Long: "logs prints the log of a run in the background or under supervision, with what was rotated\n" +
			"away from it: a line is TIME SERVICE | TEXT. A run in the foreground has none, but every run has\n" +
			"--denials: what it was refused, from the audit record.\n\n" + sessionHelp,
	}
	var q logQuery
	f := cmd.Flags()
	f.BoolVarP(&q.follow, "follow", "f", false, "go on with what comes, until the run ends")
	f.IntVarP(&q.last, "last", "n", 0, "only the last `N` lines (0: all)")
	f.StringVar(&q.service, "service", "", "only what this `SERVICE` printed (the command is main)")
	f.BoolVar(&q.json, "json", false, "print JSON, one object a line")
	denials := f.Bool("denials", false, "print what the run was refused")
	_ = cmd.RegisterFlagCompletionFunc("service", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("last", cobra.NoFileCompletions)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		e, err := findSession(strings.Join(args, ""))
		switch {
		case err != nil:
		case *denials && q.service != "":
			err = errors.New("the audit record knows no services: leave --service out")
		case *denials:
			err = q.denials(e)
		default:
			err = q.print(e)
		}
		return c.did(err)
	}
	return cmd
}

// logQuery says what of a log is printed.
type logQuery struct {
	follow, json bool
	last         int
	service      string
}

// print prints a session's log.
func (q logQuery) print(e session.Entry) error {
	path := cmp.Or(e.Log, filepath.Join(e.Path, session.LogName))
	files, err := supervise.Files(path)
	if err != nil {
		return err
	}
	if len(files) == 0 && !(e.Live && q.follow) {
		err := fmt.Errorf("session %q keeps no log: it runs in the foreground, where its output went", e.Name)
		return &hintedError{err, "hermes-wrap logs --denials " + e.Name + " prints what it was refused"}
	}
	tail := audit.NewLines(path, files)
	defer func() { _ = tail.Close() }()
	out := bufio.NewWriter(os.Stdout)
	return q.through(e, out, func(last int) error { return q.lines(tail, out, last) })
}

// through prints what is there, and with --follow what comes until the run is over.
func (q logQuery) through(e session.Entry, out *bufio.Writer, step func(last int) error) error {
	for last := q.last; ; last = 0 {
		over := !q.follow || isGone(e) // asked first, so that its last lines are seen
		if err := errors.Join(step(last), out.Flush()); err != nil || over {
			return err
		}
		time.Sleep(followEvery)
	}
}

// lines prints the lines that there are, or the last of them.
func (q logQuery) lines(tail *audit.Tail, out io.Writer, last int) error {
	var kept []string
	for {
		line, err := tail.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		shown := q.render(string(line))
		switch {
		case shown == "":
		case last > 0:
			if kept = append(kept, shown); len(kept) > last {
				kept = kept[1:]
			}
		default:
			if _, err := io.WriteString(out, shown); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(out, strings.Join(kept, ""))
	return err
}

// logLine is one line of a log. What was not written through it, such as the
// trace of a crash, has a text alone.
type logLine struct {
	Time    string `json:"time,omitempty"`
	Service string `json:"service,omitempty"`
	Text    string `json:"text"`
	// Part tells that the line goes on in the next one of the service.
	Part bool `json:"part,omitempty"`
}

func (q logQuery) render(line string) string {
	l := logLine{Text: line}
	if at, name, text, part, ok := supervise.ParseEntry(line); ok {
		l = logLine{at, name, text, part}
	}
	switch {
	case q.service != "" && q.service != l.Service:
		return ""
	case q.json:
		b, err := json.Marshal(l)
		if err != nil {
			return ""
		}
		return string(b) + "\n"
	case isTerminal(os.Stdout):
		line = audit.Escape(line)
	}
	return line + "\n"
}

// denials prints what a run was refused.
func (q logQuery) denials(e session.Entry) error {
	files, err := audit.Files(e.Audit)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	v := auditView{out: out, filter: auditFilter{run: e.Run, verdict: string(audit.Deny)}, events: q.json, color: newVoice(os.Stdout).color}
	if isTerminal(os.Stdout) {
		v.width = int(sizeOf(os.Stdout).Col)
	}
	tail := audit.NewTail(e.Audit, files)
	defer func() { _ = tail.Close() }()
	return q.through(e, out, func(last int) error { return v.print(tail, last) })
}

// followToEnd prints the log of a run until it is over, and gives its exit code.
func (c *commandLine) followToEnd(e session.Entry) error {
	if err := (logQuery{follow: true}).print(e); err != nil {
		return err
	}
	now, err := session.At(e.Path)
	if err != nil || now.Run != e.Run || now.ExitCode == nil {
		return fmt.Errorf("session %q is gone, and did not say how it ended", e.Name)
	}
	c.code = *now.ExitCode
	return nil
}

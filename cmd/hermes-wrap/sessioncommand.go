package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/session"
)

// sessionCommands are those that ask about sessions or do something with them.
func (c *commandLine) sessionCommands() []*cobra.Command {
	return []*cobra.Command{c.ps(), c.stats(), c.stop(), c.pausing("pause"), c.pausing("resume"), c.rm(), c.exec(), c.attach(), c.logs()}
}

// detach starts a run in the background and prints its name.
func (c *commandLine) detach(f runFlags) int {
	name, code, err := detach(c.args)
	switch {
	case err != nil:
		return c.voice.fail(err)
	case name == "":
	case f.json:
		_ = printJSON(map[string]string{"name": name})
	default:
		fmt.Println(name)
	}
	return code
}

// did runs what a command does, and turns its error into the exit code.
func (c *commandLine) did(err error) error {
	if err != nil {
		c.code = c.voice.fail(err)
	}
	return nil
}

func (c *commandLine) ps() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps", Short: "List the runs that are live, or all sessions", Args: cobra.NoArgs,
		Long: "ps lists the runs of this user that are live; with --all also the sessions that ended. The\n" +
			"newest " + strconv.Itoa(session.Kept) + " ended ones are kept, and those that hold files of the agent's until hermes-wrap rm.",
	}
	all := cmd.Flags().BoolP("all", "a", false, "list ended sessions too")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		stateHome, err := stateHomeOfUs()
		if err != nil {
			return c.did(err)
		}
		found, err := session.List(stateHome)
		if err != nil {
			return c.did(err)
		}
		shown := []session.Entry{}
		for _, e := range found {
			if e.Live || *all {
				shown = append(shown, e)
			}
		}
		entries := withStatus(shown)
		askStatus(entries)
		if *asJSON {
			return printJSON(entries)
		}
		t := newTable("NAME", "STATUS", "AGE", "PID", "POLICY", "COMMAND", "WORKSPACE")
		for _, e := range entries {
			t.row(e.Name, e.words(), ageOf(e.Entry), pidOf(e.Entry), e.Policy, e.Command, e.Workspace)
		}
		return t.flush()
	}
	return cmd
}

// statusEntry adds to a session what follows from it, and what its run says.
type statusEntry struct {
	session.Entry
	Status string `json:"status"`
	// Now is what the run says of itself; nil when it ended or does not answer.
	Now *runStatus `json:"now,omitempty"`
}

// statusWait is how long a run may take to say something of itself.
const statusWait = 2 * time.Second

// askStatus asks the runs that are live, all at once.
func askStatus(entries []statusEntry) {
	var all sync.WaitGroup
	for i := range entries {
		if e := &entries[i]; e.Live {
			all.Go(func() {
				if a, err := askRun(e.Entry, controlRequest{Op: opStatus}, statusWait); err == nil {
					e.Now = a.Status
				}
			})
		}
	}
	all.Wait()
}

func withStatus(entries []session.Entry) []statusEntry {
	out := []statusEntry{}
	for _, e := range entries {
		out = append(out, statusEntry{Entry: e, Status: e.Status()})
	}
	return out
}

// words is the status for people.
func (e statusEntry) words() string {
	s := e.Status
	switch {
	case e.Now != nil && !e.Now.Ready:
		s = "starting"
	case e.Now != nil && e.Now.Attached > 0:
		s += ", attached"
	}
	if s == session.StatusEnded && e.ExitCode != nil {
		s += " (" + strconv.Itoa(*e.ExitCode) + ")"
	}
	if e.State {
		s += ", state"
	}
	return s
}

// ageOf is how long a run has lasted, or ago that it ended.
func ageOf(e session.Entry) string {
	switch {
	case e.Started.IsZero():
		return "-"
	case e.Ended.IsZero():
		return ago(time.Since(e.Started))
	}
	return ago(time.Since(e.Ended)) + " ago"
}

func pidOf(e session.Entry) string {
	if !e.Live {
		return "-"
	}
	return strconv.Itoa(e.Pid)
}

// table prints columns to standard output.
type table struct{ w *tabwriter.Writer }

func newTable(heads ...string) table {
	t := table{tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)}
	t.row(heads...)
	return t
}

// row adds a line; what could act on a terminal is escaped.
func (t table) row(cells ...string) {
	for i, s := range cells {
		if s == "" {
			s = "-"
		}
		if i > 0 {
			s = "\t" + audit.Escape(s)
		}
		_, _ = t.w.Write([]byte(s))
	}
	_, _ = t.w.Write([]byte("\n"))
}

func (t table) flush() error { return t.w.Flush() }

func (c *commandLine) rm() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME…", Short: "Remove sessions that ended", Args: cobra.MinimumNArgs(1), ValidArgsFunction: c.completeEnded,
		Long: "rm removes the record and the log of sessions that ended. One that holds files of the agent's\n" +
			"(a persistent state) is removed only with --state.",
	}
	state := cmd.Flags().Bool("state", false, "remove the agent's files in it too")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		stateHome, err := stateHomeOfUs()
		if err != nil {
			return c.did(err)
		}
		for _, name := range names {
			err := removeSession(stateHome, name, *state)
			if err != nil {
				c.code = c.voice.fail(err)
				continue
			}
			fmt.Println(name)
		}
		return nil
	}
	return cmd
}

func removeSession(stateHome, name string, withState bool) error {
	err := session.Remove(stateHome, name, withState)
	var busy *session.BusyError
	switch {
	case errors.As(err, &busy):
		return &hintedError{err, "end it first: hermes-wrap stop " + name}
	case errors.Is(err, session.ErrState):
		return &hintedError{err, "look at them first; hermes-wrap rm --state removes them too"}
	case errors.Is(err, os.ErrNotExist):
		return noSession(name)
	}
	return err
}

func (c *commandLine) completeEnded(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completeSessions(args, func(e session.Entry) bool { return !e.Live })
}

// controlWord is how long an answer to a simple request is waited for.
const controlWord = 30 * time.Second

func (c *commandLine) stop() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop NAME…", Short: "End runs, and wait until they are gone", ValidArgsFunction: c.completeLives,
		Long: "stop sends SIGTERM to everything inside, SIGKILL to what is left after the policy's grace\n" +
			"(process.stop_grace), and returns when the runs are gone.\n\n" + sessionHelp +
			"Exit code: 0 when all are gone.",
	}
	all := cmd.Flags().Bool("all", false, "end every run of this user")
	now := cmd.Flags().Bool("now", false, "send SIGKILL at once")
	grace := cmd.Flags().Duration("grace", 0, "how long they have after SIGTERM (default: what their policies say)")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		q := stopRequest{Now: *now}
		if cmd.Flags().Changed("grace") {
			q.Grace = grace
		}
		live, err := c.chosen(names, *all)
		if err != nil {
			return c.did(err)
		}
		return c.stopAll(live, q, *asJSON)
	}
	return cmd
}

// chosen gives the live sessions that names mean, or all of them. What is wrong
// with one name is said, and the others count.
func (c *commandLine) chosen(names []string, all bool) (live []session.Entry, err error) {
	switch {
	case all && len(names) > 0:
		return nil, errors.New("name runs, or ask for --all")
	case all:
		stateHome, err := stateHomeOfUs()
		if err != nil {
			return nil, err
		}
		found, err := session.List(stateHome)
		for _, e := range found {
			if e.Live {
				live = append(live, e)
			}
		}
		return live, err
	case len(names) == 0:
		names = []string{""}
	}
	for _, name := range names {
		e, err := liveSession([]string{name})
		if err != nil {
			c.code = c.voice.fail(err)
			continue
		}
		live = append(live, e)
	}
	return live, nil
}

// stopAll asks all first, so that their graces run side by side.
func (c *commandLine) stopAll(live []session.Entry, q stopRequest, asJSON bool) error {
	var asked []session.Entry
	for _, e := range live {
		a, err := askRun(e, controlRequest{Op: opStop, Stop: &q}, controlWord)
		if err == nil {
			err = a.err()
		}
		// A run that ends already is what was asked for.
		if err != nil && !endsSoon(e, err) {
			c.code = c.voice.fail(fmt.Errorf("stop %s: %w", e.Name, err))
			continue
		}
		asked = append(asked, e)
	}
	gone := []session.Entry{}
	late := time.After(goneNote)
	for _, e := range asked {
		for !isGone(e) {
			select {
			case <-late:
				c.voice.note("waiting for " + e.Name + " to end; --now ends it at once")
			case <-time.After(goneLook):
			}
		}
		if now, err := findSession(e.Name); err == nil && now.Run == e.Run {
			e = now
		}
		e.Live = false
		gone = append(gone, e)
		if !asJSON {
			fmt.Println(audit.Escape(e.Name) + ": stopped" + exitWords(e))
		}
	}
	if asJSON {
		return printJSON(withStatus(gone))
	}
	return nil
}

func exitWords(e session.Entry) string {
	if e.ExitCode == nil {
		return ""
	}
	return " (exit code " + strconv.Itoa(*e.ExitCode) + ")"
}

// endsSoon tells whether a run that could not be asked is one that is ending:
// its control socket goes first.
func endsSoon(e session.Entry, err error) bool {
	if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, io.EOF) {
		return isGone(e)
	}
	for end := time.Now().Add(controlWord); time.Now().Before(end); time.Sleep(goneLook) {
		if isGone(e) {
			return true
		}
	}
	return false
}

// goneLook is how often it is looked whether a run is gone.
const goneLook = 20 * time.Millisecond

// goneNote is when it is said that a run takes its time.
const goneNote = 2 * time.Second

// isGone tells whether a run is over: its launcher has let its name go.
func isGone(e session.Entry) bool {
	if e.Path == "" { // known by its directory alone
		_, err := os.Lstat(e.RunDir)
		return errors.Is(err, os.ErrNotExist)
	}
	now, err := session.At(e.Path)
	return err != nil || !now.Live || now.Run != e.Run
}

// pausing makes the commands pause and resume.
func (c *commandLine) pausing(word string) *cobra.Command {
	short, op := "Stop every process of runs, until resume", opPause
	if word == opResume {
		short, op = "Let runs go on that were paused", opResume
	}
	cmd := &cobra.Command{Use: word + " [NAME…]", Short: short, Long: short + ".\n\n" + sessionHelp, ValidArgsFunction: c.completeLives}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		live, err := c.chosen(names, false)
		if err != nil {
			return c.did(err)
		}
		done := []session.Entry{}
		for _, e := range live {
			a, err := askRun(e, controlRequest{Op: op}, controlWord)
			if err == nil {
				err = a.err()
			}
			if err != nil {
				c.code = c.voice.fail(fmt.Errorf("%s %s: %w", word, e.Name, err))
				continue
			}
			e.Paused = op == opPause
			done = append(done, e)
			if !*asJSON {
				fmt.Println(audit.Escape(e.Name) + ": " + e.Status())
			}
		}
		if *asJSON {
			return printJSON(withStatus(done))
		}
		return nil
	}
	return cmd
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func (c *commandLine) reload() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload [RUN]", Short: "Put a changed policy in force in a run that is under way",
		Long: "reload has a run load its policy again, with the flags it was started with. Network rules,\n" +
			"credentials, inference and budgets change at once; everything else is fixed at launch, and a\n" +
			"change there is refused. On any error the old policy stays in force. SIGHUP does the same.\n\n" +
			"RUN is the run's identifier or the beginning of it; it can be left out when one run is live.\n" +
			"Root reaches the run of another user by the path of its directory.\n" +
			"Exit code: 0 the new policy is in force, 125 the old one stays.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeRuns,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		run, err := findRun(sandbox.RuntimeBase(os.Getenv), strings.Join(args, ""))
		if err != nil {
			c.code = c.voice.fail(err)
			return nil
		}
		a, err := askRun(run, controlRequest{Op: opReload}, reloadWait)
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

// How long an answer is waited for. A reload may run a credential's command.
const (
	reloadWait = 2 * time.Minute
	statusWait = 2 * time.Second
)

// liveRun is a run that answers.
type liveRun struct {
	id, dir string
	status  runStatus
}

// liveRuns asks every run of this user. What does not answer is not live.
func liveRuns(base string) (runs []liveRun) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		a, err := askRun(dir, controlRequest{Op: opStatus}, statusWait)
		if err == nil && a.Status != nil {
			runs = append(runs, liveRun{e.Name(), dir, *a.Status})
		}
	}
	return runs
}

// findRun gives the directory of a run. A name with a slash is one.
func findRun(base, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var found []liveRun
	for _, r := range liveRuns(base) {
		if strings.HasPrefix(r.id, name) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].dir, nil
	case len(found) > 1:
		return "", &choiceError{found}
	case name != "":
		return "", fmt.Errorf("no run %q of yours is live", name)
	}
	return "", errors.New("no run of yours is live")
}

// choiceError lists the runs that a command could mean.
type choiceError struct{ runs []liveRun }

func (e *choiceError) Error() string {
	s := "several runs are live; name one:"
	for _, r := range e.runs {
		s += fmt.Sprintf("\n%s  %s, policy %s, pid %d, since %s", r.id, r.status.Command, r.status.Policy, r.status.Pid, r.status.Started.Local().Format(time.DateTime))
	}
	return s
}

func completeRuns(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, r := range liveRuns(sandbox.RuntimeBase(os.Getenv)) {
		names = append(names, r.id+"\t"+r.status.Command+", policy "+r.status.Policy)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// askRun sends one request to the run in a directory and waits for its answer.
func askRun(dir string, q controlRequest, wait time.Duration) (a controlAnswer, err error) {
	at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return a, err
	}
	defer at.Close()
	conn, err := net.DialTimeout("unixpacket", fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), controlName), wait)
	if err != nil {
		return a, fmt.Errorf("reach the run in %q: %w", dir, errors.Unwrap(err))
	}
	defer conn.Close()
	b, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return a, err
	}
	if _, err := conn.Write(b); err != nil {
		return a, fmt.Errorf("ask the run in %q: %w", dir, err)
	}
	b = make([]byte, controlBytes)
	n, err := conn.Read(b)
	if err != nil {
		return a, fmt.Errorf("the run in %q gave no answer: %w", dir, err)
	}
	if err := json.Unmarshal(b[:n], &a); err != nil {
		return a, fmt.Errorf("the run in %q gave an answer that cannot be read: %w", dir, err)
	}
	return a, nil
}

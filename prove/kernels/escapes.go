package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// escapeCases are cases of the escape table that are about what a kernel does:
// system calls, other processes, files, the network without a door. An emulated
// case takes a quarter of a minute, so there are few; and a sweep of all calls as
// root (A42) has a twin that asks the kernel for more memory than a guest has. What
// the proxy judges is the same on every kernel.
var escapeCases = map[string]string{
	protocol.User: "A42 B13 C19",
	protocol.Root: "B31",
}

// escapeSeconds bounds a run of the table, of the guest's own time.
const escapeSeconds = 900

// escapes runs the table as root, which starts the cases as one of the two. It
// is put into the user's group, where both have limits.
func escapes(user string) want {
	// Where there is nobody else, a short run does not thin out what root tries.
	ordinary := map[string]string{protocol.User: "tester", protocol.Root: "''"}[user]
	return want{
		Name: "escapes " + user, Seconds: escapeSeconds, judge: judgeEscapes,
		Script: "echo $$ >" + protocol.UserGroup + " && cd /in/escapes && exec ./escapes --bin /in/hermes-wrap --table table --lean --short --workers 1 " +
			"--user " + ordinary + " --where strict --account " + user + ` --seed "$(cat seed)" --case ` + strings.ReplaceAll(escapeCases[user], " ", ","),
	}
}

// escapes makes the directory of the escape table: the program that runs it, and
// the table.
func (b builder) escapes(ctx context.Context) error {
	dir := filepath.Join(b.dir, "escapes")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "table"), os.DirFS(filepath.Join(b.o.Root, "testdata", "escapes"))); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "seed"), []byte(strconv.FormatInt(b.o.Seed, 10)), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "netgo osusergo", "-ldflags", "-s -w", "-o", filepath.Join(dir, "escapes"), "./prove/escape/escapes")
	cmd.Dir, cmd.Env = b.o.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the escape table's program: %w: %s", err, out)
	}
	return nil
}

var (
	escapeLine = regexp.MustCompile(`^([A-Z][0-9]+[a-z]?) +(?:user|root) +\S+ +(contained|escaped|failed|not exercised|dropped)\b *(?:\[".*?"\] )?(.*)$`)
	escapesEnd = regexp.MustCompile(`(?m)^seed \d+: (\d+) contained, (\d+) escaped, (\d+) failed, (\d+) not exercised`)
)

// judgeEscapes holds the results of the table to what they are held to on the
// machine itself: whatever is not contained needs a reason of the kernel's or of
// the guest's.
func judgeEscapes(a protocol.Answer) (v verdict) {
	end := escapesEnd.FindStringSubmatch(a.Stdout)
	if end == nil {
		v.Short = "broken"
		v.wrong("exit %d: %s%s", a.Exit, tail([]byte(a.Stdout)), a.Stderr)
		return v
	}
	counts := map[string]int{}
	var cases []string
	for line := range strings.Lines(a.Stdout) {
		m := escapeLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		counts[m[2]]++
		if !slices.Contains(cases, m[1]) {
			cases = append(cases, m[1])
		}
		reason := m[3]
		switch {
		case m[2] == "contained", m[2] == "dropped":
		case m[2] == "not exercised" && (strings.HasPrefix(reason, "kernel: ") || strings.HasPrefix(reason, "machine: ")):
			v.Missing = append(v.Missing, report.Missing{ID: m[1], What: "this case of the escape table", Reason: reason})
		default:
			v.wrong("%s", strings.TrimSpace(line))
		}
	}
	v.Short = "contained"
	v.Row = []string{strings.Join(cases, " ")}
	for _, status := range []string{"contained", "escaped", "failed", "not exercised"} {
		v.Row = append(v.Row, strconv.Itoa(counts[status]))
	}
	for i, status := range []string{"contained", "escaped", "failed", "not exercised"} {
		if end[i+1] != strconv.Itoa(counts[status]) {
			v.wrong("the lines of the table are not its sum: %d %s, and %s", counts[status], status, end[0])
		}
	}
	if counts["contained"] == 0 {
		v.wrong("nothing was contained: %s", tail([]byte(a.Stdout)))
	}
	if a.Exit != 0 && len(v.Wrong) == 0 {
		v.wrong("exit %d: %s", a.Exit, a.Stderr)
	}
	return v
}

// escapes is the table of what the escape table came to.
func (all runs) escapes() report.Table {
	t := report.Table{Title: "Cases of the escape table", Columns: []string{"kernel", "as", "cases", "runs contained", "escaped", "failed", "not exercised"}}
	for _, r := range all {
		for _, user := range []string{protocol.User, protocol.Root} {
			if v := r.judged["table/"+escapes(user).Name+"/"+protocol.Root]; v.Row != nil {
				t.Rows = append(t.Rows, append([]string{r.kernel.version(), user}, v.Row...))
			}
		}
	}
	return t
}

// refusing are the kernels on which nothing starts: the table cannot be run
// there.
func (all runs) refusing() (missing []report.Missing) {
	for _, r := range all {
		v := r.judged["plain/launch strict/"+protocol.Root]
		if r.boot.Name == boots[0].Name && v.Short == "refused" {
			reason, _, _ := strings.Cut(strings.TrimPrefix(v.Said, fmt.Sprintf("exit %d\n", exitRefused)), "\n")
			missing = append(missing, report.Missing{
				ID: "escapes on " + r.kernel.version(), What: "the cases of the escape table",
				Reason: "kernel: every launch is refused: " + strings.TrimPrefix(reason, "hermes-wrap: error: "),
			})
		}
	}
	return missing
}

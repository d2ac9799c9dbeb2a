// Package everyday runs what people do all day, bare and inside: nobody should
// notice the sandbox when nothing is wrong. The uses are in
// testdata/everyday/uses.txt, the policy beside them.
package everyday

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

const (
	data = "../../testdata/everyday"
	// limit is for a use that hangs; on a busy machine a Go build without a
	// cache takes a minute.
	limit = 3 * time.Minute
)

// prelude stands before each script. Its settings keep the uses apart and
// without a network; none is about the sandbox.
const prelude = `
export GIT_CONFIG_NOSYSTEM=1 GIT_EDITOR=true GIT_TERMINAL_PROMPT=0
export GOTOOLCHAIN=local GOTELEMETRY=off GOPROXY=off GOFLAGS=-mod=mod CGO_ENABLED=0
export npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
export npm_config_cache=$PWD/.npm GOCACHE=$PWD/.gocache GOPATH=$PWD/.gopath
`

// passed are variables whose names the policy allows.
var passed = []string{"EVERYDAY_VALUE=kept: ü $x", "EVERYDAY_BYTES=\xfe\xff\n"}

func TestEveryday(t *testing.T) {
	host := harness.NewHost(t)
	host.RequireWrapper(t)
	uses := readUses(t, filepath.Join(data, "uses.txt"))
	policy, err := filepath.Abs(filepath.Join(data, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	b := board{policy: host.CopyPolicy(t, policy)}
	// Group waits for the parallel subtests before the summary.
	t.Run("uses", func(t *testing.T) {
		for _, u := range uses {
			t.Run(u.name, func(t *testing.T) {
				t.Parallel()
				b.run(t, host, u)
			})
		}
	})
	t.Log(b.summary())
	if least := 70; os.Getenv("HERMES_MUST_WORK") == "1" && b.count("works") < least {
		t.Errorf("got %d uses that work, want at least %d", b.count("works"), least)
	}
}

// run does one use bare, where it must succeed, and then inside.
func (b *board) run(t *testing.T, host harness.Host, u use) {
	line := line{name: u.name, verdict: "skipped"}
	defer func() {
		if t.Failed() {
			line.verdict = "fails"
		}
		b.add(line)
	}()
	host.RequireCommands(t, u.needs)
	bare := attempt(t, host, u, "")
	line.bare = bare.Took
	if why := u.misses(bare); why != "" {
		t.Fatalf("bare: %s\n%s", why, bare.Stderr)
	}
	inside := attempt(t, host, u, b.policy)
	line.inside = inside.Took
	why := u.misses(inside)
	if why == "" && !u.varies && u.terminal == (harness.Size{}) && inside.Stdout != bare.Stdout {
		why = fmt.Sprintf("got output %q, bare %q", inside.Stdout, bare.Stdout)
	}
	switch {
	case u.wontWork != "" && why == "":
		t.Errorf("inside: works, but should be refused: %s", u.wontWork)
	case u.wontWork != "":
		line.verdict = "refused: " + u.wontWork
	case why != "":
		t.Errorf("inside: %s\n%s", why, inside.Stderr)
	default:
		line.verdict = "works"
	}
}

// outcome is a result and what went wrong with the dialogue.
type outcome struct {
	harness.Result
	err error
}

// attempt runs a use in an empty directory; policy "" is bare.
func attempt(t *testing.T, host harness.Host, u use, policy string) outcome {
	t.Helper()
	mode := "bare"
	if policy != "" {
		mode = "inside"
	}
	dir := host.Dir(t, u.name+"."+mode)
	if setup, err := host.Run(harness.Command{Argv: shell(u.setup), Dir: dir, Limit: limit}); err != nil || setup.Exit != 0 {
		t.Fatalf("setup: exit %d, %v\n%s", setup.Exit, err, setup.Stderr)
	}
	argv := append(shell(u.script), u.args...)
	if policy != "" {
		argv = host.Wrapped(policy, dir, argv)
	}
	c := harness.Command{Argv: argv, Dir: dir, Stdin: u.stdin, Limit: limit, Env: passed}
	var o outcome
	if u.terminal != (harness.Size{}) {
		o.Result, o.err = host.Dialogue(c, u.terminal, u.dialogue)
	} else {
		o.Result, o.err = host.Run(c)
	}
	o.Stdout = strings.ReplaceAll(o.Stdout, dir, "$DIR")
	return o
}

func shell(script string) []string {
	return []string{"bash", "-euo", "pipefail", "-c", prelude + script, "use"}
}

// misses says what is not as it should be, or "".
func (u use) misses(got outcome) string {
	out := strings.TrimSpace(got.Stdout)
	switch {
	case got.err != nil:
		return got.err.Error()
	case got.Exit != u.exit:
		return fmt.Sprintf("got exit %d, want %d; output %.2000q", got.Exit, u.exit, out)
	case u.want != nil && !u.want.MatchString(out):
		return fmt.Sprintf("got %.2000q, want %q", out, u.want)
	}
	return ""
}

// line is one row of the summary.
type line struct {
	name         string
	bare, inside time.Duration
	verdict      string
}

// board collects what the uses came to.
type board struct {
	policy string

	mu    sync.Mutex
	lines []line
}

func (b *board) add(l line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
}

func (b *board) count(verdict string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		if l.verdict == verdict {
			n++
		}
	}
	return n
}

func (b *board) summary() string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n%-28s %9s %9s  %s\n", "use", "bare", "inside", "verdict")
	b.mu.Lock()
	for _, l := range b.lines {
		fmt.Fprintf(&s, "%-28s %8.2fs %8.2fs  %s\n", l.name, l.bare.Seconds(), l.inside.Seconds(), l.verdict)
	}
	total := len(b.lines)
	b.mu.Unlock()
	fmt.Fprintf(&s, "%d of %d work", b.count("works"), total)
	return s.String()
}

// Package reload changes the policy of runs that are under way, with the real
// binary.
package reload

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

const policyText = `version: 1
name: p
workspace: {path: ., access: write}
network:
  rules:
    - {name: a, host: a.example.org, access: read-only}
`

// trapping writes "hup" into the workspace when it gets SIGHUP, and ends when
// the file "over" comes.
const trapping = `trap 'echo hup > hup; exit 3' HUP; echo st''arted; touch started; while [ ! -e over ]; do sleep 0.05; done; echo ov''er`

// SIGHUP from kill(1) reloads, also at a terminal; the command does not get it.
// When the terminal hangs up, the command gets it as it would without us.
func TestHangupAndReloadAreToldApart(t *testing.T) {
	kill := `set -m; "$BIN" -q -p "$POLICY" -- sh -c "$INSIDE" & p=$!
until [ -e started ]; do sleep 0.05; done
kill -HUP $p
until "$BIN" audit show --events --kind reload 2>/dev/null | grep -q allow; do sleep 0.05; done
touch over; wait $p; echo code $?`
	cases := []struct {
		name    string
		argv    func(w wraptest.World, policy string) []string
		actions []harness.Action
		hup     bool
		reloads int
		shown   string
	}{
		{
			"kill at a terminal", func(wraptest.World, string) []string { return []string{"bash", "-c", kill} },
			[]harness.Action{{Expect: regexp.MustCompile(`code \d+`)}},
			false, 1, "code 0",
		},
		{
			"the terminal hangs up", func(w wraptest.World, policy string) []string {
				return []string{w.Bin, "-q", "-p", policy, "--", "sh", "-c", trapping}
			},
			[]harness.Action{{Expect: regexp.MustCompile("started")}, {Hangup: true}},
			true, 0, "",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := wraptest.New(t)
			dir := w.Dir(t, "ws")
			policy := w.PolicyFile(t, "p", policyText)
			r, err := w.Dialogue(harness.Command{
				Argv: c.argv(w, policy), Dir: dir, Limit: time.Minute,
				Env: []string{"XDG_RUNTIME_DIR=" + w.Runtime, "BIN=" + w.Bin, "POLICY=" + policy, "INSIDE=" + trapping},
			}, harness.Size{Rows: 24, Cols: 80}, c.actions)
			if err != nil {
				t.Fatalf("%v\n%s", err, r.Stdout)
			}
			if _, err := os.Stat(filepath.Join(dir, "hup")); (err == nil) != c.hup {
				t.Errorf("the command got SIGHUP: got %v, want %v", err == nil, c.hup)
			}
			if !strings.Contains(r.Stdout, c.shown) {
				t.Errorf("terminal: got %q, want %q in it", r.Stdout, c.shown)
			}
			shown := wraptest.Run(t, w.Bare(dir, w.Bin, "audit", "show", "--events", "--kind", "reload"), time.Minute)
			if got := strings.Count(shown.Out, "\n"); got != c.reloads {
				t.Errorf("reloads on record: got %d, want %d\n%s", got, c.reloads, shown.Out)
			}
		})
	}
}

package reload

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestReplacedPolicyIsNotTaken: whoever inside opened a policy file in the moment
// in which a program outside replaced it could write the policy of the reload.
func TestReplacedPolicyIsNotTaken(t *testing.T) {
	const (
		inPlace = `sed s/b.example.org/c.example.org/ conf/p.yaml > edited; cat edited > conf/p.yaml; rm edited`
		byName  = `sed s/b.example.org/c.example.org/ conf/p.yaml > conf/.new; mv conf/.new conf/p.yaml`
		project = `printf 'version: 1\nnetwork:\n  deny:\n    - {host: d.example.org}\n' > .hermes-wrap.yaml`
	)
	for name, c := range map[string]struct{ policy, edit, want string }{
		"control: edited in place":              {"conf/p.yaml", inPlace, "network.rules"},
		"control: replaced outside of the tree": {"../p.yaml", strings.ReplaceAll(byName, "conf/", "../"), "network.rules"},
		"replaced":                              {"conf/p.yaml", byName, "was replaced"},
		"replaced twice":                        {"conf/p.yaml", byName + "; " + strings.ReplaceAll(byName, "s/b.", "s/a."), "was replaced"},
		"a project's file that comes":           {"../p.yaml", project, "can be written inside"},
	} {
		t.Run(name, func(t *testing.T) {
			w := wraptest.New(t)
			dir := w.Dir(t, "ws")
			w.Write(t, filepath.Join(dir, c.policy), policyText+"    - {name: b, host: b.example.org, access: read-only}\n")
			w.Write(t, filepath.Join(dir, "edit"), c.edit)
			script := `"$BIN" -q -p "$POLICY" -- sh -c 'touch started; while [ ! -e over ]; do sleep 0.05; done' & p=$!
until [ -e started ]; do sleep 0.05; done
sh edit; "$BIN" reload 2>&1; touch over; wait $p`
			cmd := w.Bare(dir, "env", "BIN="+w.Bin, "POLICY="+c.policy, "bash", "-c", script)
			run := wraptest.Run(t, cmd, time.Minute)
			if !strings.Contains(run.Out, c.want) {
				t.Errorf("got %q, want %q in it\n%s", run.Out, c.want, run.Err)
			}
		})
	}
}

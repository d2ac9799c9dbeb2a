package weak

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// asking asks each control socket below a directory for the run's status, and
// says what came of it.
const asking = `import glob, socket, sys
found = glob.glob(sys.argv[1] + "/*/control") or [sys.argv[1] + "/" + sys.argv[2] + "/control"]
for path in found:
    try:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(5)
        s.connect(path)
        s.send(b'{"op":"status"}')
        print("answer" if b'"pid"' in s.recv(65536) else "none")
    except OSError as e:
        print("error", e)
`

// The command has the launcher's user and, without namespaces, the host's files.
// It cannot control its own run all the same.
func TestWeakControlSocketIsOutOfReach(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"python3"})
	policy := b.PolicyFile(t, "weak", base+files)
	b.Write(t, filepath.Join(b.work, "ask.py"), asking)
	cmd := b.wrap(policy, "sh", "-c", `touch started; while [ ! -e id ]; do sleep 0.05; done; python3 ask.py "`+b.RunBase()+`" "$(cat id)" > inside; touch asked; while [ ! -e over ]; do sleep 0.05; done`)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await := func(name string) {
		t.Helper()
		for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(b.work, name)); err == nil {
				return
			}
			if time.Now().After(end) {
				_ = cmd.Process.Kill()
				t.Fatalf("no file %q after %v: %s", name, limit, errs.String())
			}
		}
	}
	await("started")
	outside := wraptest.Run(t, b.Bare(b.work, "python3", "ask.py", b.RunBase(), ""), limit)
	if outside.Out != "answer\n" {
		t.Errorf("outside: got %q %q, want an answer", outside.Out, outside.Err)
	}
	runs, err := os.ReadDir(b.RunBase())
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs: got %v, %v, want one", runs, err)
	}
	b.Write(t, filepath.Join(b.work, "id"), runs[0].Name())
	await("asked")
	later := wraptest.Run(t, b.Bare(b.work, b.Bin, "exec", "--", "python3", "ask.py", b.RunBase(), runs[0].Name()), limit)
	if later.Exit != 0 || !strings.HasPrefix(later.Out, "error") {
		t.Errorf("inside, by exec: got %d %q %q, want an error", later.Exit, later.Out, later.Err)
	}
	b.Write(t, filepath.Join(b.work, "over"), "")
	if err := cmd.Wait(); err != nil {
		t.Errorf("end: %v: %s", err, errs.String())
	}
	inside, err := os.ReadFile(filepath.Join(b.work, "inside"))
	if err != nil || !strings.HasPrefix(string(inside), "error") {
		t.Errorf("inside: got %q, %v, want an error", inside, err)
	}
	t.Logf("inside: %s%s", inside, errs.String())
}

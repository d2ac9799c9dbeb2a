package view

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// appender answers each line on its input with the outcome of an attack.
const appender = `echo ready; while read -r line; do
	if (echo '[evil]' >> .git/config) 2>/dev/null; then echo wrote; else echo denied; fi
done # replaced-entry-test`

// TestReplacedByTheHost is corpus case B11: a host program replaces a protected
// file by rename, which takes the cover away in every mount namespace.
func TestReplacedByTheHost(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"git", "bash"})
	dir := w.Dir(t, "replaced")
	if out, err := w.Bare(dir, "git", "init", "--quiet", ".").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	if got := attacksAfterRename(t, w, dir, w.Bare(dir, "bash", "-c", appender), false); got != "wrote" {
		t.Fatalf("outside: got %q, want wrote", got)
	}
	if got := attacksAfterRename(t, w, dir, w.Wrap(dir, "strict", "bash", "-c", appender), true); got != "denied" {
		t.Fatalf("inside: got %q, want denied", got)
	}
	b, err := os.ReadFile(filepath.Join(dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("[evil]")); n != 1 {
		t.Errorf("the file was appended to %d times, want once (outside)", n)
	}
}

// attacksAfterRename lets the host replace the file five times and gives the
// outcome of the attack after each, when it is the same every time.
func attacksAfterRename(t *testing.T, w wraptest.World, dir string, cmd *exec.Cmd, inside bool) string {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("end: %v", err)
		}
	}()
	answers := bufio.NewScanner(out)
	next := func() string {
		if !answers.Scan() {
			t.Fatalf("the command ended early: %v", answers.Err())
		}
		return answers.Text()
	}
	if got := next(); got != "ready" {
		t.Fatalf("got %q, want ready", got)
	}
	outcome := ""
	for i := range 5 {
		if b, err := w.Bare(dir, "git", "config", "user.name", fmt.Sprint(i)).CombinedOutput(); err != nil {
			t.Fatalf("git config: %v: %s", err, b)
		}
		if inside {
			awaitCover(t, filepath.Join(dir, ".git/config"))
		}
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		got := next()
		if outcome != "" && got != outcome {
			t.Fatalf("attack %d: got %q after %q", i, got, outcome)
		}
		outcome = got
		if !inside {
			return outcome
		}
	}
	return outcome
}

// awaitCover waits until the file that is there now is covered inside: its
// mount shows in the mount table of the wrapped shell.
func awaitCover(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if found, _ := covered(path); found {
			return
		}
		time.Sleep(time.Millisecond)
	}
	_, seen := covered(path)
	t.Fatalf("the cover did not come back; the wrapped shells and their mounts: %q", seen)
}

// covered tells whether a wrapped shell has a mount at the path, and what was
// looked at.
func covered(path string) (found bool, seen []string) {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false, nil
	}
	for _, p := range procs {
		line, err := os.ReadFile(p)
		if err != nil || !bytes.HasPrefix(line, []byte("bash\x00-c\x00")) || !bytes.Contains(line, []byte("replaced-entry-test")) {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(p), "mountinfo"))
		if err == nil && strings.Contains(string(mounts), " "+path+" ") {
			return true, nil
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "stat"))
		seen = append(seen, fmt.Sprintf("%s%v", status, err))
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, filepath.Dir(path)) {
				seen = append(seen, line)
			}
		}
	}
	return false, seen
}

package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestInterruptedCommand: a launch that is ended while a command of a credential
// waits leaves a record that is closed.
func TestInterruptedCommand(t *testing.T) {
	b := newBench(t)
	started := filepath.Join(b.out, "started")
	policy := b.policy(t, "waits", strings.Replace(fromEnv, "{env: GITHUB_TOKEN}", `{command: [sh, -c, "echo > `+started+`; exec sleep 60"]}`, 1), "")
	cmd := b.Wrap(b.dir, policy, "true")
	ended := make(chan wraptest.Ended, 1)
	go func() { ended <- wraptest.Run(t, cmd, time.Minute) }()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if _, err := os.Stat(started); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the command was not started")
		}
		select {
		case got := <-ended:
			t.Fatalf("got exit %d before the command waited: %s", got.Exit, got.Err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	if got.Exit != 125 || !strings.Contains(got.Err, "a signal ended the launch while secrets were read") {
		t.Errorf("got exit %d and %q, want 125 and the reason", got.Exit, got.Err)
	}
	check := wraptest.Run(t, b.Bare(b.dir, b.Bin, "audit", "verify"), time.Minute)
	if check.Exit != 0 {
		t.Errorf("audit verify: got exit %d, want 0\n%s%s", check.Exit, check.Out, check.Err)
	}
}

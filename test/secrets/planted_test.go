package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlantedCommand: a program that the agent puts where the command of a
// credential is looked up does not run outside when the secret is read again.
func TestPlantedCommand(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(b.out, "bin", "get-token")
	b.Write(t, outside, "#!/bin/sh\necho "+secret+"\necho read >> "+filepath.Join(b.out, "read")+"\n")
	if err := os.Chmod(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	escaped := filepath.Join(b.out, "escaped")
	policy := b.policy(t, "planted", strings.Replace(fromEnv, "{env: GITHUB_TOKEN}", "{command: [get-token]}\n    refresh: 1s", 1), "")
	text, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(t, policy, string(text)+"workspace: {path: ., access: write}\n")
	b.Write(t, filepath.Join(b.dir, "bin", "keep"), "")
	run := b.inside(t, policy, `printf '#!/bin/sh\ntouch `+escaped+`\necho ghp_planted-planted-planted\n' > bin/get-token
chmod 755 bin/get-token; bin/get-token; sleep 4`, "PATH="+filepath.Join(b.dir, "bin")+":"+filepath.Dir(outside)+":"+b.Path)
	if run.Exit != 0 {
		t.Fatalf("got exit %d, want 0\n%s", run.Exit, run.Err)
	}
	if got, err := os.ReadFile(filepath.Join(b.out, "read")); err != nil || strings.Count(string(got), "read") < 2 {
		t.Errorf("got %q, want the secret read at least twice", got)
	}
	if _, err := os.Stat(escaped); err == nil {
		t.Error("the planted program ran outside")
	}
}

package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestDemo: "make demo" tells what it did and ends with a verdict that follows
// the facts.
func TestDemo(t *testing.T) {
	host, dir := stage(t)
	script := filepath.Join(dir, "demo.sh")
	host.Write(t, script, text(t, filepath.Join(data, "demo.sh")))
	run := func(t *testing.T, env []string, args ...string) harness.Result {
		t.Helper()
		r, err := host.Run(harness.Command{Argv: append([]string{"bash", script}, args...), Dir: dir, Env: env, Limit: limit})
		if err != nil {
			t.Fatalf("run the demo: %v\n%s%s", err, r.Stdout, r.Stderr)
		}
		return r
	}
	holds := func(t *testing.T, r harness.Result, exit int, want ...string) {
		t.Helper()
		if r.Exit != exit {
			t.Errorf("got exit %d, want %d\n%s%s", r.Exit, exit, r.Stdout, r.Stderr)
		}
		for _, w := range want {
			if !strings.Contains(r.Stdout+r.Stderr, w) {
				t.Errorf("got no %q, want it\n%s%s", w, r.Stdout, r.Stderr)
			}
		}
	}
	bin := os.Getenv("HERMES_WRAP_BIN")
	t.Run("passes", func(t *testing.T) {
		r := run(t, nil, bin)
		holds(t, r, 0, "PASSED", "allowed POST openrouter.ai:443/api/v1/chat/completions", "builtin:provider/openrouter:", "denied  connect unlisted.test:443", "; 0 attempts succeeded")
		if strings.Contains(r.Stdout, "\x1b") {
			t.Error("got colours without a terminal, want none")
		}
	})
	t.Run("does not trust a wrapper that wraps nothing", func(t *testing.T) {
		fake := filepath.Join(dir, "pretends")
		host.Write(t, fake, "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done\n[ $# = 0 ] || shift\n[ $# = 0 ] || exec \"$@\"\n")
		if err := os.Chmod(fake, 0o755); err != nil { // #nosec: a script of this test
			t.Fatal(err)
		}
		holds(t, run(t, nil, fake), 1, "FAILED", "LEFT", "TOUCHED")
	})
	t.Run("says that no hermes is installed", func(t *testing.T) {
		holds(t, run(t, []string{"PATH=/usr/bin:/bin"}, bin, "--hermes"), 1, "no hermes is installed")
	})
	t.Run("says what to build", func(t *testing.T) {
		holds(t, run(t, nil, filepath.Join(dir, "missing")), 1, "make build")
	})
	t.Run("says which programs are missing", func(t *testing.T) {
		few := host.Dir(t, "few")
		for _, name := range []string{"dirname", "sed", "git", "python3"} {
			if err := os.Symlink(host.Find(name), filepath.Join(few, name)); err != nil {
				t.Fatal(err)
			}
		}
		bash := host.Find("bash")
		r, err := host.Run(harness.Command{Argv: []string{bash, script, bin}, Dir: dir, Env: []string{"PATH=" + few}, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, r, 1, "missing: nodejs openssl", "apt-get install nodejs openssl")
	})
}

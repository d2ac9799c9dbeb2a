// Package profiles runs each built-in profile and fragment through the binary:
// its assertions hold, its canaries stay out of reach, Hermes' rules stay the
// operator's, package managers and a browser work where they are said to.
package profiles

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// limit is for one launch on a busy machine.
const limit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// own is what fragments want of the user's environment.
var own = []string{
	"AZURE_OPENAI_ENDPOINT=https://example.openai.azure.com/", "AWS_REGION=eu-central-1", "EMAIL_IMAP_HOST=imap.example.org",
	"EMAIL_SMTP_HOST=smtp.example.org", "MATRIX_HOMESERVER=https://matrix.example.org", "TERMINAL_SSH_HOST=ssh.example.org",
	"NPM_CONFIG_REGISTRY=https://packages.example.org/npm/", "PIP_INDEX_URL=https://packages.example.org/simple/",
	"GOPROXY=https://packages.example.org/go", "GOSUMDB=off",
}

// stage is a world with an empty workspace and an empty HERMES_HOME.
type stage struct {
	wraptest.World
	work, state string
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{World: wraptest.New(t)}
	s.work, s.state = s.Dir(t, "work"), s.Dir(t, "hermes")
	s.Write(t, filepath.Join(s.Home, ".cargo/config.toml"), "[registries.a]\nindex = \"sparse+https://packages.example.org/cargo/\"\n")
	return s
}

// run runs hermes-wrap with arguments.
func (s stage) run(t *testing.T, env []string, args ...string) wraptest.Ended {
	t.Helper()
	cmd := s.Bare(s.work, append([]string{s.Bin}, args...)...)
	cmd.Env = slices.Concat(cmd.Env, own, []string{"HERMES_HOME=" + s.state}, env)
	return wraptest.Run(t, cmd, limit)
}

// TestAssertions runs what each profile and fragment says of itself.
func TestAssertions(t *testing.T) {
	s := newStage(t)
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			if got := s.run(t, nil, "test", "--policy", name); got.Exit != 0 {
				t.Errorf("got exit %d, want all to hold\n%s", got.Exit, got.Err)
			}
		})
	}
	for _, name := range profiles.Fragments() {
		t.Run(name, func(t *testing.T) {
			if got := s.run(t, nil, "test", "--policy", "strict", "--enable", name); got.Exit != 0 {
				t.Errorf("got exit %d, want all to hold\n%s", got.Exit, got.Err)
			}
		})
	}
}

// canary tries to read a secret, to write next to it, and to reach listeners of
// this machine.
const canary = `
cat "$CANARY/id" 2>/dev/null && echo "read"
echo x 2>/dev/null > "$CANARY/planted" && echo "wrote"
for a in $LISTENERS; do
  (exec 3<>"/dev/tcp/${a%:*}/${a##*:}" && read -r -t 30 word <&3 && test "$word" = hello) 2>/dev/null && echo "reached $a"
done
echo done`

// TestCanaries launches each profile once. The same script succeeds in all of it
// outside.
func TestCanaries(t *testing.T) {
	s := newStage(t)
	dir := s.Dir(t, ".ssh")
	s.Write(t, filepath.Join(dir, "id"), "the-canary\n")
	var reached atomic.Int64
	addresses := listeners(t, &reached)
	env := []string{"CANARY=" + dir, "LISTENERS=" + strings.Join(addresses, " ")}

	cmd := s.Bare(s.work, "bash", "-c", canary)
	cmd.Env = append(cmd.Env, env...)
	want := "the-canary\nread\nwrote\n"
	for _, a := range addresses {
		want += "reached " + a + "\n"
	}
	if got := wraptest.Run(t, cmd, limit); got.Out != want+"done\n" {
		t.Fatalf("outside: got %q, want %q", got.Out, want)
	}
	planted := filepath.Join(dir, "planted")
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			if err := os.Remove(planted); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			before := reached.Load()
			policy := name
			if name == "hermes-dashboard" { // its port is one for the whole machine
				policy = s.PolicyFile(t, name, "version: 1\nextends: [builtin:hermes-dashboard]\nnetwork: {publish: []}\n")
			}
			got := s.run(t, env, "--quiet", "--policy", policy, "--env", env[0], "--env", env[1], "--", "bash", "-c", canary)
			// A supervised command's lines have a head, and others stand between.
			if !strings.HasSuffix(got.Out, "done\n") && !strings.Contains(got.Out, "main | done\n") || got.Exit != 0 {
				t.Errorf("got %q and exit %d, want done\n%s", got.Out, got.Exit, got.Err)
			}
			for _, word := range []string{"the-canary", "wrote", "reached"} {
				if strings.Contains(got.Out, word) {
					t.Errorf("got %q, want none of it", got.Out)
				}
			}
			if _, err := os.Stat(planted); err == nil {
				t.Error("got a file outside, want none")
			}
			if n := reached.Load() - before; n != 0 {
				t.Errorf("got %d connections outside, want none", n)
			}
		})
	}
}

// listeners opens one on loopback and one on each further IPv4 address of the
// machine. They count who comes.
func listeners(t *testing.T, reached *atomic.Int64) (addresses []string) {
	t.Helper()
	hosts := []string{"127.0.0.1"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			hosts = append(hosts, n.IP.String())
		}
	}
	for _, host := range hosts {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				_, _ = c.Write([]byte("hello\n"))
				_ = c.Close()
			}
		}()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// What Hermes keeps, and what may be done with it: by group of the state
// directory.
var (
	writable  = []string{"state.db", "state.db-wal", "sessions/s.json", "memories/MEMORY.md", "cache/web/page", "logs/agent.log", "cron/executions.db", "cron/output/x", "gateway.lock", "checkpoints/c", "kanban/k", "new-file"}
	protected = []string{"config.yaml", "SOUL.md", "hooks/h.py", "plugins/p.py", "skills/s/SKILL.md", "skill-bundles/b", "scripts/s.sh", "cron/jobs.json", "skins/x", "active_profile", "lazy-packages/p.py", "hermes-agent/run.py"}
	hidden    = []string{".env", "auth.json", "auth.json.lock", ".anthropic_oauth.json", "auth/a", "mcp-tokens/t.json", "pairing/p", "vault/v", "proxy/ca.key", "browser-profile/Cookies", "profiles/other/.env"}
)

// TestHermesRules holds that the agent's rules stay the operator's, whether the
// state directory is new or in use.
func TestHermesRules(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, name := range []string{"hermes-strict", "hermes-dev", "hermes-browser", "offline"} {
			t.Run(fmt.Sprintf("%s, in use: %v", name, full), func(t *testing.T) {
				s := newStage(t)
				var env []string
				if full {
					for _, f := range slices.Concat(writable, protected, hidden) {
						s.Write(t, filepath.Join(s.state, f), "before\n")
					}
					s.Write(t, filepath.Join(s.state, ".env"), "OTHER_KEY=abc\nexport OPENROUTER_API_KEY='sk-or-v1-real-real-real-real'  # mine\n")
					if err := os.Chmod(filepath.Join(s.state, ".env"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				got := s.run(t, env, "--quiet", "--policy", name, "--", "bash", "-c", s.attempts())
				s.judge(t, name, full, got)
			})
		}
	}
	// Without hermes-wrap the same script gets all of it.
	s := newStage(t)
	cmd := s.Bare(s.work, "bash", "-c", s.attempts())
	cmd.Env = append(cmd.Env, "HERMES_HOME="+s.state)
	got := wraptest.Run(t, cmd, limit)
	for _, f := range slices.Concat(writable, protected, hidden) {
		if !strings.Contains(got.Out, "wrote "+f+"\n") {
			t.Errorf("outside: got no %q, want all to be written\n%s", f, got.Out)
		}
	}
}

// attempts tries each file in every way that makes, changes or replaces one.
func (s stage) attempts() string {
	return fmt.Sprintf(`cd "$HERMES_HOME"
for f in %s; do
  cat "$f" >/dev/null 2>&1 && echo "read $f"
  mkdir -p "$(dirname "$f")" 2>/dev/null
  echo evil 2>/dev/null > "$f" && echo "wrote $f"
  echo evil > /tmp/evil; mv /tmp/evil "$f" 2>/dev/null && echo "wrote $f"
  echo evil > new.tmp; { ln -f new.tmp "$f" || ln -sf new.tmp "$f" || mv -T new.tmp "$f"; } 2>/dev/null && echo "wrote $f"
  rm -f new.tmp
done
mv cron cron2 2>/dev/null && echo "moved cron"
echo "key $OPENROUTER_API_KEY"
`, strings.Join(slices.Concat(writable, protected, hidden), " "))
}

func (s stage) judge(t *testing.T, name string, full bool, got wraptest.Ended) {
	t.Helper()
	if got.Exit != 0 {
		t.Fatalf("got exit %d\n%s", got.Exit, got.Err)
	}
	for _, f := range writable {
		if !strings.Contains(got.Out, "wrote "+f+"\n") {
			t.Errorf("%s: got no write, want one\n%s", f, got.Out)
		}
	}
	for _, f := range slices.Concat(protected, hidden) {
		if strings.Contains(got.Out, "wrote "+f+"\n") {
			t.Errorf("%s: got a write, want none", f)
		}
		text, err := os.ReadFile(filepath.Join(s.state, f))
		if !full && err == nil || full && (err != nil || strings.Contains(string(text), "evil")) {
			t.Errorf("%s: got %q, %v outside, want it as before", f, text, err)
		}
	}
	for _, f := range hidden {
		if strings.Contains(got.Out, "read "+f+"\n") {
			t.Errorf("%s: got it read, want it hidden", f)
		}
	}
	for _, f := range protected {
		if full && !strings.Contains(got.Out, "read "+f+"\n") {
			t.Errorf("%s: got it hidden, want it readable", f)
		}
	}
	if strings.Contains(got.Out, "moved cron") {
		t.Error("got cron/ renamed, want it to keep its name")
	}
	key := ""
	if full && name != "offline" {
		key = "sk-or-v1-"
	}
	if _, after, _ := strings.Cut(got.Out, "\nkey "); !strings.HasPrefix(after, key) || strings.Contains(after, "real") || (key == "") != (after == "\n") {
		t.Errorf("got the key %q, want a placeholder where .env has one", after)
	}
}

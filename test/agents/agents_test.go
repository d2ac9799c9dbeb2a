// Package agents runs real agents: each does one scripted task, first bare with
// the real key, then inside with nothing but a placeholder, before a provider
// that insists on the real one.
package agents

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// marker is what the task's command prints: the agent has run it once the
// marker comes back as a tool's result.
const marker = "task-result-4711"

// task is the command that the model asks for. It shows what a command of the
// agent sees of the key. It holds no $(…), which gemini refuses.
const task = `printf 'task-%s-4711\n' result | tee done.txt; env > env.txt`

// limit is for one agent's whole run on a busy machine.
const limit = 3 * time.Minute

// agent is how one agent is started for a task.
type agent struct {
	name string
	// profile is the built-in that it runs under.
	profile string
	// variable holds its key, and prefix is what keys look like.
	variable, prefix string
	// program is below node_modules; {arch} is x64 or arm64.
	program string
	args    []string
	env     []string
	// quiet are variables that the profile sets.
	quiet []string
	// provider and attach are what the policy says of its models.
	provider, attach string
	// files are written into its home ("~/…") or workspace; {base} is the
	// provider's address.
	files map[string]string
}

const prompt = "Run the command that you are told to run, then stop."

var agents = []agent{
	{
		name: "codex", profile: "codex", variable: "OPENAI_API_KEY", prefix: "sk-proj-", provider: "openai-compatible", attach: "attach: bearer",
		program: ".bin/codex",
		args: []string{
			"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-c", "features.plugins=false", "-c", `web_search="disabled"`,
			"-m", "test-model", prompt,
		},
		files: map[string]string{"~/.codex/config.toml": `model_provider = "test"
[model_providers.test]
name = "test"
base_url = "{base}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
`},
	},
	{
		name: "claude", profile: "claude-code", variable: "ANTHROPIC_API_KEY", prefix: "sk-ant-api03-", provider: "anthropic", attach: "attach: header\n    header: X-Api-Key",
		program: "@anthropic-ai/claude-code-linux-{arch}/claude",
		args:    []string{"-p", prompt, "--dangerously-skip-permissions", "--model", "test-model"},
		env:     []string{"ANTHROPIC_BASE_URL={base}"},
		quiet:   []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1"},
	},
	{
		name: "gemini", profile: "gemini-cli", variable: "GEMINI_API_KEY", prefix: "AIza", provider: "gemini", attach: "attach: header\n    header: X-Goog-Api-Key",
		program: ".bin/gemini",
		args:    []string{"-p", prompt, "--yolo", "--model", "test-model", "--skip-trust"},
		env:     []string{"GOOGLE_GEMINI_BASE_URL={base}"},
		quiet:   []string{"GEMINI_CLI_NO_RELAUNCH=true"},
		files:   map[string]string{"~/.gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true}}`},
	},
	{
		name: "opencode", profile: "opencode", variable: "OPENROUTER_API_KEY", prefix: "sk-or-v1-", provider: "openai-compatible", attach: "attach: bearer",
		program: "opencode-linux-{arch}/bin/opencode",
		args:    []string{"run", "--model", "test/test-model", prompt},
		quiet:   []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
		files: map[string]string{"opencode.json": `{"provider":{"test":{"npm":"@ai-sdk/openai-compatible","name":"test",
"options":{"baseURL":"{base}/v1","apiKey":"{env:OPENROUTER_API_KEY}"},"models":{"test-model":{"name":"test"}}}},"permission":{"*":"allow"}}`},
	},
}

// realKey makes a key of the agent's provider, of the usual length. It is new
// each time, so that nothing older than the test can hold it.
func (a agent) realKey() string {
	return a.prefix + rand.Text() + "a1" + rand.Text()
}

// path is the agent's program.
func (a agent) path(modules string) string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	return filepath.Join(modules, "node_modules", strings.ReplaceAll(a.program, "{arch}", cmp.Or(arch, runtime.GOARCH)))
}

// setUp writes the agent's files and gives its environment.
func (a agent) setUp(t *testing.T, w wraptest.World, work, base string) []string {
	t.Helper()
	for path, text := range a.files {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(work, "home", rest)
		} else {
			path = filepath.Join(work, path)
		}
		w.Write(t, path, strings.ReplaceAll(text, "{base}", base))
	}
	w.Write(t, filepath.Join(work, "home", ".profile"), "")
	env := []string{"HOME=" + filepath.Join(work, "home")}
	for _, e := range a.env {
		env = append(env, strings.ReplaceAll(e, "{base}", base))
	}
	return env
}

// trial is one agent's run of the task.
type trial struct {
	agent
	w       wraptest.World
	work    string
	modules string
	key     string // the real one
	p       *provider
}

func newTrial(t *testing.T, a agent) trial {
	t.Helper()
	r := trial{agent: a, w: wraptest.New(t), modules: npm.Require(t, "agents"), key: a.realKey()}
	r.work = r.w.Dir(t, "work")
	return r
}

// command is what the model asks the agent to run: the task, and then the search
// for the key below a directory.
func (r trial) command(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(searchProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(r.work, "search")
	r.w.Write(t, program, string(b))
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	hidden := []byte(r.key)
	for i := range hidden {
		hidden[i] ^= 0x5a
	}
	return fmt.Sprintf("%s; ./search %x %d %s \"$SSL_CERT_FILE\" > found.txt 2>&1", task, hidden, time.Now().Unix()-1, dir)
}

// finish checks that the task was done, and gives what the search printed and
// the environment that commands of the agent see.
func (r trial) finish(t *testing.T, got wraptest.Ended) (found, environ string) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(r.work, name))
		if err != nil {
			t.Errorf("%v", err)
		}
		return string(b)
	}
	if done := strings.TrimSpace(read("done.txt")); done != marker || got.Exit != 0 {
		t.Fatalf("got %q and exit %d, want the marker and 0\n%s\n%s\n%v", done, got.Exit, got.Out, got.Err, r.p.report())
	}
	found = read("found.txt")
	return found, read("env.txt")
}

// TestBare is the control: with the real key outside, the task works, and the
// search finds the key in what a command of the agent can read.
func TestBare(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			r := newTrial(t, a)
			r.p = newProvider(r.key, r.command(t, r.work))
			server := httptest.NewServer(r.p)
			t.Cleanup(server.Close)
			env := a.setUp(t, r.w, r.work, server.URL)
			cmd := r.w.Bare(r.work, append([]string{a.path(r.modules)}, a.args...)...)
			cmd.Env = append(slices.Concat(cmd.Env, env, a.quiet), a.variable+"="+r.key)
			found, environ := r.finish(t, wraptest.Run(t, cmd, limit))
			if !strings.Contains(found, "found the secret in /proc/") || !strings.Contains(environ, r.key) {
				t.Errorf("got %q from the search, want the key in another process", found)
			}
		})
	}
}

// TestInside does the same inside: the agent's own configuration points at the
// inner name of the models, and all that it has of the key is a placeholder.
func TestInside(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			r := newTrial(t, a)
			r.p = newProvider(r.key, r.command(t, "/"))
			server := wraptest.ServeTLS(t, "provider.test", r.p)
			env := a.setUp(t, r.w, r.work, "https://inference.internal")
			cmd := r.w.Wrap(r.work, r.w.PolicyFile(t, a.name, r.policy(t, server, env)), append([]string{a.path(r.modules)}, a.args...)...)
			cmd.Env = append(cmd.Env, a.variable+"="+r.key)
			found, environ := r.finish(t, wraptest.Run(t, cmd, limit))
			for _, line := range []string{"knows the authority\n", "searched "} {
				if !strings.Contains(found, line) {
					t.Errorf("the search was not whole: got %q, want %q", found, line)
				}
			}
			if strings.Contains(found, "found ") {
				t.Errorf("the search found what must not be inside:\n%s", found)
			}
			if strings.Contains(environ, r.key) || !strings.Contains(environ, a.variable+"="+a.prefix) {
				t.Errorf("got the environment %q, want a placeholder in %s", environ, a.variable)
			}
			if r.p.refused > 0 {
				t.Errorf("got %d requests without the key at the provider, want none", r.p.refused)
			}
		})
	}
}

// policy is the agent's profile, with the provider of this test in the place of
// the real one.
func (r trial) policy(t *testing.T, server wraptest.Served, env []string) string {
	t.Helper()
	r.w.PolicyFile(t, "without-provider", fmt.Sprintf(`version: 1
extends: [builtin:%s]
credentials: {}
inference: {routes: []}
assert: []
`, r.profile))
	var b strings.Builder
	fmt.Fprintf(&b, `version: 1
extends: [./without-provider.yaml]
filesystem:
  exec: [%s]
network:
  ca: [%s]
  hosts: {provider.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the provider of this test}]
credentials:
  key:
    source: {env: %s}
    expose: {env: %s}
    %s
    hosts: [provider.test]
inference:
  routes:
    - {name: models, provider: %s, host: provider.test, port: %d, models: [test-model], credential: key}
env:
  set:
`, filepath.Join(r.modules, "node_modules"), server.CA, server.Port, r.variable, r.variable, r.attach, r.provider, server.Port)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&b, "    %s: %q\n", name, value)
	}
	return b.String()
}

func (p *provider) report() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("answered %v, without the key %d, unknown %q", p.calls, p.refused, p.unserved)
}

func TestMain(m *testing.M) {
	code := wraptest.Main(m)
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

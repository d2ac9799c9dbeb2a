// Package container runs the profile hermes-in-container in what a container engine
// gives a process: another root, read-only, parts of /proc masked, no capability, user
// 10000, and the engines' default system call filter. No engine and no root is needed.
package container

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

const limit = 2 * time.Minute

// box is one container's files on the host.
type box struct {
	wraptest.World
	t   *testing.T
	dir string
}

func newBox(t *testing.T) box {
	b := box{World: wraptest.New(t), t: t}
	b.dir = b.Dir(t, "container")
	for _, name := range []string{"root", "root.data", "root.work", "root.tools"} {
		b.Dir(t, filepath.Join("container", name))
	}
	run := func(cmd *exec.Cmd) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	build := exec.Command("go", "build", "-tags", "seccomp netgo osusergo", "-o", filepath.Join(t.TempDir(), "seccomp"), "./seccomp")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	run(build)
	b.copy(build.Args[5], "root.tools/seccomp")
	b.copy(b.Bin, "root.tools/hermes-wrap")
	b.copy("container.sh", "container.sh")
	install, err := filepath.Abs("../../testdata/agent/make_install.sh")
	if err != nil {
		t.Fatal(err)
	}
	// The install knows its own place; in the container it has another.
	run(b.Bare(b.dir, "bash", "-euc", `sh "$1" "$2" >/dev/null
		grep -rlIZ -- "$2" "$2" | xargs -0 sed -i "s,$2,/opt/hermes,g"
		find "$2" -type l -lname "$2/*" | while read -r link; do to=$(readlink "$link"); ln -sfn "/opt/hermes${to#"$2"}" "$link"; done`,
		"install", install, filepath.Join(b.dir, "root.opt")))
	return b
}

func (b box) copy(from, to string) {
	b.t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, to)
	b.Write(b.t, path, string(data))
	if err := os.Chmod(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// run runs a command in the container, in /work, as its first process.
func (b box) run(env []string, argv ...string) wraptest.Ended {
	b.t.Helper()
	return wraptest.Run(b.t, b.command(env, argv...), limit)
}

func (b box) command(env []string, argv ...string) *exec.Cmd {
	args := []string{
		"unshare", "--user", "--map-user=10000", "--map-group=10000", "--keep-caps", "--mount", "--pid", "--fork", "--kill-child",
		filepath.Join(b.dir, "container.sh"), filepath.Join(b.dir, "root"), "/tools/seccomp",
	}
	env = append([]string{"PATH=/opt/hermes/bin:/tools:/usr/bin:/bin", "HOME=/opt/data", "XDG_STATE_HOME=/state", "XDG_RUNTIME_DIR=/run/user", "HERMES_HOME=/opt/data"}, env...)
	args = append(append(args, "/usr/bin/env", "-i"), env...)
	return b.Bare(b.dir, append(args, argv...)...)
}

func (b box) wrap(env []string, argv ...string) wraptest.Ended {
	b.t.Helper()
	return b.run(env, append([]string{"hermes-wrap", "--policy", "hermes-in-container", "--"}, argv...)...)
}

// TestContainer is the control: the container takes away what an engine's does.
func TestContainer(t *testing.T) {
	b := newBox(t)
	got := b.run(nil, "bash", "-c", `id -u; grep -E "^(CapBnd|CapEff|NoNewPrivs|Seccomp):" /proc/self/status; touch /x; unshare -U true; touch /work/w && echo written`)
	harness.Require(t, strings.Contains(got.Out, "written"), "a container without root: "+got.Err)
	for _, want := range []string{"10000\n", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("got %q, want it to hold %q", got.Out, want)
		}
	}
	for _, want := range []string{"Read-only file system", "unshare failed: Operation not permitted"} {
		if !strings.Contains(got.Err, want) {
			t.Errorf("got %q, want it to hold %q", got.Err, want)
		}
	}
}

// TestStrictRefuses: without consent nothing is run.
func TestStrictRefuses(t *testing.T) {
	b := newBox(t)
	got := b.run([]string{"HOME=/home/agent"}, "hermes-wrap", "--policy", "strict", "--", "touch", "/work/ran")
	if got.Exit != 125 || !strings.Contains(got.Err, "user namespace") {
		t.Errorf("got exit %d and %q, want 125 and what is missing", got.Exit, got.Err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "root.work", "ran")); err == nil {
		t.Error("the command was run")
	}
}

// TestNoStateHome: without a place outside of what the agent may write, nothing is
// run.
func TestNoStateHome(t *testing.T) {
	b := newBox(t)
	got := b.wrap([]string{"XDG_STATE_HOME="}, "touch", "/work/ran")
	if got.Exit != 125 || !strings.Contains(got.Err, "/opt/data/.local/state") {
		t.Errorf("got exit %d and %q, want 125 and the place", got.Exit, got.Err)
	}
}

// TestDoctor: what is to be done is something that can be done for a container.
func TestDoctor(t *testing.T) {
	b := newBox(t)
	got := b.run(nil, "hermes-wrap", "doctor")
	if got.Exit != 1 || strings.Contains(got.Out, "run it as root") {
		t.Errorf("got exit %d and %q, want 1 and no advice to be root", got.Exit, got.Out)
	}
	for _, want := range []string{"an ordinary user, in a container", "seccomp profile", "hermes-in-container"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("got %q, want it to hold %q", got.Out, want)
		}
	}
}

// checks is what the stand-in does here. Its gateway is not among them, since it
// connects to it over TCP, which is refused inside; see TestGateway.
var checks = []string{
	"launch_chain", "state_create", "state_locks", "state_replace", "sqlite_wal", "shell", "shell_timeout", "background", "proc", "pass_descriptor",
	"code", "mcp", "plugin", "hook", "processes",
}

// TestAgent: the stand-in does its work, and the first line says exactly what is
// weaker.
func TestAgent(t *testing.T) {
	b := newBox(t)
	for _, name := range []string{"hooks/stand_in_hook.py", "hooks/on_event.sh", "plugins/stand_in_plugin.py"} {
		b.copy("../../testdata/agent/home/"+name, "root.data/"+name)
	}
	argv := []string{"hermes", "-z", "checks", "--report", "/work/report"}
	for _, check := range checks {
		argv = append(argv, "--check", check)
	}
	got := b.wrap(nil, argv...)
	report, _ := os.ReadFile(filepath.Join(b.dir, "root.work", "report"))
	if got.Exit != 0 || strings.Count(string(report), `"ok": true`) != len(checks) {
		t.Errorf("got exit %d, want every check to pass\n%s\n%s", got.Exit, report, got.Err)
	}
	first, _, _ := strings.Cut(got.Err, "\n")
	for _, want := range []string{
		"weaker tier, which the policy allows: no namespaces", "names, sizes and modes of all of the host's files show",
		"43 protected entries are NOT protected (filesystem.protect[", " /opt/data/", "hidden names do not exist and are NOT hidden if they come", "Processes:", "Network:",
		"local sockets as the policy allows: EVERY one outside that your user can open is reached (of the well-known ones none was found)",
		"/dev/shm is the host's own", "servers inside listen on the machine's own addresses",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("first line: got %q, want it to say %q", first, want)
		}
	}
	explained := b.run(nil, "hermes-wrap", "explain", "--policy", "hermes-in-container")
	for _, want := range []string{"/opt/data/hooks", "/opt/data/config.yaml", "NOT HELD", "sockets    MISSING   NOT HELD: local sockets"} {
		if !strings.Contains(explained.Out, want) {
			t.Errorf("explain: got none of %q\n%s", want, explained.Out)
		}
	}
}

// TestHeld: what the profile says is held is held, and what it says is not is not.
func TestHeld(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	b.Write(t, filepath.Join(b.dir, "root.data", "config.yaml"), "model: x\n")
	attack := fmt.Sprintf(`
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name succeeded"; else echo "$name failed"; fi; }
mkdir -p /run/other 2>/dev/null && echo secret > /run/other/secret
try connect bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d'
try tools cat /tools/seccomp
try signal kill -0 "$OUTSIDE"
try environ cat /proc/$OUTSIDE/environ
try program touch /opt/hermes/new
try config bash -c 'echo y >> /opt/data/config.yaml'
try state touch /opt/data/state.db
[ "$(printf %%s "${OPENROUTER_API_KEY:-}" | sha256sum | cut -c1-16)" = %s ] && echo "key succeeded" || echo "key failed"
`, l.Addr().(*net.TCPAddr).Port, fmt.Sprintf("%x", sha256.Sum256([]byte("sk-or-v1-real")))[:16])
	run := func(wrapper string) map[string]string {
		got := b.run([]string{"OPENROUTER_API_KEY=sk-or-v1-real", "ATTACK=" + attack}, "bash", "-c",
			`sleep 300 & OUTSIDE=$!; export OUTSIDE; `+wrapper+` bash -c "OUTSIDE=$OUTSIDE; $ATTACK"; kill -9 $OUTSIDE`)
		out := map[string]string{}
		for line := range strings.Lines(got.Out) {
			if name, outcome, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				out[name] = outcome
			}
		}
		if len(out) < 8 {
			t.Fatalf("got %v\n%s", out, got.Err)
		}
		return out
	}
	bare, inside := run(""), run("hermes-wrap --policy hermes-in-container --")
	for _, name := range []string{"connect", "tools", "signal", "environ", "config", "state", "key"} {
		if bare[name] != "succeeded" {
			t.Errorf("control: %s: got %s, want it to succeed bare", name, bare[name])
		}
	}
	for name, want := range map[string]string{
		"connect": "failed", "tools": "failed", "signal": "failed", "environ": "failed", "program": "failed", "key": "failed",
		"state":  "succeeded",
		"config": "succeeded", // the first line says so
	} {
		if inside[name] != want {
			t.Errorf("inside: %s: got %s, want it %s", name, inside[name], want)
		}
	}
}

// TestSecretsInTheState: a secret that is there cannot be hidden in this tier, so
// nothing is run.
func TestSecretsInTheState(t *testing.T) {
	b := newBox(t)
	b.Write(t, filepath.Join(b.dir, "root.data", ".env"), "OPENROUTER_API_KEY=sk-or-v1-real\n")
	got := b.wrap(nil, "touch", "/work/ran")
	if got.Exit != 125 || !strings.Contains(got.Err, `hiding "/opt/data/.env"`) || !strings.Contains(got.Err, "move it out of") {
		t.Errorf("got exit %d and %q, want 125 and the remedy", got.Exit, got.Err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "root.work", "ran")); err == nil {
		t.Error("the command was run")
	}
}

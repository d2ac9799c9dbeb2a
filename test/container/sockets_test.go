package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// outside is what other programs of the container offer while the command runs:
// a socket with a path that no rule grants, an abstract one, and a run of
// another command. It is the user's, and so is every attack below.
const outside = `
import os, socket, subprocess, sys, threading
def serve(address):
    s = socket.socket(socket.AF_UNIX); s.bind(address); s.listen(8)
    def answer():
        while True:
            c, _ = s.accept(); c.sendall(b"secret"); c.close()
    threading.Thread(target=answer, daemon=True).start()
serve("/state/outside.sock"); serve("\0outside")
other = subprocess.Popen(["hermes-wrap", "--quiet", "--policy", "hermes-in-container", "--", "bash", "-c", "echo up; read"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
assert other.stdout.readline() == b"up\n"
code = subprocess.run(sys.argv[1:]).returncode
other.stdin.close(); other.wait()
os._exit(code)
`

// reach tries each way once and prints whether it got an answer.
const reach = `
import glob, os, socket, struct, threading, multiprocessing
def told(name, attempt):
    try: ok = attempt()
    except OSError as e: ok = False
    print(name, "succeeded" if ok else "failed", flush=True)
def ask(address, kind=socket.SOCK_STREAM, text=None):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.settimeout(20); s.connect(address)
        if text: s.send(text)
        return s.recv(4096) != b""
told("path", lambda: ask("/state/outside.sock"))
told("abstract", lambda: ask("\0outside"))
def control():
    found = glob.glob("/run/user/hermes-wrap/*/control")
    assert found or inside, "no run"
    return any(answers(p) for p in found)
def answers(path):
    try: return ask(path, socket.SOCK_SEQPACKET, b'{"op":"status"}')
    except ConnectionError: return False
inside = os.environ.get("INSIDE") == "1"
if inside:  # the names cannot be listed; the caller gives them
    glob.glob = lambda pattern: os.environ["RUNS"].split() + [os.path.dirname(os.environ["XDG_RUNTIME_DIR"]) + "/control"]
told("control", control)
def served(inner):
    l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(1)
    with socket.socket() as c:
        c.settimeout(20); c.connect(l.getsockname()); return True
told("own-tcp", lambda: served(True))
def own():
    p = os.environ.get("TMPDIR", "/tmp") + "/own.sock"
    l = socket.socket(socket.AF_UNIX); l.bind(p); l.listen(1)
    with socket.socket(socket.AF_UNIX) as c: c.connect(p)
    os.unlink(p); return True
told("own-local", own)
told("udp", lambda: bool(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
told("shm", lambda: open("/dev/shm/container-test-%d" % os.getpid(), "w") and not os.unlink("/dev/shm/container-test-%d" % os.getpid()))
`

// TestSockets: what the first line concedes is so, in both directions, and
// nothing beyond it.
func TestSockets(t *testing.T) {
	b := newBox(t)
	b.Write(t, filepath.Join(b.dir, "root.work", "outside.py"), outside)
	b.Write(t, filepath.Join(b.dir, "root.work", "reach.py"), reach)
	run := func(command string) map[string]string {
		got := b.run([]string{"SSH_AUTH_SOCK=/state/outside.sock"}, "python3", "outside.py", "bash", "-c", command)
		out := map[string]string{}
		for line := range strings.Lines(got.Out) {
			if name, outcome, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				out[name] = outcome
			}
		}
		if len(out) != 7 {
			t.Fatalf("got %v\n%s", out, got.Err)
		}
		out["first"], _, _ = strings.Cut(got.Err, "\n")
		return out
	}
	bare := run("python3 reach.py")
	inside := run(`export RUNS="$(echo /run/user/hermes-wrap/*/control)"; hermes-wrap --policy hermes-in-container -- env INSIDE=1 RUNS="$RUNS" python3 reach.py`)
	for name, want := range map[string]string{
		"path":      "succeeded", // the first line says so
		"shm":       "succeeded", // and that too
		"own-local": "succeeded",
		"abstract":  "failed", // Landlock's scope, from ABI 6
		"control":   "failed", // neither of its own run nor of the other
		"own-tcp":   "failed",
		"udp":       "failed",
	} {
		if bare[name] != "succeeded" {
			t.Errorf("control: %s: got %s, want it to succeed bare", name, bare[name])
		}
		if inside[name] != want {
			t.Errorf("inside: %s: got %s, want it %s", name, inside[name], want)
		}
	}
	if want := "an SSH agent at /state/outside.sock"; !strings.Contains(inside["first"], want) {
		t.Errorf("first line: got %q, want it to name %q", inside["first"], want)
	}
}

// TestEngineSocket: where an engine's socket can be opened nothing is run, since
// whoever reaches it starts programs outside.
func TestEngineSocket(t *testing.T) {
	b := newBox(t)
	script := "import socket, os, sys; s = socket.socket(socket.AF_UNIX); s.bind('/run/docker.sock'); s.listen(1); os.execvp(sys.argv[1], sys.argv[1:])"
	got := b.run(nil, "python3", "-c", script, "hermes-wrap", "--policy", "hermes-in-container", "--", "touch", "/work/ran")
	if got.Exit != 125 || !strings.Contains(got.Err, `a container engine at "/run/docker.sock"`) || !strings.Contains(got.Err, "hint: start hermes-wrap where that socket is not") {
		t.Errorf("got exit %d and %q, want 125 and the socket", got.Exit, got.Err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "root.work", "ran")); err == nil {
		t.Error("the command was run")
	}
}

// TestWithoutConsent: a policy that does not name sockets has none.
func TestWithoutConsent(t *testing.T) {
	b := newBox(t)
	b.Write(t, filepath.Join(b.dir, "root.work", "reach.py"), reach)
	text, err := os.ReadFile("../../profiles/hermes-in-container.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.Replace(string(text), "pids, sockets]", "pids]", 1)
	harness.Require(t, policy != string(text), "the profile's consent")
	b.Write(t, filepath.Join(b.dir, "root.work", "none.yaml"), policy)
	got := b.run(nil, "hermes-wrap", "--policy", "none.yaml", "--", "env", "INSIDE=1", "RUNS=", "python3", "reach.py")
	for _, name := range []string{"path", "own-local", "own-tcp", "udp", "shm"} {
		if !strings.Contains(got.Out, name+" failed") {
			t.Errorf("got %q (%s), want %s to fail", got.Out, got.Err, name)
		}
	}
	if first, _, _ := strings.Cut(got.Err, "\n"); strings.Contains(first, "local sockets") {
		t.Errorf("first line: got %q, want no word of local sockets", first)
	}
}

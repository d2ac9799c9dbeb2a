package container

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// running is a container whose first process is up.
type running struct {
	t        *testing.T
	cmd      *exec.Cmd
	first    int // its process on the host
	mu       sync.Mutex
	out, err bytes.Buffer
}

type locked struct {
	r *running
	b *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return l.b.Write(p)
}

func (r *running) text() (out, err string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String(), r.err.String()
}

// start starts a container and waits for a line of its output.
func (b box) start(line string, env []string, argv ...string) *running {
	b.t.Helper()
	r := &running{t: b.t, cmd: b.command(env, argv...)}
	r.cmd.Stdout, r.cmd.Stderr = locked{r, &r.out}, locked{r, &r.err}
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) })
	r.wait("the command to be up", func() bool {
		out, _ := r.text()
		return strings.Contains(out, line)
	})
	kids := children(r.cmd.Process.Pid)
	if len(kids) != 1 {
		b.t.Fatalf("got children %v of the container's parent, want one", kids)
	}
	r.first = kids[0]
	return r
}

func (r *running) wait(what string, done func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			out, err := r.text()
			r.t.Fatalf("waited in vain for %s: %q, %q", what, out, err)
		}
	}
}

// stop sends the first process what an engine sends it, and waits for its end.
func (r *running) stop() (exit int, out, err string) {
	r.t.Helper()
	if err := syscall.Kill(r.first, syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = r.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
		r.t.Fatal("it does not end")
	}
	out, err = r.text()
	return r.cmd.ProcessState.ExitCode(), out, err
}

// children are those of a process, in any state.
func children(pid int) (kids []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, text := range strings.Fields(string(b)) {
		var kid int
		_, _ = fmt.Sscan(text, &kid)
		kids = append(kids, kid)
	}
	return kids
}

func zombies(pid int) (n int) {
	for _, kid := range children(pid) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", kid)); err == nil && strings.Contains(string(b), ") Z ") {
			n++
		}
	}
	return n
}

// orphan starts a process beside the container's own, as "docker exec" does, that
// loses its parent and then ends.
func (b box) orphan(first int) {
	b.t.Helper()
	got := wraptest.Run(b.t, b.Bare(b.dir, "nsenter", "-t", fmt.Sprint(first), "-U", "--preserve-credentials", "-p", "sh", "-c", "(sleep 0.2 >/dev/null 2>&1 & ) ; exit 0"), limit)
	if got.Exit != 0 {
		b.t.Fatalf("got exit %d (%s) from nsenter", got.Exit, got.Err)
	}
}

// TestPidOne: as the first process hermes-wrap ends in order when it is asked to,
// with the command's own code, and waits for what loses its parent.
func TestPidOne(t *testing.T) {
	b := newBox(t)
	control := b.start("up", nil, "sh", "-c", "echo up; exec sleep 300")
	b.orphan(control.first)
	control.wait("a zombie in the control", func() bool { return zombies(control.first) == 1 })

	r := b.start("up", nil, "hermes-wrap", "--policy", "hermes-in-container", "--", "bash", "-c", "trap 'echo in order; exit 7' TERM; echo up; while :; do sleep 0.1; done")
	before := len(children(r.first))
	b.orphan(r.first)
	r.wait("the orphan to be gone", func() bool { return zombies(r.first) == 0 && len(children(r.first)) == before })
	if exit, out, err := r.stop(); exit != 7 || !strings.Contains(out, "in order") {
		t.Errorf("got exit %d, %q (%s), want the command's own end", exit, out, err)
	}
}

// TestGateway: the gateway serves its port on the container's address, asks for its
// key, and drains when the container is stopped.
func TestGateway(t *testing.T) {
	b := newBox(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	policy := fmt.Sprintf("version: 1\nextends: [builtin:hermes-in-container]\nenv: {set: {API_SERVER_KEY: 0123456789abcdef, API_SERVER_PORT: %q}}\n", fmt.Sprint(port))
	b.Write(t, filepath.Join(b.dir, "root.work", "gateway.yaml"), policy)
	r := b.start("gateway on", nil, "hermes-wrap", "--policy", "gateway.yaml", "--", "hermes", "gateway", "run", "--no-supervise")
	status := func(path, key string) int {
		req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		got, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		return got.StatusCode
	}
	for _, c := range []struct {
		path, key string
		want      int
	}{{"/health", "", 200}, {"/v1/models", "guess", 401}, {"/v1/models", "0123456789abcdef", 200}} {
		if got := status(c.path, c.key); got != c.want {
			t.Errorf("%s with key %q: got %d, want %d", c.path, c.key, got, c.want)
		}
	}
	if exit, out, err := r.stop(); exit != 0 || !strings.Contains(out, "gateway drained") {
		t.Errorf("got exit %d, %q (%s), want it to drain", exit, out, err)
	}
}

// TestSupervised: services need namespaces; the engine starts the container again.
func TestSupervised(t *testing.T) {
	b := newBox(t)
	b.Write(t, filepath.Join(b.dir, "root.work", "sup.yaml"), "version: 1\nextends: [builtin:hermes-in-container]\nsupervise: {restart: always}\n")
	got := b.run(nil, "hermes-wrap", "--policy", "sup.yaml", "--", "touch", "/work/ran")
	if got.Exit != 125 || !strings.Contains(got.Err, "supervise needs namespaces") || !strings.Contains(got.Err, "--no-supervise") {
		t.Errorf("got exit %d and %q, want 125 and the reason", got.Exit, got.Err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "root.work", "ran")); err == nil {
		t.Error("the command was run")
	}
	if got := b.run(nil, "hermes-wrap", "--policy", "sup.yaml", "--no-supervise", "--", "touch", "/work/ran"); got.Exit != 0 {
		t.Errorf("without supervision: got exit %d and %q, want 0", got.Exit, got.Err)
	}
}

package restart

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// limit is for what should take a moment.
const limit = 60 * time.Second

// agent is a run of the client inside, which takes commands.
type agent struct {
	wraptest.World
	t        *testing.T
	o        *outside
	work     string
	policy   string
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Scanner
	err      bytes.Buffer
	pid      string // inside
	original string // the binary
	proxies  int    // that were killed
}

// policyText has a host with a credential, sockets, bytes, and a host that is denied.
func (a *agent) policyText() string {
	return fmt.Sprintf(`version: 1
workspace: {path: ., access: write, exec: true}
audit: {file: %[1]s}
credentials:
  key: {source: {env: KEY}, expose: {env: KEY}, attach: bearer, hosts: [site.test]}
network:
  ca: [%[2]s]
  hosts: {site.test: [127.0.0.1], models.test: [127.0.0.1], denied.test: [127.0.0.1], a.test: [127.0.0.1], b.test: [127.0.0.2], c.test: [127.0.0.2]}
  private: [{cidr: 127.0.0.1, ports: [%[3]d, %[4]d], reason: the servers of this test}, {cidr: 127.0.0.2, ports: [%[4]d], reason: another}]
  rules:
    - {name: hello, host: site.test, ports: [%[3]d], credential: key, allow: [{methods: [GET], paths: [/hello, /events]}]}
    - {name: feed, host: site.test, ports: [%[3]d], protocol: websocket, paths: [/ws]}
    - {name: a, host: a.test, protocol: tcp, ports: [%[4]d]}
    - {name: b, host: b.test, protocol: tcp, ports: [%[4]d]}
    - {name: c, host: c.test, protocol: tcp, ports: [%[4]d]}
`, filepath.Join(a.Home, "audit.jsonl"), filepath.Join(a.Home, "ca.pem"), a.o.port, a.o.bytesPort)
}

// built is what came of building the client.
type built struct {
	text string
	err  error
}

// theClient builds the client once.
var theClient = sync.OnceValue(func() (c built) { //nolint:gochecknoglobals // built once a process
	dir, err := os.MkdirTemp("", "restart-")
	if err != nil {
		c.err = err
		return c
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "client")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./client")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		c.err = fmt.Errorf("go build: %w\n%s", err, out)
		return c
	}
	text, err := os.ReadFile(path)
	c.text, c.err = string(text), err
	return c
})

// prepare makes the world, start the run in it.
func prepare(t *testing.T) *agent {
	t.Helper()
	a := &agent{World: wraptest.New(t), t: t, o: newOutside(t)}
	a.original = a.Bin
	a.work = a.Dir(t, "work")
	a.Write(t, filepath.Join(a.Home, "ca.pem"), string(a.o.ca))
	client := theClient()
	if client.err != nil {
		t.Fatal(client.err)
	}
	a.Write(t, filepath.Join(a.work, "client"), client.text)
	if err := os.Chmod(filepath.Join(a.work, "client"), 0o755); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *agent) start(policy string) {
	a.t.Helper()
	a.policy = a.PolicyFile(a.t, "restart", policy)
	a.cmd = a.Wrap(a.work, a.policy, "./client")
	a.cmd.Env = append(a.cmd.Env, "KEY="+realKey)
	a.cmd.Stderr = &a.err
	a.cmd.WaitDelay = 10 * time.Second
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	ended := false
	a.t.Cleanup(func() {
		if !ended && a.cmd.ProcessState == nil {
			_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
			_ = a.cmd.Wait()
		}
	})
	a.out = bufio.NewScanner(out)
	a.pid = a.ask("pid")
}

// send gives a command.
func (a *agent) send(command string, args ...any) {
	a.t.Helper()
	line := strings.TrimSpace(command + " " + fmt.Sprintln(args...))
	if _, err := fmt.Fprintln(a.in, line); err != nil {
		a.t.Fatalf("%s: the agent takes nothing: %v\n%s", line, err, a.err.String())
	}
}

// ask gives a command and its outcome.
func (a *agent) ask(command string, args ...any) string {
	a.t.Helper()
	a.send(command, args...)
	return a.answer(command)
}

func (a *agent) answer(command string) string {
	a.t.Helper()
	if !a.out.Scan() {
		_ = a.cmd.Wait()
		a.t.Fatalf("%s: the agent ended\n%s", command, a.err.String())
	}
	got, ok := strings.CutPrefix(a.out.Text(), command+" ")
	if !ok {
		a.t.Fatalf("%s: got %q", command, a.out.Text())
	}
	return got
}

// want asks and compares the beginning.
func (a *agent) want(want, command string, args ...any) {
	a.t.Helper()
	if got := a.ask(command, args...); !strings.HasPrefix(got, want) {
		a.t.Errorf("%s %v: got %q, want %q", command, args, got, want)
	}
}

func (a *agent) url(path string) string { return fmt.Sprintf("https://site.test:%d%s", a.o.port, path) }

func (a *agent) bytesAt(host string) string { return fmt.Sprintf("%s:%d", host, a.o.bytesPort) }

// proxy gives the run's proxy, other than those given.
func (a *agent) proxy(not ...int) int {
	a.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, pid := range children(a.cmd.Process.Pid) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.HasPrefix(string(name), "hermes-wrap: proxy") && (len(not) == 0 || pid != not[0]) {
				return pid
			}
		}
	}
	a.t.Fatalf("got no proxy\n%s", a.err.String())
	return 0
}

// children gives the processes that a process started.
func children(of int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", of))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// kill ends the proxy, and gives its number.
func (a *agent) kill(sig syscall.Signal) int {
	a.t.Helper()
	pid := a.proxy()
	if err := syscall.Kill(pid, sig); err != nil {
		a.t.Fatal(err)
	}
	a.proxies++
	return pid
}

// gone waits until a process is no more, not even as a zombie.
func (a *agent) gone(pid int) {
	a.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
	}
	a.t.Errorf("process %d: got it there still, want it gone", pid)
}

// end ends the agent and gives the exit code of the run.
func (a *agent) end() int {
	a.t.Helper()
	_ = a.in.Close()
	late := time.AfterFunc(limit, func() { _ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	return wraptest.Exit(a.t, a.cmd.Wait())
}

// record gives what "audit" says, with its exit code.
func (a *agent) record(args ...string) wraptest.Ended {
	a.t.Helper()
	return wraptest.Run(a.t, a.Bare(a.work, append([]string{a.Bin, "audit"}, args...)...), limit)
}

// Package restart kills the proxy under the real binary: another takes over,
// the agent goes on, and nothing is looser in between or afterwards.
package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// Whatever the proxy dies of, in the middle of whatever: what was open ends, the
// agent goes on with the certificates that it has read, names mean what they
// meant, credentials are attached, and what is denied is denied throughout
// (corpus E04, E32).
func TestProxyDies(t *testing.T) {
	t.Parallel()
	a := prepare(t)
	bin := filepath.Join(a.Home, "hermes-wrap") // a copy, to be replaced
	text, err := os.ReadFile(a.Bin)
	if err != nil {
		t.Fatal(err)
	}
	install := func(text string) {
		_ = os.Remove(bin)
		a.Write(t, bin, text)
		if err := os.Chmod(bin, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install(string(text))
	a.Bin = bin
	a.start(a.policyText())
	a.want("200 welcome", "get", a.url("/hello"))
	a.want("403", "get", fmt.Sprintf("https://denied.test:%d/hello", a.o.port))
	addrs := map[string]string{}
	for _, name := range []string{"a", "b"} {
		addrs[name] = a.ask("resolve", name+".test")
		a.want(name, "tcp", a.bytesAt(addrs[name]))
	}
	unused := a.bytesAt("198.18.200.1")
	a.want("error", "tcp", unused)
	files, confined := 0, confinement(a.proxy())
	if !strings.Contains(confined, "Seccomp:\t2") || !strings.Contains(confined, "NoNewPrivs:\t1") {
		t.Fatalf("control: the first proxy is confined so: %q", confined)
	}
	a.want("begun", "hammer", fmt.Sprintf("https://denied.test:%d/hello", a.o.port))
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGKILL} {
		when := fmt.Sprintf("%v, number %d", sig, i+1)
		a.want("flows", "open", "h1", a.url("/events"))
		a.want("flows", "open", "h2", a.url("/events"))
		a.want("flows", "open", "ws", strings.Replace(a.url("/ws"), "https:", "wss:", 1))
		a.want("flows", "open", "tcp", a.bytesAt("a.test"))
		a.want("200", "again", a.url("/hello"))
		if i == 2 {
			install("#!/bin/false\n") // an upgrade, as it were
		}
		old := a.kill(sig)
		for _, name := range []string{"h1", "h2", "ws", "tcp"} {
			a.want("ended", "await", name)
		}
		a.want("200 welcome", "until", a.url("/hello"), "200")
		a.gone(old)
		if got := confinement(a.proxy()); got != confined {
			t.Errorf("%s: the next proxy is confined so: got %q, want %q", when, got, confined)
		}
		a.want("200", "again", a.url("/hello"))
		if got := a.ask("pid"); got != a.pid {
			t.Errorf("%s: the agent: got process %s, want %s as before", when, got, a.pid)
		}
		if fresh := a.ask("resolve", "c.test"); i == 0 && (fresh == addrs["a"] || fresh == addrs["b"]) {
			t.Errorf("%s: a new name: got %s, which stands for another", when, fresh)
		}
		for _, name := range []string{"b", "a"} {
			a.want(name, "tcp", a.bytesAt(addrs[name]))
			if got := a.ask("resolve", name+".test"); got != addrs[name] {
				t.Errorf("%s: %s.test: got %s, want %s as before", when, name, got, addrs[name])
			}
		}
		a.want("error", "tcp", unused)
		if n := openFiles(t, a.cmd.Process.Pid); files == 0 {
			files = n
		} else if n > files+2 { // a connection that is being reset
			t.Errorf("%s: the launcher has %d descriptors, want %d as after the first", when, n, files)
		}
	}
	if got := a.ask("rest"); !strings.HasPrefix(got, "denied=true") || !strings.HasSuffix(got, "allowed=0") {
		t.Errorf("what is denied: got %s, want it never allowed", got)
	}
	if n := a.o.requests("denied.test"); n > 0 {
		t.Errorf("the denied host: got %d requests, want none", n)
	}
	last := a.proxy()
	if code := a.end(); code != 0 {
		t.Errorf("got exit %d, want 0\n%s", code, a.err.String())
	}
	a.gone(last)
	if n := strings.Count(a.err.String(), "is started again"); n != 3 || strings.Contains(a.err.String(), "goroutine") {
		t.Errorf("stderr: got %q, want three plain warnings", a.err.String())
	}
	a.checkRecord(3)
}

// checkRecord verifies the record, and that every proxy that was killed is in it.
func (a *agent) checkRecord(killed int) {
	a.t.Helper()
	a.Bin = a.original // a test may have replaced it
	if v := a.record("verify", filepath.Join(a.Home, "audit.jsonl")); v.Exit != 0 || strings.Count(v.Out, "killed") != killed {
		a.t.Errorf("verify: got exit %d, want 0 and %d killed\n%s%s", v.Exit, killed, v.Out, v.Err)
	}
	events := a.record("show", "--kind", "proxy", filepath.Join(a.Home, "audit.jsonl"))
	if n := strings.Count(events.Out, "the proxy ended, and until another serves"); n != killed {
		a.t.Errorf("show: got %d proxies that ended, want %d\n%s%s", n, killed, events.Out, events.Err)
	}
}

// confinement is what the kernel shows of it.
func confinement(pid int) (all string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") || name == "Seccomp" || name == "Seccomp_filters" || name == "NoNewPrivs" || name == "Uid" {
			all += line
		}
	}
	return all
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A proxy that hangs is found out, killed and replaced. A reload that meets it
// fails, says so, and leaves the old policy in force.
func TestProxyHangs(t *testing.T) {
	t.Parallel()
	a := prepare(t)
	a.start(a.policyText())
	a.want("200 welcome", "get", a.url("/hello"))
	denied := fmt.Sprintf("https://denied.test:%d/hello", a.o.port)
	wider := strings.Replace(a.policyText(), "  rules:\n", fmt.Sprintf("  rules:\n    - {name: more, host: denied.test, ports: [%d], access: read-only}\n", a.o.port), 1)
	a.PolicyFile(t, "restart", wider)
	hung := a.kill(syscall.SIGSTOP)
	reload := wraptest.Run(t, a.Bare(a.work, a.Bin, "reload"), limit)
	if reload.Exit != 125 || !strings.Contains(reload.Err, "what was in force before stays in force") {
		t.Errorf("reload: got exit %d and %q, want 125 and that the old policy stays", reload.Exit, reload.Err)
	}
	a.gone(hung)
	a.want("200 welcome", "until", a.url("/hello"), "200")
	a.want("403", "get", denied)
	if reload := wraptest.Run(t, a.Bare(a.work, a.Bin, "reload"), limit); reload.Exit != 0 {
		t.Errorf("once more: got exit %d, want 0\n%s", reload.Exit, reload.Err)
	}
	a.want("401", "get", denied)
	// The next proxy begins with what was reloaded.
	a.kill(syscall.SIGKILL)
	a.want("401", "until", denied, "401")
	if code := a.end(); code != 0 {
		t.Errorf("got exit %d, want 0\n%s", code, a.err.String())
	}
	a.checkRecord(2)
}

// What is used of a budget stays used, and ends calls at the limit and never
// later, however often the proxy is killed in the middle of them.
func TestBudgetsOutliveTheProxy(t *testing.T) {
	t.Parallel()
	a := prepare(t)
	const requests, bytesOut = 60, 4 << 20
	text := strings.Replace(a.policyText(), "network:\n", fmt.Sprintf(`inference:
  routes: [{name: models, provider: openai-compatible, host: models.test, port: %d, models: ["m*"]}]
  budget: {requests: %d}
network:
  budget: {bytes_out: %d, hosts: 3}
`, a.o.port, requests, bytesOut), 1)
	a.start(text)
	model := fmt.Sprintf("https://models.test:%d/v1/chat/completions", a.o.port)
	a.want("begun", "spend", model)
	for _, n := range []int64{requests / 4, requests / 2} {
		a.waitFor("calls", func() bool { return a.o.asked.Load() >= n })
		a.kill(syscall.SIGKILL)
	}
	a.want("ended", "await", "spend")
	if n := a.o.asked.Load(); n > requests || n < requests*3/4 {
		t.Errorf("calls: got %d, want at most %d and most of them", n, requests)
	}
	if got := a.ask("post", model, `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`); !strings.HasPrefix(got, "403") || !strings.Contains(got, "budget") {
		t.Errorf("one call more: got %q, want the end of the budget", got)
	}

	a.send("pour", a.bytesAt("a.test"))
	a.waitFor("bytes", func() bool { return a.o.poured.Load() > bytesOut/4 })
	a.kill(syscall.SIGKILL)
	if got := a.answer("pour"); !strings.HasPrefix(got, "ended") {
		t.Errorf("pour: got %q, want it ended", got)
	}
	a.want("200 welcome", "until", a.url("/hello"), "200")
	before := a.o.poured.Load()
	a.want("ended", "pour", a.bytesAt("a.test"))
	if n := a.o.poured.Load(); n > bytesOut || n <= before {
		t.Errorf("bytes: got %d, %d of them before the proxy was killed, want more and at most %d", n, before, bytesOut)
	}
	if got := a.ask("get", a.url("/hello")); !strings.HasPrefix(got, "403") {
		t.Errorf("a request after the last byte: got %q, want it denied", got)
	}
	if got := a.ask("tcp", a.bytesAt("c.test")); !strings.HasPrefix(got, "error") {
		t.Errorf("a fourth host: got %q, want it refused", got)
	}
	if code := a.end(); code != 0 {
		t.Errorf("got exit %d, want 0\n%s", code, a.err.String())
	}
	a.checkRecord(3)
}

// waitFor waits for what the servers see.
func (a *agent) waitFor(what string, done func() bool) {
	a.t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatalf("%s: got too few\n%s", what, a.err.String())
		}
	}
}

// A proxy that keeps ending ends the run, with the reason.
func TestProxyKeepsDying(t *testing.T) {
	t.Parallel()
	a := prepare(t)
	a.start(a.policyText())
	old := 0
	for range 6 {
		pid := a.proxy(old)
		a.want("200 welcome", "until", a.url("/hello"), "200") // it serves
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		old = pid
	}
	late := time.AfterFunc(limit, func() { _ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	for a.out.Scan() {
	}
	if code := wraptest.Exit(t, a.cmd.Wait()); code != 125 || !strings.Contains(a.err.String(), "more than 5 times within 2m0s") {
		t.Errorf("got exit %d and %q, want 125 and the reason", code, a.err.String())
	}
	a.gone(old)
	a.checkRecord(6)
}

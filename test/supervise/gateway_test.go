package supervise

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// back is how long a gateway may be away, from its end to its next start.
const back = 2 * time.Second

const apiKey = "0123456789abcdef0123456789abcdef"

// gateway is the stand-in as a supervised gateway.
type gateway struct {
	*service
	state     string // HERMES_HOME
	api, dash int    // ports on the host
	brood     string // what the arguments of its children have in them
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{service: newService(t), api: freePort(t), dash: freePort(t)}
	g.state = filepath.Join(g.Home, ".hermes")
	g.brood = fmt.Sprintf("0.%09d", rand.IntN(1_000_000_000))
	source := g.Dir(t, "source")
	if err := os.CopyFS(source, os.DirFS("../../testdata/agent")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chmod", "-R", "a+rX", source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	install := g.Bare(g.dir, "sh", filepath.Join(source, "make_install.sh"), filepath.Join(g.Home, ".local"), g.state)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install the stand-in: %v\n%s", err, out)
	}
	return g
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// policy is that of hermes-gateway with a dashboard. Kills that come faster than
// any gateway dies need a wider burst.
func (g *gateway) policy(burst int) string {
	text := `version: 1
name: gateway
extends: [builtin:hermes-gateway]
network:
  publish:
    - {listen: "` + strconv.Itoa(g.api) + `", to: "8642"}
    - {listen: "` + strconv.Itoa(g.dash) + `", to: "9119"}
env:
  set:
    HERMES_STANDIN_CHATTER: "0.01"
    HERMES_STANDIN_BROOD: "` + g.brood + `"
supervise:
  services:
    dashboard:
      command: [hermes, dashboard]
      after: [main]
      stop_grace: 10s
      health: {url: "http://127.0.0.1:9119/health"}
`
	if burst > 20 {
		text += fmt.Sprintf("  burst: %d\n", burst)
	}
	return text
}

func (g *gateway) run(burst int) {
	g.t.Helper()
	g.start(g.policy(burst), []string{"API_SERVER_KEY=" + apiKey, "PATH=" + filepath.Join(g.Home, ".local/bin") + ":" + g.Path}, "hermes", "gateway", "run", "--no-supervise")
}

// pid is the process of the gateway on the host.
func (g *gateway) pid() int {
	pids := g.processes("hermes-agent/venv/bin/hermes\x00gateway\x00run")
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !strings.Contains(string(b), g.Home)
	})
	if len(pids) != 1 {
		return 0
	}
	return pids[0]
}

// answers asks a published port.
func (g *gateway) answers(port int) bool {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/health", port))
	if err != nil {
		return false
	}
	defer r.Body.Close()
	return r.StatusCode == http.StatusOK
}

func number(t *testing.T, name string, absent int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return absent
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("parse %s: %v", name, err)
	}
	return n
}

// TestGatewayIsKilled kills the gateway again and again, as it dies in life: by
// SIGKILL, by a crash, and by its own wish to be started again.
func TestGatewayIsKilled(t *testing.T) {
	length, err := time.ParseDuration(valueOr(os.Getenv("HERMES_SUPERVISE"), "40s"))
	if err != nil {
		t.Fatal(err)
	}
	kills := number(t, "HERMES_SUPERVISE_KILLS", 12)
	g := newGateway(t)
	g.run(int(float64(kills) * min(1, float64(2*time.Minute)/float64(length)) * 1.5))
	began, compared, seen := time.Now(), 0, map[string]int{}
	for n := range kills {
		g.awaitLines(n+1, "main", "^gateway on ")
		g.await("answer of the gateway", func() bool { return g.answers(g.api) })
		g.await("answer of the dashboard", func() bool { return g.answers(g.dash) })
		slot := length / time.Duration(kills)
		time.Sleep(time.Until(began.Add(time.Duration(n)*slot + rand.N(slot))))
		pid := g.pid()
		if pid == 0 {
			t.Fatal("got no process of the gateway")
		}
		how := []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR2, syscall.SIGUSR1}[rand.IntN(3)]
		if n < 3 {
			how = []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR2, syscall.SIGUSR1}[n]
		}
		if err := syscall.Kill(pid, how); err != nil {
			t.Fatal(err)
		}
		seen[how.String()]++
		g.await("end of the gateway", func() bool { return syscall.Kill(pid, 0) != nil })
		written := g.written()
		end := g.awaitLines(n+1, "hermes-wrap", "^main: (ended by|exited with)")
		start := g.awaitLines(n+2, "hermes-wrap", "^main: started")
		if away := start.at.Sub(end.at); away > back || away < 0 {
			t.Errorf("kill %d by %v: got it back after %v, want at most %v", n, how, away, back)
		}
		if g.linesUpTo(written) {
			compared++
		}
		g.await("the end of what was in the gateway's process group", func() bool { return len(g.processes("sleep\x003600\x00"+g.brood)) <= 1 })
	}
	g.awaitLines(kills+1, "main", "^gateway on ")
	g.await("answer of the gateway", func() bool { return g.answers(g.api) })
	g.stopInOrder()
	g.checkLines()
	if compared == 0 {
		t.Error("got no kill whose last line could be looked for, want some")
	}
	t.Logf("%d kills within %v: %v; the last line before %d of them was looked for", kills, time.Since(began).Round(time.Second), seen, compared)
}

func valueOr(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// written is the gateway's own word of what it had printed: its pid inside and
// the number of the line.
func (g *gateway) written() string {
	b, err := os.ReadFile(filepath.Join(g.state, "gateway.lines"))
	if err != nil {
		g.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

var chatter = regexp.MustCompile(`^line (\d+) of (\d+)$`)

// linesUpTo tells whether the last line that the killed gateway had printed could
// be compared with the log, where it must be.
func (g *gateway) linesUpTo(written string) bool {
	g.t.Helper()
	pid, last, ok := strings.Cut(written, " ")
	if !ok {
		return false // the next one has begun already
	}
	if !slices.ContainsFunc(g.entries(), func(e entry) bool { return e.text == "line "+last+" of "+pid }) {
		g.t.Errorf("log: got no line %s of %s, which was printed before the kill", last, pid)
	}
	return true
}

// checkLines holds that no line of any gateway is missing between others, that
// none stands there twice, and that standard output had the same.
func (g *gateway) checkLines() {
	g.t.Helper()
	next, lines := map[string]int{}, 0
	all := g.entries()
	for _, e := range all {
		m := chatter.FindStringSubmatch(e.text)
		if m == nil || e.name != "main" || e.mark != "|" {
			continue
		}
		n, err := strconv.Atoi(m[1])
		if err != nil || n != next[m[2]] {
			g.t.Fatalf("got line %s of %s, want line %d", m[1], m[2], next[m[2]])
		}
		next[m[2]]++
		lines++
	}
	if lines == 0 {
		g.t.Fatal("got no numbered line, want many")
	}
	if out := g.parse(g.out.String()); !slices.Equal(out, all) {
		g.t.Errorf("standard output: got %d lines, want the %d of the log", len(out), len(all))
	}
	g.t.Logf("%d numbered lines of %d gateways", lines, len(next))
}

// stopInOrder ends the run and looks at how, and that nothing is left.
func (g *gateway) stopInOrder() {
	g.t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		g.t.Fatal(err)
	}
	if code := g.ended(); code != 0 {
		g.t.Errorf("exit code: got %d, want the gateway's 0", code)
	}
	said := g.said()
	i := slices.Index(said, "dashboard: exited with 0")
	j := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "main: is asked to end within 1m15s") })
	k := slices.Index(said, "main: exited with 0")
	if i < 0 || j < i || k < j {
		g.t.Errorf("got %q last, want the dashboard to end before the gateway is asked to", said[max(0, len(said)-6):])
	}
	g.awaitNone(g.Home)
	g.awaitNone(g.brood)
}

func TestGatewayWithABadConfiguration(t *testing.T) {
	g := newGateway(t)
	g.run(0)
	g.awaitLines(1, "main", "^gateway on ")
	g.Write(t, filepath.Join(g.state, "config.yaml"), "this is no setting\n")
	if err := g.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := g.ended(); code != 78 {
		t.Errorf("exit code: got %d, want 78", code)
	}
	said := g.said()
	for _, want := range []string{"main: exited with 75", "main: starts again in 0s: it asked for it", "main: exited with 78", "main: given up: exit code 78 says that a restart is of no use"} {
		if !slices.Contains(said, want) && !(strings.HasPrefix(want, "main: starts again") && slices.ContainsFunc(said, func(s string) bool { return strings.HasSuffix(s, ": it asked for it") })) {
			t.Errorf("log: got no %q in %q", want, said)
		}
	}
	if n := len(slices.DeleteFunc(said, func(s string) bool { return s != "main: started" })); n != 2 {
		t.Errorf("got %d starts, want 2", n)
	}
	if !strings.Contains(g.err.String(), "main: given up") {
		t.Errorf("stderr: got %q, want it to say that the gateway is given up", g.err.String())
	}
	g.awaitNone(g.brood)
}

// Whenever the launcher is killed, nothing is left.
func TestLauncherIsKilled(t *testing.T) {
	g := newGateway(t)
	const times = 5
	for n := range times {
		s := &gateway{service: newService(t), state: g.state, brood: g.brood, api: freePort(t), dash: freePort(t)}
		s.Home = g.Home
		s.start(s.policy(0), []string{"API_SERVER_KEY=" + apiKey, "PATH=" + filepath.Join(g.Home, ".local/bin") + ":" + g.Path}, "hermes", "gateway", "run")
		if n > 0 {
			time.Sleep(rand.N(1500 * time.Millisecond))
		}
		if err := syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.done
		s.awaitNone(g.Home)
		s.awaitNone(g.brood)
	}
}

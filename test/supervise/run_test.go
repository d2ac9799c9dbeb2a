// Package supervise kills services of supervised runs, and looks at what comes
// back: with the stand-in for Hermes as the gateway, and with small services.
//
//	HERMES_SUPERVISE        how long the gateway is killed at random (40s)
//	HERMES_SUPERVISE_KILLS  how often (12)
package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// patience is how long one thing may take on a busy machine.
const patience = 60 * time.Second

// service is one supervised run.
type service struct {
	wraptest.World
	t   *testing.T
	dir string // the workspace
	cmd *exec.Cmd
	log string
	out buffer // standard output
	err buffer

	done chan struct{}
	exit int
}

// buffer can be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newService prepares a run in a world of its own.
func newService(t *testing.T) *service {
	t.Helper()
	s := &service{World: wraptest.New(t), t: t, done: make(chan struct{})}
	s.dir = s.Dir(t, "ws")
	s.log = filepath.Join(s.Home, ".local/state/hermes-wrap/sessions/run/log")
	return s
}

// start starts the run under a policy.
func (s *service) start(policy string, env []string, argv ...string) {
	s.t.Helper()
	file := s.PolicyFile(s.t, "p", policy)
	s.cmd = s.Bare(s.dir, append([]string{s.Bin, "--quiet", "--policy", file, "--name", "run", "--"}, argv...)...)
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	s.launch()
}

func (s *service) launch() {
	s.t.Helper()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.exit = wraptest.Exit(s.t, s.cmd.Wait())
	}()
	s.t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.done
		if s.t.Failed() {
			text, _ := os.ReadFile(s.log)
			s.t.Logf("stderr:\n%s\nlog:\n%s", s.err.String(), tail(string(text)))
		}
	})
}

func tail(s string) string {
	return s[max(0, len(s)-6000):]
}

// entry is one line of the log.
type entry struct {
	at         time.Time
	name, mark string
	text       string
}

var form = regexp.MustCompile(`^(\S+) (\S+) ([|+~]) (.*)$`)

// parse reads entries; a line that is none fails the test, the last one without
// an end excepted.
func (s *service) parse(text string) (all []entry) {
	s.t.Helper()
	for line := range strings.Lines(text) {
		whole, ended := strings.CutSuffix(line, "\n")
		if !ended {
			break
		}
		m := form.FindStringSubmatch(whole)
		if m == nil {
			s.t.Fatalf("log: got the line %q, want an entry", line)
		}
		at, err := time.Parse("2006-01-02T15:04:05.000Z", m[1])
		if err != nil {
			s.t.Fatalf("log: %v", err)
		}
		all = append(all, entry{at, m[2], m[3], m[4]})
	}
	return all
}

// entries reads the whole log, rotated files first.
func (s *service) entries() (all []entry) {
	s.t.Helper()
	for n := 9; n >= 0; n-- {
		path := s.log
		if n > 0 {
			path = fmt.Sprintf("%s.%d", s.log, n)
		}
		if text, err := os.ReadFile(path); err == nil {
			all = append(all, s.parse(string(text))...)
		}
	}
	return all
}

// said gives what hermes-wrap itself wrote, from an entry on.
func (s *service) said() (all []string) {
	s.t.Helper()
	for _, e := range s.entries() {
		if e.name == "hermes-wrap" {
			all = append(all, e.text)
		}
	}
	return all
}

// await waits until something holds.
func (s *service) await(what string, holds func() bool) {
	s.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("got no %s within %v", what, patience)
		}
		select {
		case <-s.done:
			if holds() {
				return
			}
			s.t.Fatalf("the run ended with %d before there was %s", s.exit, what)
		default:
		}
	}
}

// awaitSaid waits until the log has so many lines of hermes-wrap that match, and
// gives the last of them.
func (s *service) awaitLines(n int, name, pattern string) (last entry) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	s.await(fmt.Sprintf("%d lines of %s with %q", n, name, pattern), func() bool {
		found := 0
		for _, e := range s.entries() {
			if e.name == name && re.MatchString(e.text) {
				found++
				last = e
				if found == n {
					return true
				}
			}
		}
		return false
	})
	return last
}

// ended waits for the end of the run and gives its exit code.
func (s *service) ended() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(2 * patience):
		s.t.Fatalf("the run is not over after %v", 2*patience)
	}
	return s.exit
}

// processes lists those of the whole machine whose arguments have a text in them.
func (s *service) processes(text string) (pids []int) {
	s.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// awaitNone waits until no process has a text in its arguments.
func (s *service) awaitNone(text string) {
	s.t.Helper()
	for began := time.Now(); len(s.processes(text)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("got processes %v with %q in their arguments, want none", s.processes(text), text)
		}
	}
}

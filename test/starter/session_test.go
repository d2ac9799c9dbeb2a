package starter

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/starter/wire"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// built is the launcher of these tests.
type built struct {
	once sync.Once
	dir  string
	err  error
}

var launcher built //nolint:gochecknoglobals // built once a process

func (b *built) build() {
	if b.dir, b.err = os.MkdirTemp("", "starter-"); b.err != nil {
		return
	}
	if b.err = os.Chmod(b.dir, 0o755); b.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.path(), "-tags", "seccomp netgo osusergo", "-trimpath",
		"-ldflags", `-s -w -linkmode external -extldflags "-static"`, "./launcher")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.err = &exec.Error{Name: string(out), Err: err}
	}
}

func (b *built) path() string { return filepath.Join(b.dir, "launcher") }

// session is one run of the launcher.
type session struct {
	cmd *exec.Cmd
	in  io.Writer

	mu      sync.Mutex
	id      int
	waiting map[int]chan wire.Answer
	over    chan struct{}
	end     wire.Answer
	pid     int // of init, on the host
}

func open(t *testing.T, w wraptest.World, dir, policy string, args ...string) *session {
	t.Helper()
	return openBelow(t, w, dir, nil, policy, args...)
}

// openBelow starts the launcher through another program.
func openBelow(t *testing.T, w wraptest.World, dir string, below []string, policy string, args ...string) *session {
	t.Helper()
	launcher.once.Do(launcher.build)
	if launcher.err != nil {
		t.Fatal(launcher.err)
	}
	file := w.PolicyFile(t, strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), policy)
	s := &session{waiting: map[int]chan wire.Answer{}, over: make(chan struct{})}
	s.cmd = w.Bare(dir, slices.Concat(below, []string{launcher.path(), file}, args)...)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	s.in, s.cmd.Stderr = in, &errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(3*limit, func() { _ = s.cmd.Process.Kill() })
	ready := make(chan int, 1)
	go s.read(out, ready)
	t.Cleanup(func() {
		_ = in.Close()
		<-s.over
		late.Stop()
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Log(errs.String())
		}
	})
	select {
	case s.pid = <-ready:
	case <-s.over:
		t.Fatalf("start the sandbox: got %+v, want it to run", s.end)
	}
	return s
}

func (s *session) read(out io.Reader, ready chan<- int) {
	defer close(s.over)
	in := bufio.NewScanner(out)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var a wire.Answer
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			return
		}
		switch {
		case a.Over:
			s.end = a
			return
		case a.Ready && a.Id == 0:
			ready <- a.Pid
		case !a.Ready:
			s.mu.Lock()
			if c := s.waiting[a.Id]; c != nil {
				c <- a
			}
			s.mu.Unlock()
		}
	}
}

// number gives a request its number.
func (s *session) number(q wire.Request) wire.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id++
	q.Id = s.id
	s.waiting[q.Id] = make(chan wire.Answer, 1)
	return q
}

// put sends a numbered request and waits for its answer.
func (s *session) put(t *testing.T, q wire.Request) wire.Answer {
	t.Helper()
	b, err := json.Marshal(q)
	if err != nil {
		t.Error(err)
		return wire.Answer{}
	}
	s.mu.Lock()
	answer := s.waiting[q.Id]
	_, err = s.in.Write(append(b, '\n'))
	s.mu.Unlock()
	if err != nil {
		t.Error(err)
		return wire.Answer{}
	}
	select {
	case a := <-answer:
		return a
	case <-s.over:
		return wire.Answer{Id: q.Id, Error: "the run is over"}
	case <-time.After(limit):
		t.Errorf("%s: no answer within %v", q.Op, limit)
		return wire.Answer{Id: q.Id, Error: "no answer"}
	}
}

func (s *session) ask(t *testing.T, q wire.Request) wire.Answer {
	t.Helper()
	return s.put(t, s.number(q))
}

// start starts a task and gives its number.
func (s *session) start(t *testing.T, q wire.Request) int {
	t.Helper()
	q.Op = "start"
	a := s.ask(t, q)
	if a.Error != "" {
		t.Fatalf("start %q: %s", q.Argv, a.Error)
	}
	return a.Id
}

// wait gives what a task wrote and its wait status.
func (s *session) wait(t *testing.T, task int) (string, unix.WaitStatus) {
	t.Helper()
	a := s.ask(t, wire.Request{Op: "wait", Task: task})
	if a.Error != "" {
		t.Fatalf("wait for task %d: %s", task, a.Error)
	}
	return a.Out, unix.WaitStatus(a.Status)
}

func (s *session) sh(t *testing.T, script string) (string, unix.WaitStatus) {
	t.Helper()
	return s.wait(t, s.start(t, wire.Request{Argv: []string{"sh", "-c", script}}))
}

// last is the run's end.
func (s *session) last(t *testing.T) wire.Answer {
	t.Helper()
	select {
	case <-s.over:
	case <-time.After(limit):
		t.Fatalf("end: not within %v", limit)
	}
	return s.end
}

// states are those of every process below init, as the host sees them.
func (s *session) states(t *testing.T) (all []byte) {
	t.Helper()
	pids := []string{strconv.Itoa(s.pid)}
	for i := 0; i < len(pids); i++ {
		tasks, _ := filepath.Glob("/proc/" + pids[i] + "/task/*/children")
		for _, file := range tasks {
			b, _ := os.ReadFile(file)
			pids = append(pids, strings.Fields(string(b))...)
		}
		b, err := os.ReadFile("/proc/" + pids[i] + "/stat")
		if err != nil || i == 0 {
			continue
		}
		all = append(all, b[strings.LastIndexByte(string(b), ')')+2])
	}
	if len(all) == 0 {
		t.Fatal("got no process below init, want some")
	}
	return all
}

// Command launcher runs a sandbox through the package's own interface and does
// with its handle what it is told: one JSON request a line on standard input,
// one answer a line on standard output.
//
//	launcher POLICY hold
//	launcher POLICY run ARGV…
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/test/starter/wire"
)

func init() { runtime.LockOSThread() }

func main() {
	sandbox.RunStage()
	res, err := run(os.Args[1], os.Args[2] == "hold", os.Args[3:])
	last := wire.Answer{Over: true, Status: int(res.Status)}
	if res.Stopped != nil {
		err = res.Stopped
	}
	last.SetError(err)
	send(last)
}

var out sync.Mutex //nolint:gochecknoglobals // one standard output

func send(a wire.Answer) {
	out.Lock()
	defer out.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(a)
}

func run(file string, hold bool, argv []string) (sandbox.Result, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return sandbox.Result{}, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return sandbox.Result{}, err
	}
	p, err := policy.Load(policy.Options{
		Arg: file, Given: true, Cwd: cwd, Home: home, Getenv: os.Getenv, Builtin: profiles.Lookup,
		FloorPath: "/nonexistent", Uid: os.Geteuid(),
	})
	if err != nil {
		return sandbox.Result{}, err
	}
	dir, err := sandbox.NewRunDir(sandbox.RuntimeBase(os.Getenv))
	if err != nil {
		return sandbox.Result{}, err
	}
	defer dir.Remove()
	if hold {
		argv = []string{"true"}
	}
	host := sandbox.Host{
		Uid: os.Geteuid(), Gid: os.Getegid(), User: "tester", Home: home, Cwd: cwd, Environ: os.Environ(),
		Abi: sandbox.LandlockABI(), Tproxy: sandbox.TproxyLikely(), Limits: sandbox.ProbeLimits(), Run: dir.Path,
	}
	if len(p.Require.MayDegrade) > 0 {
		host.NoNamespaces = sandbox.ProbeTier(context.Background())
	}
	plan, err := sandbox.Compile(p, host, argv)
	if err != nil {
		return sandbox.Result{}, err
	}
	plan.Hold = hold
	filter, err := sandbox.CompileFilter(plan.Filter)
	if err != nil {
		return sandbox.Result{}, err
	}
	if err := dir.Make(); err != nil {
		return sandbox.Result{}, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return sandbox.Result{}, err
	}
	stop := make(chan error, 1)
	return sandbox.Run(context.Background(), sandbox.Options{
		Plan: plan, Filter: filter, Stdio: [3]*os.File{null, os.Stderr, os.Stderr}, Dir: dir,
		Stop: stop, Grace: 20 * time.Second,
		Started: func(s *sandbox.Sandbox) { go (&session{s: s, stop: stop}).serve() },
	})
}

type session struct {
	s     *sandbox.Sandbox
	stop  chan<- error
	tasks sync.Map // wire id to *started
}

type started struct {
	*sandbox.Running
	out chan string
}

// serve answers requests, each on its own, until standard input ends.
func (x *session) serve() {
	send(wire.Answer{Ready: true, Pid: x.s.InitPid()})
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			x.s.End(0)
			return
		}
		var q wire.Request
		if err := json.Unmarshal(line, &q); err != nil {
			fmt.Fprintln(os.Stderr, "launcher:", err)
			os.Exit(1)
		}
		go func() {
			a := wire.Answer{Id: q.Id}
			a.SetError(x.do(q, &a))
			send(a)
		}()
	}
}

func (x *session) do(q wire.Request, a *wire.Answer) error {
	switch q.Op {
	case "start":
		return x.start(q, a)
	case "wait":
		k, err := x.task(q)
		if err != nil {
			return err
		}
		ws, err := k.Wait()
		a.Status, a.Out = int(ws), <-k.out
		return err
	case "signal":
		k, err := x.task(q)
		if err != nil {
			return err
		}
		return k.Signal(unix.Signal(q.Signal), q.Group)
	case "pause":
		return x.s.Pause()
	case "resume":
		return x.s.Resume()
	case "end":
		x.s.End(unix.WaitStatus(q.Signal))
		return nil
	case "stop":
		x.stop <- errors.New("told to stop")
		return nil
	case "dial":
		return x.dial(q, a)
	case "listen":
		return x.listen(q, a)
	}
	return fmt.Errorf("unknown request %q", q.Op)
}

func (x *session) task(q wire.Request) (*started, error) {
	v, ok := x.tasks.Load(q.Task)
	if !ok {
		return nil, fmt.Errorf("no task %d", q.Task)
	}
	k, _ := v.(*started)
	return k, nil
}

func (x *session) start(q wire.Request, a *wire.Answer) error {
	t := sandbox.Task{Argv: q.Argv, Env: q.Env, Cwd: q.Cwd, Terminal: q.Terminal, Size: unix.Winsize{Row: 33, Col: 77}}
	for range q.Long {
		t.Argv = append(t.Argv, strings.Repeat("x", 32<<10))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	if !q.Terminal {
		t.Stdio = [3]*os.File{nil, w, w}
	}
	k, err := x.s.Start(t)
	if err != nil {
		r.Close()
		return err
	}
	from := r
	if k.Master != nil {
		r.Close()
		from = k.Master
	}
	s := &started{k, make(chan string, 1)}
	go func() {
		b, _ := io.ReadAll(from) // a terminal ends with EIO
		from.Close()
		s.out <- string(b)
	}()
	x.tasks.Store(q.Id, s)
	a.Pid = k.Pid
	return nil
}

// dial says "ping" and gives what comes back.
func (x *session) dial(q wire.Request, a *wire.Answer) error {
	f, err := x.s.Dial(q.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		return err
	}
	b, err := bufio.NewReader(c).ReadString('\n')
	a.Out = b
	return err
}

// listen gives the first message, and answers once the socket is there with Ready.
func (x *session) listen(q wire.Request, a *wire.Answer) error {
	f, err := x.s.Listen(q.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	send(wire.Answer{Id: q.Id, Ready: true})
	b := make([]byte, 4096)
	if kind, _ := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE); kind == unix.SOCK_DGRAM {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		n, _, err := c.ReadFrom(b)
		a.Out = string(b[:n])
		return err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := io.ReadAll(c)
	a.Out = string(all)
	return err
}

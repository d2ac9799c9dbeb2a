package escape

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// worldArg makes this program the first process of a world: it is started in
// namespaces of its own, gets orders and jobs on its standard input, and
// answers with results on its standard output.
const worldArg = "escape-world"

// asked is what a world is sent: first orders, then jobs.
type asked struct {
	Number int
	Orders *orders `json:",omitempty"`
	Job    *job    `json:",omitempty"`
}

// told is what it answers: results, and then that the job is done.
type told struct {
	Result *Result `json:",omitempty"`
	Done   bool    `json:",omitempty"`
	Spoilt bool    `json:",omitempty"` // the world ends, and another one is needed
	Error  string  `json:",omitempty"`
}

// share has several worlds work on the jobs, those first that may take long.
func (s Settings) share(ctx context.Context, o orders, jobs []job, say func(Result)) error {
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.Case.Kill, a.Case.Kill) })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan job)
	go func() {
		defer close(queue)
		for _, j := range jobs {
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	for n := range min(max(s.Workers, 1), len(jobs)) {
		workers.Go(func() {
			err := s.supply(ctx, n, o, queue, func(r Result) {
				mu.Lock()
				defer mu.Unlock()
				say(r)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				cancel()
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// supply has worlds work, one after the other, until there are no jobs.
func (s Settings) supply(ctx context.Context, n int, o orders, queue <-chan job, say func(Result)) error {
	for {
		spoilt, err := s.live(ctx, n, o, queue, say)
		if err != nil || !spoilt {
			return err
		}
	}
}

// live starts a world and gives it jobs until there are none, or until one has
// spoilt it.
func (s Settings) live(ctx context.Context, n int, o orders, queue <-chan job, say func(Result)) (bool, error) {
	// The kernel ends what a thread started when the thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The world cannot remove what it has mounted something on.
	tmp, err := os.MkdirTemp("", "escapes-world-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", worldArg)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = separate()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start a world: %w", err)
	}
	spoilt, err := converse(json.NewEncoder(in), json.NewDecoder(out), asked{Number: n, Orders: &o}, queue, say)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	_ = in.Close()
	if waited := cmd.Wait(); err == nil && waited != nil && ctx.Err() == nil {
		err = fmt.Errorf("a world: %w", waited)
	}
	return spoilt, err
}

func converse(to *json.Encoder, from *json.Decoder, first asked, queue <-chan job, say func(Result)) (spoilt bool, err error) {
	if err := to.Encode(first); err != nil {
		return false, err
	}
	for j := range queue {
		if err := to.Encode(asked{Job: &j}); err != nil {
			return false, err
		}
		for done := false; !done; {
			var t told
			if err := from.Decode(&t); err != nil {
				return false, fmt.Errorf("%s: a world ended: %w", j.Case.ID, err)
			}
			switch {
			case t.Error != "":
				return false, errors.New(t.Error)
			case t.Result != nil:
				say(*t.Result)
			}
			if done = t.Done; t.Spoilt {
				return true, nil
			}
		}
	}
	return false, nil
}

// separate are the namespaces of a world. An ordinary user gets the
// capabilities for them in a user namespace where it is itself.
func separate() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN}
	}
	return a
}

// serveWorld is the first process of a world.
func serveWorld() int {
	// All is started by this thread: what it gives up, no child has.
	runtime.LockOSThread()
	// A signal from inside, to everybody, must not end the world; one that is
	// ignored would be ignored by every child too.
	signal.Notify(make(chan os.Signal, 1))
	// What this program inherited by chance is no descriptor of the cases.
	for fd := 3; fd < 1024; fd++ {
		unix.CloseOnExec(fd)
	}
	if err := inWorld(os.Stdin, os.Stdout); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(told{Error: err.Error()})
		return 1
	}
	return 0
}

func inWorld(in io.Reader, out io.Writer) error {
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	var first asked
	if err := from.Decode(&first); err != nil || first.Orders == nil {
		return fmt.Errorf("read orders: %w", err)
	}
	dir, err := os.MkdirTemp("", "escapes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chmod(dir, 0o755), enter(dir)); err != nil {
		return err
	}
	if first.Orders.Programs[firejail] != "" {
		// It takes a machine whose first processes are none of the kernel's for a
		// sandbox, and then does nothing.
		if err := os.WriteFile("/proc/self/comm", []byte("kthreadd"), 0); err != nil {
			return err
		}
	}
	w := &worker{orders: *first.Orders, number: first.Number}
	made, err := newWorld()
	if err != nil {
		return err
	}
	defer made.close()
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	w.world = made
	for {
		var next asked
		if err := from.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := w.do(context.Background(), *next.Job, func(r Result) { _ = to.Encode(told{Result: &r}) }); err != nil {
			return err
		}
		if err := to.Encode(told{Done: true, Spoilt: w.spoilt}); err != nil || w.spoilt {
			return err
		}
	}
}

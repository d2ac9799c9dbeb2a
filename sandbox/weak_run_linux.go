package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// box is what a run is in: libcontainer's container, or the keeper of the tier
// without namespaces.
type box interface {
	// start runs init with the standard streams and the inherited descriptors.
	start(stdio [3]*os.File, extra []*os.File) error
	// pid is init's on the host, or 0.
	pid() int
	// kill ends init and with it everything below it.
	kill()
	// recover puts covers back, where there are any.
	recover(p Plan) error
	// destroy waits for init and removes what is left.
	destroy() error
}

// newBox makes the box of a plan; nothing runs yet.
func newBox(d *RunDir, p Plan) (box, error) {
	if p.Weak != nil {
		return newKeep(p)
	}
	return createContainer(d.state(), d.Id, d.root(), p)
}

// keep is the launcher's side of the keeper.
type keep struct {
	cmd   *exec.Cmd
	dirs  []string
	spare []int // our children before: they are no part of the tree
}

// newKeep makes the launcher the reaper behind the keeper: what outlives the
// keeper comes to us.
func newKeep(p Plan) (*keep, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of the tree: %w", err)
	}
	table, err := processTable()
	if err != nil {
		return nil, err
	}
	return &keep{spare: table[os.Getpid()], dirs: p.Weak.Dirs}, nil
}

func (k *keep) start(stdio [3]*os.File, extra []*os.File) error {
	k.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{keeperArg0}, Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2], ExtraFiles: extra,
		// A session of its own: Ctrl-C and a kill of the launcher's group pass it by.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return k.cmd.Start()
}

func (k *keep) pid() int {
	if k.cmd == nil || k.cmd.Process == nil {
		return 0
	}
	return k.cmd.Process.Pid
}

func (k *keep) kill() {
	table, err := processTable()
	if err != nil || k.pid() == 0 {
		return
	}
	for _, pid := range descendants(table, k.pid(), nil) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = k.cmd.Process.Kill()
}

// recover has nothing to put back: without mounts there are no covers.
func (k *keep) recover(Plan) error {
	return errors.New("BUG: the keeper has no covers")
}

func (k *keep) destroy() error {
	if k.pid() != 0 {
		_ = k.cmd.Wait()
	}
	endDescendants(os.Getpid(), k.spare)
	for _, dir := range k.dirs {
		if err := removeTree(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a directory whose owner is us, whatever modes were left on
// what is inside.
func removeTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// ProbeTier says what keeps namespaces from being had on this machine; nil when
// they can be had, or when what failed is not known to mean that. It builds a
// throw-away sandbox, in some 20 ms, so it is for policies that consent.
func ProbeTier(ctx context.Context) *Finding {
	ctx, cancel := context.WithTimeout(ctx, preflightTime)
	defer cancel()
	return lackOf(probeNamespaces(ctx), lookAround())
}

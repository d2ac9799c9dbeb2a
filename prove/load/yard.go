package load

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

//go:embed c/load.c
var loadSource []byte

// yard is where the account works, with the program that loads.
type yard struct {
	report.Options
	dir, home, ws, runtime, state string
	uid, gid                      int
	cred                          *syscall.Credential
	env                           []string
}

func newYard(ctx context.Context, o report.Options) (*yard, error) {
	who, err := user.Current()
	if o.User != "" {
		who, err = user.Lookup(o.User)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the account: %w", err)
	}
	y := &yard{Options: o}
	y.uid, _ = strconv.Atoi(who.Uid)
	y.gid, _ = strconv.Atoi(who.Gid)
	if o.User != "" && os.Getuid() == 0 {
		y.cred = &syscall.Credential{Uid: uint32(y.uid), Gid: uint32(y.gid)}
	}
	if y.dir, err = os.MkdirTemp(who.HomeDir, "prove-load-"); err != nil {
		return nil, err
	}
	y.home, y.ws, y.runtime = filepath.Join(y.dir, "home"), filepath.Join(y.dir, "ws"), filepath.Join(y.dir, "run")
	y.state = filepath.Join(y.home, ".local/state/hermes-wrap")
	y.env = []string{"HOME=" + y.home, "PATH=/usr/local/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR=" + y.runtime, "LANG=C.UTF-8", "TERM=dumb"}
	source := filepath.Join(y.dir, "load.c")
	for _, d := range []string{y.home, y.ws, y.runtime} {
		err = errors.Join(err, os.Mkdir(d, 0o700))
	}
	if err = errors.Join(err, os.WriteFile(source, loadSource, 0o644)); err != nil {
		return y, err
	}
	out, err := exec.CommandContext(ctx, "cc", "-O2", "-static", "-o", filepath.Join(y.ws, "load"), source).CombinedOutput()
	if err != nil {
		return y, fmt.Errorf("compile the load: %w\n%s", err, out)
	}
	return y, y.own(y.dir)
}

func (y *yard) close() { _ = os.RemoveAll(y.dir) }

func (y *yard) own(dir string) error {
	if y.cred == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, y.uid, y.gid))
	})
}

// policy writes a policy over strict and gives its path.
func (y *yard) policy(name, text string) (string, error) {
	path := filepath.Join(y.dir, name+".yaml")
	err := os.WriteFile(path, []byte("version: 1\nname: "+name+"\nextends: [builtin:strict]\n"+text), 0o600)
	if err == nil && y.cred != nil {
		err = os.Chown(path, y.uid, y.gid)
	}
	return path, err
}

// bare is a command of the account outside.
func (y *yard) bare(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = y.ws, y.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: y.cred, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// inside is the program inside.
func (y *yard) inside(ctx context.Context, policy string, args ...string) *exec.Cmd {
	return y.bare(ctx, slices.Concat([]string{y.Bin, "--quiet", "--policy", policy, "--", filepath.Join(y.ws, "load")}, args)...)
}

// ended is how a command went.
type ended struct {
	out, err string
	exit     int
	took     time.Duration
}

// started are the processes that run began, by number: launchers name their control
// groups after themselves.
var started sync.Map //nolint:gochecknoglobals // of this process, as its children are

// run waits for a command; one that is not done in time is killed and an error.
func run(ctx context.Context, limit time.Duration, make func(ctx context.Context) *exec.Cmd) (ended, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := make(ctx)
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	began := time.Now()
	err := cmd.Run()
	if cmd.Process != nil {
		started.Store(cmd.Process.Pid, nil)
	}
	e := ended{out: strings.TrimSpace(out.String()), err: strings.TrimSpace(errs.String()), took: time.Since(began)}
	if ctx.Err() != nil {
		return e, fmt.Errorf("%v: not done after %v", cmd.Args[len(cmd.Args)-3:], limit)
	}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return e, err
	}
	e.exit = cmd.ProcessState.ExitCode()
	return e, nil
}

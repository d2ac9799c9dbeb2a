// Package wraptest is what the tests of the built binary share: the binary, the
// account it is started as, a runtime directory of the test's own, and a small
// probe program to run inside. The environment says what to test; see package
// harness for the variables. Without HERMES_WRAP_BIN the binary is built once.
package wraptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// World is one account with a home, a runtime directory and the binary.
type World struct {
	harness.Host
	// Bin is the hermes-wrap binary, executable by the account.
	Bin string
	// Probe is the program of test/wraptest/probe, static.
	Probe string
	// Uid and Gid are the account's.
	Uid, Gid int
	// Runtime is XDG_RUNTIME_DIR of the commands: nothing but the launcher
	// writes there.
	Runtime string

	cred *syscall.Credential
}

// New makes a world; the test removes its home at its end.
func New(t testing.TB) World {
	t.Helper()
	w := World{Host: harness.NewHost(t), Bin: binary(t), Probe: probe(t)}
	w.Uid, w.Gid = number(t, w.User.Uid), number(t, w.User.Gid)
	if os.Getuid() == 0 && w.Uid != 0 {
		w.cred = &syscall.Credential{Uid: uint32(w.Uid), Gid: uint32(w.Gid)}
	}
	w.Runtime = w.Dir(t, "runtime")
	if err := os.Chmod(w.Runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("parse the account's ids: %v", err)
	}
	return n
}

// RunBase is where the launcher keeps run directories in this world.
func (w World) RunBase() string { return filepath.Join(w.Runtime, "hermes-wrap") }

// Environ is the whole environment of a command.
func (w World) Environ() []string {
	return append(w.Host.Environ(), "XDG_RUNTIME_DIR="+w.Runtime)
}

// Bare is a command of the account, outside.
func (w World) Bare(dir string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	if path := w.Find(argv[0]); path != "" && filepath.Base(argv[0]) == argv[0] {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Dir, cmd.Env = dir, w.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.cred, Setpgid: true}
	return cmd
}

// Wrap is the same command inside, under a policy.
func (w World) Wrap(dir, policy string, argv ...string) *exec.Cmd {
	return w.Bare(dir, append([]string{w.Bin, "--quiet", "--policy", policy, "--"}, argv...)...)
}

// PolicyFile writes a policy where the account reads it.
func (w World) PolicyFile(t testing.TB, name, text string) string {
	t.Helper()
	dir := filepath.Join(w.Home, "policies")
	if _, err := os.Stat(dir); err != nil {
		w.Dir(t, "policies")
	}
	path := filepath.Join(dir, name+".yaml")
	w.Write(t, path, text)
	return path
}

// Program copies the probe into a directory and gives its path.
func (w World) Program(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile(w.Probe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "probe")
	w.Write(t, path, string(text))
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Ended is how a command ended.
type Ended struct {
	Out, Err string
	Exit     int // as a shell shows it: 128+n after signal n
}

// Run runs a command to its end; one that takes longer than limit is killed
// with its process group and fails the test.
func Run(t testing.TB, cmd *exec.Cmd, limit time.Duration) Ended {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %q: %v", cmd.Args, err)
	}
	late := time.AfterFunc(limit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("run %q: not done after %v\n%s", cmd.Args, limit, errs.String())
	}
	return Ended{out.String(), errs.String(), Exit(t, err)}
}

// Exit gives the exit code of a wait.
func Exit(t testing.TB, err error) int {
	t.Helper()
	var ee *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &ee):
		t.Fatalf("wait: %v", err)
	}
	if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ee.ExitCode()
}

// built holds what was built for this test process.
type built struct {
	once sync.Once
	path string
	err  error
}

var wrapper, helper built //nolint:gochecknoglobals // built once a process

func binary(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("HERMES_WRAP_BIN"); bin != "" {
		return bin
	}
	wrapper.once.Do(func() {
		wrapper.path, wrapper.err = build("hermes-wrap", "1", "-tags", "seccomp netgo osusergo", "-trimpath",
			"-ldflags", `-s -w -linkmode external -extldflags "-static"`, "github.com/hermes-wrap/hermes-wrap/cmd/hermes-wrap")
	})
	if wrapper.err != nil {
		t.Fatal(wrapper.err)
	}
	return wrapper.path
}

func probe(t testing.TB) string {
	t.Helper()
	helper.once.Do(func() {
		helper.path, helper.err = build("probe", "0", "-trimpath", "-ldflags", "-s -w", "github.com/hermes-wrap/hermes-wrap/test/wraptest/probe")
	})
	if helper.err != nil {
		t.Fatal(helper.err)
	}
	return helper.path
}

func build(name, cgo string, args ...string) (string, error) {
	dir, err := os.MkdirTemp("", "wraptest-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", path}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %q: %w\n%s", name, err, out)
	}
	return path, os.Chmod(path, 0o755)
}

// Main runs the tests of a package and removes what was built for them.
func Main(m *testing.M) int {
	code := m.Run()
	for _, b := range []*built{&wrapper, &helper} {
		if b.path != "" {
			_ = os.RemoveAll(filepath.Dir(b.path))
		}
	}
	return code
}

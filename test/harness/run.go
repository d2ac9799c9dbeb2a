package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Command is one command to run.
type Command struct {
	// Argv is the program and its arguments.
	Argv []string
	// Dir is the directory it starts in.
	Dir string
	// Env is added to the environment of Host.Environ.
	Env []string
	// Stdin is what it reads; empty is /dev/null.
	Stdin string
	// Limit ends it with SIGKILL.
	Limit time.Duration
}

// Result is how a command ended.
type Result struct {
	Stdout string
	Stderr string
	// Exit is the exit status as a shell shows it: 128+n after signal n.
	Exit int
	// Took is the wall time.
	Took time.Duration
}

// Environ is the whole environment of a command, before its own additions.
func (h Host) Environ() []string {
	return []string{
		"PATH=" + h.Path,
		"HOME=" + h.Home,
		"USER=" + h.User.Username,
		"LOGNAME=" + h.User.Username,
		"SHELL=/bin/bash",
		"LANG=C.UTF-8",
		"TERM=xterm-256color",
		"TZ=UTC",
	}
}

// Run runs a command with pipes on its output and waits for it.
func (h Host) Run(c Command) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Limit)
	defer cancel()
	cmd := h.command(ctx, c)
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started := time.Now()
	err := cmd.Run()
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), Took: time.Since(started)}
	if ctx.Err() != nil {
		return r, fmt.Errorf("run %q: not done after %v", c.Argv[0], c.Limit)
	}
	r.Exit, err = exitStatus(err)
	return r, err
}

func (h Host) command(ctx context.Context, c Command) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	if path := h.Find(c.Argv[0]); path != "" && !strings.Contains(c.Argv[0], "/") {
		cmd.Path, cmd.Err = path, nil
	}
	cmd.Dir = c.Dir
	cmd.Env = append(h.Environ(), c.Env...)
	// A process group of its own: at the limit everything started with the
	// command goes, and a signal that it sends to its group misses the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.cred, Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	// A background process that keeps the pipe open must not hold the test.
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

func exitStatus(err error) (int, error) {
	var exit *exec.ExitError
	if err == nil {
		return 0, nil
	}
	if !errors.As(err, &exit) {
		return 0, err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

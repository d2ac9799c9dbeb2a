package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// commandTime bounds a command, which may ask the user to unlock something.
const commandTime = 30 * time.Second

// kept are the variables that a command gets beside PATH: what password managers need to
// find their agents and their state, and nothing that holds a secret.
var kept = []string{
	"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TERM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
	"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
	"DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "GNUPGHOME", "GPG_TTY", "PASSWORD_STORE_DIR",
}

var errLong = errors.New("it printed more than a secret")

// program finds the program of a command as it will be executed: by its
// absolute path, or in PATH. Nothing is looked for in the working directory,
// nor where a program could be put from inside: it would run outside.
func (r Reader) program(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("run command %q: write its absolute path", name)
	}
	for _, dir := range r.searched() {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("run command %q: it is not in PATH, or only in directories that can be changed from inside", name)
}

// searched gives the directories of PATH that are absolute and cannot be changed
// from inside. A command gets no others: an interpreter is looked up in them.
func (r Reader) searched() []string {
	path, _ := r.lookup("PATH")
	return slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return !filepath.IsAbs(dir) || r.changeable(dir)
	})
}

// apart refuses a command whose program, or a file among whose arguments, can be
// changed from inside.
func (r Reader) apart(program string, argv []string) error {
	paths := []string{program}
	for _, arg := range argv[1:] {
		paths = append(paths, filepath.Join("/", arg)) // it runs in the root directory
		if _, value, ok := strings.Cut(arg, "="); ok {
			paths = append(paths, filepath.Join("/", value))
		}
	}
	for _, path := range paths {
		if r.changeable(path) {
			return fmt.Errorf("run command %q: its program or a file among its arguments can be changed from inside: whoever does runs outside", argv[0])
		}
	}
	return nil
}

// fromCommand runs a program outside, without a shell, in the root directory:
// many programs obey files that they find where they are started, and the
// caller's directory is often the agent's. What it prints on standard error is
// not shown: it may hold what it failed to print.
func (r Reader) fromCommand(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	program, err := r.program(argv[0])
	if err == nil {
		err = r.apart(program, argv)
	}
	if err != nil {
		return "", err
	}
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := &bounded{}
	cmd := exec.CommandContext(ctx, program, argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = "/", r.reduced(), out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
		return chomp(out.buf.String()), nil
	case out.over:
		return "", fmt.Errorf("run command %q: %w", argv[0], errLong)
	case ctx.Err() == context.DeadlineExceeded:
		return "", fmt.Errorf("run command %q: it did not end within %v", argv[0], commandTime)
	case errors.As(err, &status):
		return "", fmt.Errorf("run command %q: %s", argv[0], status.ProcessState)
	}
	return "", fmt.Errorf("run command %q: %w", argv[0], cause(err))
}

// cause drops the arguments from an error of exec.
func cause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func (r Reader) reduced() []string {
	var out []string
	if dirs := r.searched(); len(dirs) > 0 {
		out = append(out, "PATH="+strings.Join(dirs, string(filepath.ListSeparator)))
	}
	for _, name := range kept {
		if v, ok := r.lookup(name); ok && !strings.ContainsRune(v, 0) {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// bounded keeps what is printed, as long as it can be a secret.
type bounded struct {
	buf  bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > maxLength+3 {
		b.over = true
		return 0, errLong
	}
	return b.buf.Write(p)
}

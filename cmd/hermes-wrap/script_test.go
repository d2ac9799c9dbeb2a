package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) {
	if isProxyRole() { // of a test that starts some
		os.Exit(runProxyRole())
	}
	os.Exit(wraptest.Main(m))
}

// TestScripts runs the binary as a process, by an ordinary user: one behaviour
// a script. A script starts in $WORK/ws, the workspace; $WORK/home is HOME.
// Beside testscript's own commands there are
//
//	run CODE COMMAND…   runs a command as that user and requires its exit code
//	json PATH WANT      compares a value of the last stdout ("layers.0.name")
func TestScripts(t *testing.T) {
	w := wraptest.New(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		WorkdirRoot:        w.Dir(t, "scripts"),
		RequireUniqueNames: true,
		Setup:              func(e *testscript.Env) error { return setup(w, e) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"run":  func(ts *testscript.TestScript, neg bool, args []string) { run(w, ts, neg, args) },
			"json": jsonCommand,
		},
	})
}

func setup(w wraptest.World, e *testscript.Env) error {
	for _, name := range []string{"ws", "home", "runtime"} {
		if err := os.MkdirAll(filepath.Join(e.WorkDir, name), 0o700); err != nil {
			return err
		}
	}
	e.Cd = filepath.Join(e.WorkDir, "ws")
	e.Vars = append(e.Vars, "PATH="+w.Path, "HOME="+filepath.Join(e.WorkDir, "home"), "XDG_RUNTIME_DIR="+filepath.Join(e.WorkDir, "runtime"),
		"USER="+w.User.Username, "BIN="+w.Bin, "TERM=xterm", "TMPDIR="+filepath.Join(e.WorkDir, ".tmp"))
	return filepath.WalkDir(e.WorkDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// Policies that others may write are refused, whatever the umask is here.
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return errors.Join(os.Lchown(path, w.Uid, w.Gid), os.Chmod(path, mode))
	})
}

func run(w wraptest.World, ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: run CODE COMMAND [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	argv := args[1:]
	if argv[0] == "hermes-wrap" {
		argv = append([]string{w.Bin}, argv[1:]...)
	}
	if os.Getuid() == 0 && w.Uid != 0 {
		argv = append([]string{"setpriv", "--reuid", strconv.Itoa(w.Uid), "--regid", strconv.Itoa(w.Gid), "--clear-groups", "--"}, argv...)
	}
	got, err := exitOf(ts.Exec(argv[0], argv[1:]...))
	ts.Check(err)
	if got != want {
		ts.Fatalf("exit: got %d, want %d", got, want)
	}
}

// exitOf gives the exit code as a shell shows it.
func exitOf(err error) (int, error) {
	var ended *exec.ExitError
	if err == nil || !errors.As(err, &ended) {
		return 0, err
	}
	if ws, ok := ended.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ended.ExitCode(), nil
}

func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: json PATH WANT")
	}
	var all any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &all))
	got, err := valueAt(all, args[0])
	ts.Check(err)
	if (got == args[1]) == neg {
		ts.Fatalf("%s: got %q, want %q (not: %t)", args[0], got, args[1], neg)
	}
}

// valueAt gives the value at a path of keys and indices as text; "len" is
// the number of elements, and a missing key is "".
func valueAt(v any, path string) (string, error) {
	for key := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			if key == "len" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				return "", fmt.Errorf("no element %q of %d", key, len(at))
			}
			v = at[i]
		default:
			return "", fmt.Errorf("%q: nothing below it", key)
		}
	}
	if v == nil {
		return "", nil
	}
	return fmt.Sprint(v), nil
}

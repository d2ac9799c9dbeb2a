package policy

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// The remedy is for what went wrong, not for what mostly does.
func TestFileProblemNamesTheRemedy(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{syscall.EMFILE: "ulimit -n", syscall.ENFILE: "ulimit -n", syscall.EACCES: "that you can read"} {
		var p Problems
		if err := fileProblem("floor.yaml", &fs.PathError{Op: "open", Path: "floor.yaml", Err: errno}); !errors.As(err, &p) || !strings.Contains(p[0].Hint, want) {
			t.Errorf("%v: got %v, want a remedy with %q", errno, err, want)
		}
	}
}

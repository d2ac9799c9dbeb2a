package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the search program, built once a process.
var built struct { //nolint:gochecknoglobals // built once a process
	once sync.Once
	path string
	err  error
}

func searchProgram(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "search-"); built.err != nil {
			return
		}
		built.path = filepath.Join(dir, "search")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", built.path, "./search")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s", out)
			built.err = err
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

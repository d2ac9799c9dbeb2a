package everyday

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestEngineSocket asks a container engine for its version, as its client does:
// it answers outside, and inside there is no way to it, wherever its socket is.
func TestEngineSocket(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"curl"})
	work, run := w.Dir(t, "work"), w.Dir(t, "run")
	var asked atomic.Int32
	for _, socket := range []string{filepath.Join(run, "engine.sock"), filepath.Join(work, "engine.sock")} {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(socket, 0o666); err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			_, _ = w.Write([]byte(`{"Version":"1"}`))
		})}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		ask := []string{"curl", "-sS", "--unix-socket", socket, "http://engine/version"}
		if got := wraptest.Run(t, w.Bare(work, ask...), patience); !strings.Contains(got.Out, "Version") {
			t.Fatalf("bare: got %q\n%s", got.Out, got.Err)
		}
		before := asked.Load()
		got := wraptest.Run(t, w.Wrap(work, "strict", ask...), patience)
		if got.Exit != 7 || asked.Load() != before {
			t.Errorf("%s: got exit %d and %d requests, want curl's 7 and none\n%s", socket, got.Exit, asked.Load()-before, got.Err)
		}
	}
}

// TestNoHelperPrograms launches where no command can be found.
func TestNoHelperPrograms(t *testing.T) {
	w := wraptest.New(t)
	cmd := w.Wrap(w.Dir(t, "work"), "strict", "/bin/sh", "-c", "echo works")
	cmd.Env = []string{"HOME=" + w.Home, "PATH=/nonexistent", "XDG_RUNTIME_DIR=" + w.Runtime}
	if got := wraptest.Run(t, cmd, patience); got.Exit != 0 || got.Out != "works\n" {
		t.Errorf("got exit %d, %q, want it to work\n%s", got.Exit, got.Out, got.Err)
	}
}

// TestReadOnlyDirectory starts where nothing may be written: the sandbox is
// there all the same.
func TestReadOnlyDirectory(t *testing.T) {
	w := wraptest.New(t)
	work := w.Dir(t, "work")
	w.Write(t, filepath.Join(w.Home, "outside"), "text")
	if err := os.Chmod(work, 0o555); err != nil {
		t.Fatal(err)
	}
	script := "cat ../outside && echo seen; echo x >file && echo written; echo done"
	if got := wraptest.Run(t, w.Wrap(work, "strict", "sh", "-c", script), patience); got.Exit != 0 || got.Out != "done\n" {
		t.Errorf("got exit %d, %q, want nothing seen and nothing written\n%s", got.Exit, got.Out, got.Err)
	}
	if entries, err := os.ReadDir(work); err != nil || len(entries) != 0 {
		t.Errorf("afterwards on the host: got %v, %v, want it empty", entries, err)
	}
}

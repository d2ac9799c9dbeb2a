package everyday

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestDevServer runs vite in the background of a shell inside and uses it from
// outside: a page, and a module that vite translates, again when it was changed.
func TestDevServer(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"node"})
	modules := filepath.Join(npm.Require(t, "everyday"), "node_modules")
	work, port := w.Dir(t, "work"), wraptest.FreePort(t)
	w.Write(t, filepath.Join(work, "index.html"), "<script type=module src=/m.ts></script>\n")
	w.Write(t, filepath.Join(work, "m.ts"), "const x: number = 41\n")
	policy := w.PolicyFile(t, "vite", fmt.Sprintf("version: 1\nextends: [builtin:strict]\nfilesystem: {exec: [%q]}\n", modules))
	// The shell that starts it ends at once; the main command goes on.
	script := fmt.Sprintf("sh -c 'node %s/vite/bin/vite.js --port 5173 </dev/null >log 2>&1 &'; read line", modules)
	cmd := w.Bare(work, w.Bin, "--quiet", "--policy", policy, "--publish", fmt.Sprintf("%d:5173", port), "--", "bash", "-c", script)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	wraptest.Serve(t, cmd, port)
	base := fmt.Sprintf("127.0.0.1:%d", port)
	page := eventually(t, work, func() (string, bool) { return get("http://" + base + "/") })
	if !strings.Contains(page, "/@vite/client") {
		t.Errorf("got %q, want the page", page)
	}
	if module, _ := get("http://" + base + "/m.ts"); !strings.HasPrefix(module, "const x = 41") {
		t.Errorf("got %q, want the module translated", module)
	}
	// vite keeps what it translated until it hears of a change.
	w.Write(t, filepath.Join(work, "m.ts"), "const x: number = 42\n")
	eventually(t, work, func() (string, bool) {
		module, _ := get("http://" + base + "/m.ts")
		return module, strings.HasPrefix(module, "const x = 42")
	})
	// The run ends with its main command, and the server with it.
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, work, func() (string, bool) {
		_, answers := get("http://" + base + "/")
		return "", !answers
	})
}

func get(url string) (string, bool) {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return "", false
	}
	defer r.Body.Close()
	b, err := io.ReadAll(bufio.NewReader(r.Body))
	return string(b), err == nil && r.StatusCode == http.StatusOK
}

// eventually asks until it is so.
func eventually(t *testing.T, work string, ask func() (string, bool)) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if said, ok := ask(); ok {
			return said
		}
	}
	log, _ := os.ReadFile(filepath.Join(work, "log"))
	t.Fatalf("got nothing in a minute\n%s", log)
	return ""
}

// Package mcp runs MCP servers from npm inside the sandbox, driven by the official
// SDK inside the same sandbox: how an agent uses them.
package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// limit is no measure of speed: a machine under load may take long.
const limit = 3 * time.Minute

// TestServers drives each server over stdio and over Streamable HTTP, bare and
// inside: the answers are the same, and what a server is made to read outside of the
// workspace is what the sandbox shows.
func TestServers(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"node"})
	modules := filepath.Join(npm.Require(t, "mcp"), "node_modules", "@modelcontextprotocol")
	work := w.Dir(t, "work")
	for _, script := range []string{"drive.mjs", "bridge.mjs"} {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(t, filepath.Join(work, script), string(text))
	}
	policy := w.PolicyFile(t, "mcp", fmt.Sprintf("version: 1\nworkspace: {path: ., access: write}\nfilesystem: {read: [%q]}\n", filepath.Dir(modules)))
	data := func(name string) []string {
		dir := filepath.Join(work, name)
		w.Write(t, filepath.Join(dir, "there.txt"), "there")
		return []string{"node", filepath.Join(work, "drive.mjs"), filepath.Join(modules, "sdk"), modules, dir}
	}
	bare := answers(t, wraptest.Run(t, w.Bare(work, data("bare")...), limit))
	inside := answers(t, wraptest.Run(t, w.Wrap(work, policy, data("inside")...), limit))
	if len(bare) != 2*(5+4+4) || len(inside) != len(bare) {
		t.Errorf("answers: got %d bare and %d inside, want %d each", len(bare), len(inside), 2*(5+4+4))
	}
	for call, want := range bare {
		got := strings.ReplaceAll(inside[call], filepath.Join(work, "inside"), filepath.Join(work, "bare"))
		if got != want {
			t.Errorf("%s: got %q, want %q as bare", call, got, want)
		}
		if strings.HasPrefix(want, "error") != strings.HasSuffix(call, " outside") {
			t.Errorf("bare: %s: got %q", call, want)
		}
	}
	for _, way := range []string{"stdio", "http"} {
		for call, want := range map[string]string{"filesystem read": "written over " + way, "memory search": "confines", "everything sum": "42"} {
			server, name, _ := strings.Cut(call, " ")
			if got := inside[server+" "+way+" "+name]; !strings.Contains(got, want) {
				t.Errorf("inside: %s over %s: got %q, want it to hold %q", call, way, got, want)
			}
		}
		if text, err := os.ReadFile(filepath.Join(work, "inside", way+".txt")); string(text) != "written over "+way {
			t.Errorf("file written over %s: got %q, %v", way, text, err)
		}
	}
}

// answers reads what drive.mjs says: "server way call" and the result.
func answers(t *testing.T, e wraptest.Ended) map[string]string {
	t.Helper()
	if e.Exit != 0 {
		t.Fatalf("drive: exit %d\n%s\n%s", e.Exit, e.Out, e.Err)
	}
	out := map[string]string{}
	for line := range strings.Lines(e.Out) {
		var a struct{ Server, Way, Call, Result string }
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("drive said %q: %v", line, err)
		}
		out[a.Server+" "+a.Way+" "+a.Call] = a.Result
	}
	return out
}

package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func mcpPolicy(port int, packages string) string {
	return fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
filesystem: {read: [%[2]q]}
network:
  hosts: {mcp.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the server of this test}]
  rules:
    - name: everything
      host: mcp.test
      ports: [%[1]d]
      protocol: mcp
      paths: [/mcp]
      allow:
        - {tools: [echo], args: {/message: "hello*"}}
        - {tools: [get-sum, trigger-long-running-operation, trigger-sampling-request]}
      deny:
        - {tools: [get-sum], args: {/a: "13"}}
`, port, packages)
}

// TestMCP runs two official SDKs against a server from npm over Streamable HTTP:
// what may not be called is not listed, and the SDK shows why a call is denied.
func TestMCP(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"node"})
	packages := npm.Require(t, "peers")
	modules := filepath.Join(packages, "node_modules", "@modelcontextprotocol")
	work, port := w.Dir(t, "work"), wraptest.FreePort(t)
	server := w.Bare(w.Dir(t, "server"), "node", filepath.Join(modules, "server-everything", "dist", "index.js"), "streamableHttp")
	server.Env = append(server.Env, fmt.Sprintf("PORT=%d", port))
	wraptest.Serve(t, server, port)
	script, err := os.ReadFile("mcpclient.mjs")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(t, filepath.Join(work, "client.mjs"), string(script))
	program := mcpClient(t, work)
	policy := w.PolicyFile(t, "mcp", mcpPolicy(port, packages))
	for name, argv := range map[string][]string{
		"node": {"node", filepath.Join(work, "client.mjs"), filepath.Join(modules, "sdk")},
		"go":   {program},
	} {
		t.Run(name, func(t *testing.T) {
			bare := mcpLines(t, wraptest.Run(t, w.Bare(work, append(argv, fmt.Sprintf("http://127.0.0.1:%d/mcp", port))...), limit))
			if got := bare["tools"]; !strings.Contains(got, "get-env") || !strings.Contains(got, "get-roots-list") && len(strings.Fields(got)) < 6 {
				t.Errorf("bare: got tools %q, want all", got)
			}
			for _, line := range []string{"echo", "other", "hidden", "sum", "sampling", "again"} {
				if got := bare[line]; got == "" || strings.HasPrefix(got, "error") {
					t.Errorf("bare: %s: got %q, want an answer", line, got)
				}
			}
			inside := mcpLines(t, wraptest.Run(t, w.Wrap(work, policy, append(argv, fmt.Sprintf("http://mcp.test:%d/mcp", port))...), limit))
			if got, want := inside["tools"], "echo get-sum trigger-long-running-operation trigger-sampling-request"; got != want {
				t.Errorf("inside: got tools %q, want %q", got, want)
			}
			for _, line := range []string{"echo", "sum", "long", "again"} {
				if inside[line] != bare[line] {
					t.Errorf("inside: %s: got %q, want %q", line, inside[line], bare[line])
				}
			}
			for _, line := range []string{"other", "hidden", "sampling"} {
				t.Logf("the SDK says: %s", inside[line])
				if got := inside[line]; !strings.HasPrefix(got, "error") || !strings.Contains(got, "denied by the sandbox's policy: rule") {
					t.Errorf("inside: %s: got %q, want the reason of a denial", line, got)
				}
			}
		})
	}
}

// mcpClient builds the client of the Go SDK.
func mcpClient(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "client")
	build := exec.Command("go", "build", "-o", program, "./mcpclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// mcpLines are the lines that a client printed, by their first word.
func mcpLines(t *testing.T, got wraptest.Ended) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for line := range strings.Lines(got.Out) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines[name] = rest
	}
	if got.Exit != 0 || len(lines) != 8 {
		t.Fatalf("got exit %d and %q, want 0 and 8 lines\n%s", got.Exit, got.Out, got.Err)
	}
	return lines
}

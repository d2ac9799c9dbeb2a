package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// seen is what a server was asked with.
type seen struct {
	mu       sync.Mutex
	versions map[string]bool // of the protocol
	fields   map[string]bool // Mcp-Method and the like, as "name: value"
	bodies   int
}

func (s *seen) note(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.versions[r.Header.Get("Mcp-Protocol-Version")] = true
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Mcp-") {
				s.fields[name+": "+values[0]] = true
			}
		}
		if r.ContentLength > 0 {
			s.bodies++
		}
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

// revisions serves the tools of the official SDK at /mcp without sessions, and at
// /sse in the older transport.
func revisions(t *testing.T, s *seen) int {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	tool := func(name, schema string) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " got " + string(r.Params.Arguments)}}}, nil
			})
	}
	tool("echo", `{"type":"object","properties":{"message":{"type":"string","x-mcp-header":"Message"}}}`)
	for _, name := range []string{"get-env", "get-sum", "trigger-long-running-operation", "trigger-sampling-request"} {
		tool(name, `{"type":"object"}`)
	}
	get := func(*http.Request) *mcp.Server { return server }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, DisableLocalhostProtection: true}))
	mux.Handle("/sse", mcp.NewSSEHandler(get, &mcp.SSEOptions{DisableLocalhostProtection: true}))
	listening := httptest.NewServer(s.note(mux))
	t.Cleanup(listening.CloseClientConnections)
	return listening.Listener.Addr().(*net.TCPAddr).Port
}

// TestMCPRevisions runs the official Go SDK against itself in the newest revision,
// which repeats in fields what it calls, and in the oldest transport.
func TestMCPRevisions(t *testing.T) {
	w := wraptest.New(t)
	work := w.Dir(t, "work")
	program := mcpClient(t, work)
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path, func(t *testing.T) {
			s := &seen{versions: map[string]bool{}, fields: map[string]bool{}}
			port := revisions(t, s)
			policy := w.PolicyFile(t, "revisions", strings.Replace(mcpPolicy(port, work), "[/mcp]", "["+path+"]", 1))
			bare := mcpLines(t, wraptest.Run(t, w.Bare(work, program, fmt.Sprintf("http://127.0.0.1:%d%s", port, path)), limit))
			if got, want := bare["other"], `echo got {"message":"other words"}`; got != want {
				t.Errorf("bare: got %q, want %q", got, want)
			}
			s.mu.Lock()
			clear(s.versions)
			clear(s.fields)
			s.mu.Unlock()
			inside := mcpLines(t, wraptest.Run(t, w.Wrap(work, policy, program, fmt.Sprintf("http://mcp.test:%d%s", port, path)), limit))
			if got, want := inside["tools"], "echo get-sum trigger-long-running-operation trigger-sampling-request"; got != want {
				t.Errorf("inside: got tools %q, want %q", got, want)
			}
			for _, line := range []string{"echo", "again"} {
				// The SDK takes any error of the older transport for its end.
				if inside[line] != bare[line] && (path == "/mcp" || line == "echo") {
					t.Errorf("inside: %s: got %q, want %q", line, inside[line], bare[line])
				}
			}
			for _, line := range []string{"other", "hidden"} {
				if got := inside[line]; !strings.HasPrefix(got, "error") || path == "/mcp" && !strings.Contains(got, "denied by the sandbox's policy: rule") {
					t.Errorf("inside: %s: got %q, want the reason of a denial", line, got)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if path == "/mcp" && (!s.versions["2026-07-28"] || !s.fields["Mcp-Name: echo"] || !s.fields["Mcp-Param-Message: hello there"]) {
				t.Errorf("server: got versions %v and fields %v, want 2026-07-28 and its fields", s.versions, s.fields)
			}
			if s.fields["Mcp-Name: get-env"] || s.bodies == 0 {
				t.Errorf("server: got fields %v and %d bodies, want no denied call", s.fields, s.bodies)
			}
		})
	}
}

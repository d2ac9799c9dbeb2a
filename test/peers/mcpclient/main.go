// Command mcpclient is a client of the official Go SDK. Its argument is the
// server's address, one ending in /sse for the older transport; it prints one
// line for each thing that it does.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		//nolint:staticcheck // going out of use, and still what servers ask
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			//nolint:staticcheck // see above
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
	})
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url}
	if strings.HasSuffix(url, "/sse") {
		transport = &mcp.SSEClientTransport{Endpoint: url}
	}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	fmt.Println("tools", strings.Join(names, " "))
	for _, c := range []struct {
		line, tool string
		args       map[string]any
	}{
		{"echo", "echo", map[string]any{"message": "hello there"}},
		{"other", "echo", map[string]any{"message": "other words"}},
		{"hidden", "get-env", map[string]any{}},
		{"sum", "get-sum", map[string]any{"a": 40, "b": 2}},
		{"long", "trigger-long-running-operation", map[string]any{"duration": 1, "steps": 2}},
		{"sampling", "trigger-sampling-request", map[string]any{"prompt": "p"}},
		{"again", "echo", map[string]any{"message": "hello again"}},
	} {
		fmt.Println(c.line, call(ctx, session, c.tool, c.args))
	}
	return nil
}

func call(ctx context.Context, session *mcp.ClientSession, tool string, args map[string]any) string {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "error: " + oneLine(err.Error())
	}
	var all []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return oneLine(strings.Join(all, " "))
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

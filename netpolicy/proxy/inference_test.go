package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

const (
	chatBody   = `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`
	chatAnswer = `{"choices":[{"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`
)

// Each provider is reached at its own host and at the inner name, over HTTP/1 and
// HTTP/2, with TLS and without, and what it used is on record.
func TestModelProviders(t *testing.T) {
	chunk := func(s string) string { return "data: " + s + "\n\n" }
	cases := []struct {
		name, host, path, body string
		port                   int
		answer                 http.HandlerFunc
		want                   string // the answer
		model, route           string
		input, output          int64
	}{
		{"chat", "first.example.org", "/v1/chat/completions", chatBody, 443, answers("application/json", chatAnswer), chatAnswer, "m1", "first", 9, 4},
		{
			"chat stream", "first.example.org", "/v1/chat/completions", `{"model":"m1","stream":true,"messages":[]}`, 443,
			streams(": keep-alive\n\n", "data: {\"choices\":[{\"delta\":{\"con", "tent\":\"hello\"}}]}\n\n", chunk(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}`), chunk("[DONE]")),
			": keep-alive\n\n" + chunk(`{"choices":[{"delta":{"content":"hello"}}]}`) + chunk("[DONE]"), "m1", "first", 9, 4,
		},
		{
			"chat stream with usage", "first.example.org", "/v1/chat/completions", `{"model":"m1","stream":true,"stream_options":{"include_usage":true},"messages":[]}`, 443,
			streams(chunk(`{"choices":[{"delta":{"content":"hello"}}]}`), chunk(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}`), chunk("[DONE]")),
			chunk(`{"choices":[{"delta":{"content":"hello"}}]}`) + chunk(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}`) + chunk("[DONE]"), "m1", "first", 9, 4,
		},
		{
			"responses stream", "first.example.org", "/v1/responses", `{"model":"m1","stream":true,"input":"hi"}`, 443,
			streams(chunk(`{"type":"response.output_text.delta","delta":"hello"}`), chunk(`{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":4}}}`)),
			chunk(`{"type":"response.output_text.delta","delta":"hello"}`) + chunk(`{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":4}}}`), "m1", "first", 9, 4,
		},
		{
			"messages stream", "claude.example.org", "/v1/messages", `{"model":"claude-x","max_tokens":50,"stream":true,"messages":[]}`, 443,
			streams("event: message_start\n", chunk(`{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`), "event: message_delta\n", chunk(`{"type":"message_delta","usage":{"output_tokens":4}}`), chunk(`{"type":"message_stop"}`)),
			"event: message_start\n" + chunk(`{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`) + "event: message_delta\n" + chunk(`{"type":"message_delta","usage":{"output_tokens":4}}`) + chunk(`{"type":"message_stop"}`), "claude-x", "claude", 9, 4,
		},
		{
			"gemini stream", "gemini.example.org", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse", `{"contents":[]}`, 443,
			streams(chunk(`{"candidates":[],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4}}`)),
			chunk(`{"candidates":[],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4}}`), "gemini-3", "gemini", 9, 4,
		},
		{
			"ollama", "127.0.0.1", "/api/chat", `{"model":"llama3","messages":[]}`, 11434,
			answers("application/x-ndjson", "{\"message\":{\"content\":\"he\"}}\n{\"done\":true,\"prompt_eval_count\":9,\"eval_count\":4}\n"),
			"{\"message\":{\"content\":\"he\"}}\n{\"done\":true,\"prompt_eval_count\":9,\"eval_count\":4}\n", "llama3", "local", 9, 4,
		},
	}
	for _, c := range cases {
		for _, via := range []string{"own", "own h2", "inner http", "inner https", "inner h2"} {
			if c.port == 11434 && via == "own h2" {
				continue
			}
			t.Run(c.name+"/"+via, func(t *testing.T) {
				w := newModelWorld(t, modelRoutes())
				w.provider(c.host, c.port, c.answer)
				var client *http.Client
				var url string
				switch via {
				case "own", "own h2":
					client = w.client(c.host, c.port, via == "own h2")
					url = map[bool]string{true: "https", false: "http"}[c.port == 443] + "://" + fmt.Sprintf("%s:%d", c.host, c.port)
				case "inner http":
					client, url = w.client(netpolicy.InnerInference, 80, false), "http://"+netpolicy.InnerInference
				default:
					client, url = w.client(netpolicy.InnerInference, 443, via == "inner h2"), "https://"+netpolicy.InnerInference
				}
				status, got, _ := w.ask(client, url+c.path, c.body)
				if status != 200 || got != c.want {
					t.Fatalf("got %d %q, want 200 %q", status, got, c.want)
				}
				e := w.used(1)[0]
				if e.Model != c.model || e.Route != c.route || e.InputTokens != c.input || e.OutputTokens != c.output || e.Estimated {
					t.Errorf("audit: got %+v, want %d and %d tokens of %s", e, c.input, c.output, c.model)
				}
				call := w.asked()[0]
				if key := call.header.Get("Authorization"); (key != "") != strings.HasPrefix(via, "own") {
					t.Errorf("got the agent's key %q at the provider by way of %s", key, via)
				}
				if enc := call.header.Get("Accept-Encoding"); enc != "identity" || call.path != c.path {
					t.Errorf("got %s with Accept-Encoding %q, want %s and identity", call.path, enc, c.path)
				}
				w.wantNoFault()
			})
		}
	}
}

// Events of a stream arrive as they are sent, also where the last one is ours.
func TestModelStreamIsNotHeld(t *testing.T) {
	w := newModelWorld(t, modelRoutes())
	more := make(chan struct{})
	w.provider("first.example.org", 443, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(rw, "data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n\n", i)
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	})
	resp, err := w.client("first.example.org", 443, false).Post("https://first.example.org/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n", i); err != nil || line != want {
			t.Fatalf("got %q %v, want %q before the next is sent", line, err, want)
		}
		_, _ = in.ReadString('\n')
		more <- struct{}{}
	}
}

// On a connection that carried a call of a model nothing else is carried
// (corpus D91), and refusals have the shape of the provider's errors.
func TestModelRefusals(t *testing.T) {
	w := newModelWorld(t, modelRoutes())
	for _, host := range []string{"first.example.org", "claude.example.org", "gemini.example.org"} {
		w.provider(host, 443, answers("application/json", chatAnswer))
	}
	c := w.open("first.example.org", 443, "first.example.org")
	_, _ = fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: first.example.org\r\nContent-Length: %d\r\n\r\n%s", len(chatBody), chatBody)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 200 || readBody(t, resp) != chatAnswer {
		t.Fatalf("control: got %v %v, want the answer", resp, err)
	}
	_, _ = io.WriteString(c, "GET /admin HTTP/1.1\r\nHost: first.example.org\r\n\r\n")
	if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != 403 || !resp.Close {
		t.Fatalf("got %v %v, want 403 and the end of the connection", resp, err)
	}
	if got := len(w.asked()); got != 1 {
		t.Errorf("got %d requests at the provider, want 1", got)
	}
	shapes := []struct {
		name, host, path, body string
		read                   func(map[string]any) any
		status                 int
	}{
		{"openai", "first.example.org", "/v1/chat/completions", `{"model":"denied","messages":[]}`, func(m map[string]any) any { return m["error"].(map[string]any)["message"] }, 403},
		{"openai, two readings", "first.example.org", "/v1/chat/completions", `{"model":"m","model":"denied","messages":[]}`, func(m map[string]any) any { return m["error"].(map[string]any)["message"] }, 400},
		{"anthropic", "claude.example.org", "/v1/messages", `{"model":"denied","max_tokens":1,"messages":[]}`, func(m map[string]any) any {
			if m["type"] != "error" || m["error"].(map[string]any)["type"] != "permission_error" {
				return "no error of the provider"
			}
			return m["error"].(map[string]any)["message"]
		}, 403},
		{"gemini", "gemini.example.org", "/v1beta/models/denied:generateContent", `{}`, func(m map[string]any) any {
			if m["error"].(map[string]any)["status"] != "PERMISSION_DENIED" {
				return "no status"
			}
			return m["error"].(map[string]any)["message"]
		}, 403},
		{"ollama", netpolicy.InnerInference, "/api/chat", `{"model":"denied","messages":[]}`, func(m map[string]any) any { return m["error"] }, 403},
	}
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			status, got, _ := w.ask(w.client(s.host, 443, false), "https://"+s.host+s.path, s.body)
			var m map[string]any
			if err := json.Unmarshal([]byte(got), &m); err != nil || status != s.status {
				t.Fatalf("got %d %q, want %d and JSON", status, got, s.status)
			}
			message, _ := s.read(m).(string)
			id, _ := m["id"].(string)
			reason, _ := m["reason"].(string)
			if id == "" || reason == "" || !strings.Contains(message, id) || !strings.Contains(message, reason) {
				t.Errorf("got %q, want a message with the reason %q and the id %q", message, reason, id)
			}
			w.wantEvent("the denial", func(e audit.Event) bool {
				return e.Kind == audit.KindRequest && e.Verdict == audit.Deny && e.ID == id
			})
		})
	}
	if got := len(w.asked()); got != 1 {
		t.Errorf("got %d requests at the providers, want none of the denied ones", got)
	}
	w.wantNoFault()
}

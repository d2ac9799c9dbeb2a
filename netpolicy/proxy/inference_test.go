package proxy

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// modelRoutes are one route for each provider, and a second one for OpenAI's shape.
func modelRoutes() policy.Inference {
	return policy.Inference{Routes: []policy.Route{
		{Name: "first", Provider: "openai-compatible", Host: "first.example.org", Models: []string{"m*", "only-first"}},
		{Name: "claude", Provider: "anthropic", Host: "claude.example.org", Models: []string{"claude-*"}},
		{Name: "gemini", Provider: "gemini", Host: "gemini.example.org", Models: []string{"gemini-*"}},
		{Name: "local", Provider: "local", Host: "127.0.0.1", Port: 11434, Plain: true, Models: []string{"llama*"}},
		{Name: "second", Provider: "openai-compatible", Host: "second.example.org", Base: "/api/v1", Models: []string{"m*"}},
	}}
}

// modelWorld is a world with routes to models.
type modelWorld struct {
	*world
	stopped chan string

	mu   sync.Mutex
	seen []seenCall
}

type seenCall struct {
	host, path, body string
	header           http.Header
}

func newModelWorld(t testing.TB, in policy.Inference) *modelWorld {
	t.Helper()
	n := testNetwork()
	n.Private = []policy.PrivateRange{{CIDR: "127.0.0.1", Ports: []int{11434}, Reason: "the local server"}}
	w := &modelWorld{world: newWorld(t, n), stopped: make(chan string, 10)}
	w.srv.Rules = w.rules(n, in)
	w.srv.Stop = func(reason string) { w.stopped <- reason }
	return w
}

func (w *modelWorld) rules(n policy.Network, in policy.Inference) Rules {
	w.t.Helper()
	engine, err := netpolicy.Compile(n, in.Routes...)
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := inference.Compile(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return Rules{Engine: engine, Inference: set}
}

// provider publishes a provider that notes what it is asked and answers with f.
func (w *modelWorld) provider(host string, port int, f http.HandlerFunc) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.seen = append(w.seen, seenCall{host, r.URL.RequestURI(), string(b), r.Header.Clone()})
		w.mu.Unlock()
		f(rw, r)
	})
	if port != 11434 {
		w.serve(host, port, h)
		return
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l := w.listen()
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	w.t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	w.world.mu.Lock()
	w.routes["127.0.0.1:11434"] = l.Addr().String()
	w.world.mu.Unlock()
}

func (w *modelWorld) asked() []seenCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// answers gives a body of a type.
func answers(kind, body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(rw, body)
	}
}

// streams gives pieces one by one.
func streams(pieces ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(rw, p)
			_ = http.NewResponseController(rw).Flush()
		}
	}
}

// ask sends a body to a host and gives the status and the answer.
func (w *modelWorld) ask(c *http.Client, url, body string) (int, string, http.Header) {
	w.t.Helper()
	q, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer of-the-agent")
	resp, err := c.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, readBody(w.t, resp), resp.Header
}

// used waits for the record of a call of a model.
func (w *modelWorld) used(n int) []audit.Event {
	w.t.Helper()
	for range 500 {
		var found []audit.Event
		for _, e := range w.events() {
			if e.Kind == audit.KindInference && e.Reason == "" {
				found = append(found, e)
			}
		}
		if len(found) >= n {
			return found
		}
		time.Sleep(2 * time.Millisecond)
	}
	w.t.Fatalf("audit: got %+v, want %d calls of models", w.events(), n)
	return nil
}

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

// At the inner name the next route is tried, before the first byte of an answer;
// at a provider's own host nothing else is.
func TestModelFailover(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			_, _ = io.WriteString(rw, `{"error":"from the first"}`)
		}
	}
	cases := []struct {
		name   string
		first  http.HandlerFunc // nil: nobody listens
		model  string
		budget policy.Count
		status int
		asked  []string
	}{
		{"works", answers("application/json", chatAnswer), "m1", 0, 200, []string{"first.example.org"}},
		{"refused connection", nil, "m1", 0, 200, []string{"second.example.org"}},
		{"503", status(503), "m1", 0, 200, []string{"first.example.org", "second.example.org"}},
		{"429", status(429), "m1", 0, 200, []string{"first.example.org", "second.example.org"}},
		{"400 is an answer", status(400), "m1", 0, 400, []string{"first.example.org"}},
		{"401 is an answer", status(401), "m1", 0, 401, []string{"first.example.org"}},
		{"no other route", status(503), "only-first", 0, 503, []string{"first.example.org"}},
		{"no more requests", status(503), "m1", 1, 503, []string{"first.example.org"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := modelRoutes()
			in.Budget.Requests = c.budget
			w := newModelWorld(t, in)
			if c.first != nil {
				w.provider("first.example.org", 443, c.first)
			}
			w.provider("second.example.org", 443, answers("application/json", chatAnswer))
			got, body, _ := w.ask(w.client(netpolicy.InnerInference, 80, false), "http://inference.internal/v1/chat/completions", `{"model":"`+c.model+`","messages":[]}`)
			if got != c.status {
				t.Errorf("got %d %s, want %d", got, body, c.status)
			}
			var asked []string
			for _, a := range w.asked() {
				asked = append(asked, a.host)
				if want := `{"model":"` + c.model + `","messages":[]}`; a.body != want {
					t.Errorf("got %s at %s, want %s", a.body, a.host, want)
				}
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("got %v asked, want %v", asked, c.asked)
			}
			w.used(1)
			if want := int64(max(len(c.asked), 1)); c.first != nil && w.srv.Models().Requests != want {
				t.Errorf("got %d requests counted, want %d", w.srv.Models().Requests, want)
			}
			if over := c.status == 200 && c.name != "works"; over {
				w.wantEvent("the failover", func(e audit.Event) bool {
					return e.Kind == audit.KindUpstream && e.Route == "first" && strings.Contains(e.Reason, `"second" is tried`)
				})
			}
			w.wantNoFault()
		})
	}
	w := newModelWorld(t, modelRoutes())
	w.provider("first.example.org", 443, status(503))
	w.provider("second.example.org", 443, answers("application/json", chatAnswer))
	if got, _, _ := w.ask(w.client("first.example.org", 443, false), "https://first.example.org/v1/chat/completions", chatBody); got != 503 {
		t.Errorf("at the provider's own host: got %d, want its 503", got)
	}
}

// A budget that is used up ends further calls with an answer that agents take as
// final; at 80 % it is on record once.
func TestModelBudget(t *testing.T) {
	in := modelRoutes()
	in.Budget = policy.Budget{Tokens: 65, Money: 1000}
	in.Prices = map[string]policy.Price{"**": {Input: 1e6, Output: 2e6}}
	w := newModelWorld(t, in)
	w.provider("first.example.org", 443, answers("application/json", chatAnswer))
	c := w.client("first.example.org", 443, false)
	ask := func() (int, string) {
		status, body, _ := w.ask(c, "https://first.example.org/v1/chat/completions", chatBody)
		return status, body
	}
	for i := range 5 {
		if status, body := ask(); status != 200 {
			t.Fatalf("call %d: got %d %s, want 200", i, status, body)
		}
		w.used(i + 1)
	}
	for range 2 {
		status, body := ask()
		if status != 403 || !strings.Contains(body, `"code":"budget_used_up"`) || !strings.Contains(body, "inference.budget.tokens") {
			t.Fatalf("got %d %s, want 403 and budget_used_up", status, body)
		}
	}
	near, full := 0, 0
	for _, e := range w.events() {
		if e.Kind == audit.KindBudget && e.Rule == "inference.budget.tokens" {
			if strings.HasPrefix(e.Reason, "80 %") {
				near++
			} else {
				full++
			}
		}
	}
	if near != 1 || full != 1 {
		t.Errorf("got %d events at 80 %% and %d at the end, want 1 and 1", near, full)
	}
	if got, want := w.used(5)[0].Cost, 9.0+2*4; got != want {
		t.Errorf("got cost %v, want %v", got, want)
	}
	if got := len(w.asked()); got != 5 {
		t.Errorf("got %d requests at the provider, want 5", got)
	}
	// A reload changes the limits alone: what was used stays counted.
	in.Budget.Tokens = 70
	n := testNetwork()
	w.srv.Reload(w.rules(n, in))
	if status, _ := ask(); status != 403 {
		t.Errorf("after a reload to 70: got %d, want 403, since 65 are used and the call needs more than 5", status)
	}
	in.Budget.Tokens = 200
	w.srv.Reload(w.rules(n, in))
	if status, body := ask(); status != 200 {
		t.Errorf("after a reload to 200: got %d %s, want 200", status, body)
	}
	w.used(6)
	if got := w.srv.Models(); got.Input != 54 || got.Output != 24 || got.Requests != 6 {
		t.Errorf("got %+v, want what all calls used", got)
	}
}

// A stream that the provider ends early is not passed on as a whole one, and is
// counted by what was seen (corpus D93).
func TestModelStreamCut(t *testing.T) {
	w := newModelWorld(t, modelRoutes())
	w.serveRaw("first.example.org", 443, func(conn net.Conn) {
		c := tlsServer(conn, w.serverTLS())
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		piece := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("abcd", 10) + "\"}}]}\n\n" + "data: {\"choices\":[{\"del"
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(piece), piece)
	})
	resp, err := w.client("first.example.org", 443, false).Post("https://first.example.org/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"`+strings.Repeat("x", 400)+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %q as a whole stream, want an error", b)
	}
	if e := w.used(1)[0]; !e.Estimated || e.OutputTokens < 10 || e.OutputTokens > 12 || e.InputTokens < 100 {
		t.Errorf("audit: got %+v, want about 10 tokens, estimated", e)
	}
}

// What cannot be read, or does not end, is not passed on as an answer.
func TestModelAnswers(t *testing.T) {
	w := newModelWorld(t, modelRoutes())
	w.srv.Limits.Answer = 1 << 20
	var mode string
	w.provider("first.example.org", 443, func(rw http.ResponseWriter, _ *http.Request) {
		switch mode {
		case "compressed":
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(rw, "\x1f\x8b not really")
		case "endless":
			rw.Header().Set("Content-Type", "text/event-stream")
			for range 100 {
				if _, err := io.WriteString(rw, ": "+strings.Repeat("x", 64<<10)+"\n\n"); err != nil {
					return
				}
			}
		}
	})
	c := w.client("first.example.org", 443, false)
	mode = "compressed"
	if status, body, _ := w.ask(c, "https://first.example.org/v1/chat/completions", chatBody); status != 502 || !strings.Contains(body, "compressed") {
		t.Errorf("compressed: got %d %s, want 502", status, body)
	}
	mode = "endless"
	resp, err := c.Post("https://first.example.org/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > 2<<20 {
		t.Errorf("endless: got %d bytes and %v, want it cut off", n, err)
	}
	w.wantEvent("the cut", func(e audit.Event) bool { return strings.Contains(e.Reason, "cut off") })
}

// Where there is no room to read an answer's usage, it passes all the same, and
// is estimated.
func TestModelAnswerWithoutRoom(t *testing.T) {
	event := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 100<<10) + "\"}}]}\n\n"
	usage := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n"
	w := newModelWorld(t, modelRoutes())
	w.srv.Limits.MessagesHeld = 64 << 10
	w.provider("first.example.org", 443, streams(event, usage))
	status, got, _ := w.ask(w.client("first.example.org", 443, false), "https://first.example.org/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`)
	if status != 200 || got != event+usage {
		t.Errorf("got %d and %d bytes, want 200 and all %d", status, len(got), len(event+usage))
	}
	if e := w.used(1)[0]; !e.Estimated || e.OutputTokens < 25_000 {
		t.Errorf("audit: got %+v, want an estimate by length", e)
	}
	w.wantNoFault()
}

// A conversation that turns in circles is refused; with the action stop whoever
// runs the proxy is told.
func TestModelHardStop(t *testing.T) {
	for _, action := range []string{"refuse", "stop"} {
		in := modelRoutes()
		in.HardStop = policy.HardStop{ExactFailure: 2, Action: action}
		w := newModelWorld(t, in)
		w.provider("claude.example.org", 443, answers("application/json", `{"usage":{"input_tokens":1,"output_tokens":1}}`))
		c := w.client("claude.example.org", 443, true)
		turn := func(n int) string {
			messages := `{"role":"user","content":"go"}`
			for i := range n {
				messages += fmt.Sprintf(`,{"role":"assistant","content":[{"type":"tool_use","id":"t%d","name":"run","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","is_error":true,"content":"no"}]}`, i, i)
			}
			return `{"model":"claude-x","max_tokens":5,"messages":[` + messages + `]}`
		}
		if status, body, _ := w.ask(c, "https://claude.example.org/v1/messages", turn(1)); status != 200 {
			t.Fatalf("%s: got %d %s, want 200 after one failure", action, status, body)
		}
		status, body, _ := w.ask(c, "https://claude.example.org/v1/messages", turn(2))
		if status != 403 || !strings.Contains(body, "inference.hard_stop.exact_failure") {
			t.Errorf("%s: got %d %s, want 403 by hard_stop", action, status, body)
		}
		if got := len(w.stopped); got != map[string]int{"refuse": 0, "stop": 1}[action] {
			t.Errorf("%s: got %d ends of the run", action, got)
		}
	}
}

// A list of models at the inner name comes from the first route that has one.
func TestModelList(t *testing.T) {
	w := newModelWorld(t, modelRoutes())
	w.provider("first.example.org", 443, answers("application/json", `{"data":[{"id":"m1"}]}`))
	resp, err := w.client(netpolicy.InnerInference, 80, false).Get("http://inference.internal/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	if got := readBody(t, resp); resp.StatusCode != 200 || got != `{"data":[{"id":"m1"}]}` {
		t.Errorf("got %d %s, want the list", resp.StatusCode, got)
	}
	if got := w.srv.Models().Requests; got != 0 {
		t.Errorf("got %d calls counted, want none", got)
	}
}

// Without routes there is no inner name.
func TestModelsWithoutRoutes(t *testing.T) {
	w := newWorld(t, testNetwork())
	got := w.raw(netpolicy.InnerInference, 80, "", "GET /v1/models HTTP/1.1\r\nHost: inference.internal\r\n\r\n")
	if line := statusLine(got); !strings.Contains(line, "403") {
		t.Errorf("got %q, want 403", line)
	}
}

func tlsServer(c net.Conn, config *tls.Config) net.Conn { return tls.Server(c, config) }

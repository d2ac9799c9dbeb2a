package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

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

// A server that refuses to be asked for usage is asked without, and from then on
// at once. A refusal for another reason stays what it is.
func TestModelForgoesUsage(t *testing.T) {
	stream := "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
	w := newModelWorld(t, modelRoutes())
	w.provider("first.example.org", 443, func(rw http.ResponseWriter, r *http.Request) {
		seen := w.asked()
		body := seen[len(seen)-1].body
		if strings.Contains(body, "stream_options") && !strings.Contains(body, "bad") {
			rw.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(rw, "Extra inputs are not permitted: body.stream_options")
			return
		}
		if strings.Contains(body, "bad") {
			rw.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(rw, "no such user")
			return
		}
		streams(stream)(rw, r)
	})
	c := w.client("first.example.org", 443, false)
	for i, step := range []struct {
		body   string
		status int
		asked  int
	}{
		{`{"model":"m","stream":true,"messages":[],"user":"bad"}`, 422, 1},
		{`{"model":"m","stream":true,"messages":[]}`, 200, 3},
		{`{"model":"m","stream":true,"messages":[]}`, 200, 4},
		{`{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}`, 422, 5},
	} {
		status, body, _ := w.ask(c, "https://first.example.org/v1/chat/completions", step.body)
		if status != step.status || status == 200 && body != stream || i == 0 && body != "no such user" || len(w.asked()) != step.asked {
			t.Errorf("call %d: got %d %q after %d requests, want %d after %d", i, status, body, len(w.asked()), step.status, step.asked)
		}
		w.used(i + 1)
	}
	if got := w.srv.Models(); got.Requests != 5 || got.Output != 8 {
		t.Errorf("got %+v, want five requests and the tokens of two calls", got)
	}
	w.wantNoFault()
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

package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func mcpRule() policy.Rule {
	return policy.Rule{
		Protocol: policy.ProtocolMCP, Paths: []string{"/mcp", "/messages"}, AllowSet: true,
		Allow: []policy.Match{
			{Tools: []string{"search"}},
			{Tools: []string{"read"}, Args: map[string]string{"/path": "/pub/*"}},
			{Calls: []string{"prompts/get"}, Args: map[string]string{"/name": "hello"}},
			{Calls: []string{"resources/*"}},
			{Calls: []string{"prompts/list", "server/discover", "roots/list"}},
		},
		Deny: []policy.Match{{Tools: []string{"search"}, Args: map[string]string{"/q": "secret*"}}},
	}
}

func callTool(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

// Method, tool and arguments decide, however a call is spelt (corpus D82, D85, D86).
func TestMCPCalls(t *testing.T) {
	w, s, c := messageWorld(t, mcpRule())
	s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }
	good := callTool(1, "search", `{"q":"cats","n":3}`)
	tests := []struct {
		name, body string
		fields     []string
		status     int // 202: it arrives
	}{
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, nil, 202},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202},
		{"list", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 202},
		{"tool", good, nil, 202},
		{"tool with argument", callTool(1, "read", `{"path":"/pub/a"}`), nil, 202},
		{"prompt", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"hello"}}`, nil, 202},
		{"response", `{"jsonrpc":"2.0","id":9,"result":{"roots":[]}}`, nil, 202},
		{"error response", `{"jsonrpc":"2.0","id":9,"error":{"code":-1,"message":"no"}}`, nil, 202},
		{"batch", "[" + good + "," + callTool(2, "read", `{"path":"/pub/a"}`) + "]", nil, 202},

		{"other tool", callTool(1, "delete", `{}`), nil, 403},
		{"other argument", callTool(1, "read", `{"path":"/etc/passwd"}`), nil, 403},
		{"argument climbs", callTool(1, "read", `{"path":"/pub/../etc"}`), nil, 403},
		{"argument missing", callTool(1, "read", `{}`), nil, 403},
		{"argument as list", callTool(1, "read", `{"path":["/pub/a"]}`), nil, 403},
		{"argument in two cases", callTool(1, "read", `{"path":"/pub/a","Path":"/etc"}`), nil, 403},
		{"denied argument", callTool(1, "search", `{"q":"secret plans"}`), nil, 403},
		{"denied argument escaped", callTool(1, "search", `{"q":"\u0073ecret plans"}`), nil, 403},
		{"other prompt", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"other"}}`, nil, 403},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"x/extension"}`, nil, 403},
		{"denied in a batch", "[" + good + "," + callTool(2, "delete", `{}`) + "]", nil, 403},
		{"calls and responses", "[" + good + `,{"jsonrpc":"2.0","id":9,"result":{}}]`, nil, 400},
		{"one id twice", "[" + good + "," + good + "]", nil, 400},
		{"case of the method", strings.Replace(good, "tools/call", "Tools/Call", 1), nil, 400},
		{"slash", strings.Replace(good, "tools/call", "tools/call/", 1), nil, 400},
		{"name as list", strings.Replace(good, `"search"`, `["search"]`, 1), nil, 400},
		{"name with a space", callTool(1, "search ", `{}`), nil, 400},
		{"name in two cases", strings.Replace(good, `"name"`, `"Name":"delete","name"`, 1), nil, 400},
		{"params as list", strings.Replace(good, `{"name":"search","arguments":{"q":"cats","n":3}}`, `["search"]`, 1), nil, 400},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, nil, 400},
		{"arguments as text", callTool(1, "search", `"q"`), nil, 400},

		{"fields agree", good, []string{"Mcp-Method", "tools/call", "Mcp-Name", "search", "Mcp-Param-Q", "cats", "Mcp-Param-N", "3"}, 202},
		{"field in base64", good, []string{"Mcp-Param-Q", "=?base64?Y2F0cw==?="}, 202},
		{"other method in a field", good, []string{"Mcp-Method", "tools/list"}, 403},
		{"other tool in a field", good, []string{"Mcp-Name", "delete"}, 403},
		{"other tool in base64", good, []string{"Mcp-Name", "=?base64?ZGVsZXRl?="}, 403},
		{"other parameter in a field", good, []string{"Mcp-Param-Q", "dogs"}, 403},
		{"field twice", good, []string{"Mcp-Name", "search", "Mcp-Name", "delete"}, 403},
		{"field with underscore", good, []string{"Mcp_Name", "search"}, 403},
		{"field for a batch", "[" + good + "]", []string{"Mcp-Name", "search"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, "POST", "/mcp", tt.body, append(tt.fields, inJSON, "application/json")...)
			if r, _ := s.last(); resp.StatusCode != tt.status || (r != nil) != (tt.status == 202) {
				t.Errorf("got status %d, arrived %v, want %d\n%s", resp.StatusCode, r != nil, tt.status, answer)
			}
		})
	}
	for _, tt := range []struct{ method, target string }{{"PUT", "/mcp"}, {"HEAD", "/mcp"}, {"OPTIONS", "/mcp"}, {"GET", "/elsewhere"}, {"GET", "/mcp?method=tools/call"}, {"POST", "/mcp?params[name]=delete"}} {
		s.forget()
		if resp, _ := send(t, c, tt.method, tt.target, ""); resp.StatusCode != 403 {
			t.Errorf("%s %s: got %d, want 403", tt.method, tt.target, resp.StatusCode)
		}
	}
	w.wantEvent("allowed tool", func(e audit.Event) bool { return e.Verdict == audit.Allow && e.Operation == "tools/call search" })
	w.wantNoFault()
}

const (
	listing = `{"tools":[{"name":"search","x":1},{"name":"delete"},{"name":"read"}],"nextCursor":"n"}`
	shown   = `{"tools":[{"name":"search","x":1},{"name":"read"}],"nextCursor":"n"}`
)

func answered(id int, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result)
}

// What a server answers is judged as well: lists show what may be called, and
// questions to the client need a rule.
func TestMCPAnswers(t *testing.T) {
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	rule := mcpRule()
	rule.MaxResponse = 2000
	tests := []struct {
		name, answer string
		want         string // "": a refusal
		status       int
	}{
		{"list", answered(1, listing), answered(1, shown), 200},
		{"list in a batch", "[" + answered(1, listing) + "]", "[" + answered(1, shown) + "]", 200},
		{"list for another id", answered(5, listing), answered(5, shown), 200},
		{"prompts", answered(1, `{"prompts":[{"name":"hello"},{"name":"other"}]}`), answered(1, `{"prompts":[{"name":"hello"}]}`), 200},
		{"resources", answered(1, `{"resources":[{"uri":"a:b"}]}`), answered(1, `{"resources":[{"uri":"a:b"}]}`), 200},
		{"other result", answered(1, `{"content":[{"type":"text","text":"delete"}]}`), answered(1, `{"content":[{"type":"text","text":"delete"}]}`), 200},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, 200},
		{"list in another case", answered(1, strings.Replace(listing, "tools", "Tools", 1)), "", 502},
		{"list twice", answered(1, `{"tools":[],"tools":[{"name":"delete"}]}`), "", 502},
		{"list of names", answered(1, `{"tools":["delete"]}`), "", 502},
		{"name in two cases", answered(1, `{"tools":[{"name":"search","Name":"delete"}]}`), "", 502},
		{"list as object", answered(1, `{"tools":{"delete":{}}}`), "", 502},
		{"result in another case", `{"jsonrpc":"2.0","id":1,"Result":` + listing + `}`, "", 502},
		{"malformed", `{"jsonrpc":`, "", 502},
		{"not JSON-RPC", `{"tools":[]}`, "", 502},
		{"allowed question", answered(1, `{"inputRequests":{"a":{"method":"roots/list"}}}`), answered(1, `{"inputRequests":{"a":{"method":"roots/list"}}}`), 200},
	}
	_, s, c := messageWorld(t, rule)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.answer = func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("Accept-Encoding: got %q, want identity", got)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, tt.answer)
			}
			resp, got := send(t, c, "POST", "/mcp", list)
			if resp.StatusCode != tt.status || tt.want != "" && got != tt.want {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, got, tt.status, tt.want)
			}
			if tt.want == "" && strings.Contains(got, "delete") {
				t.Errorf("got %s, want nothing of the answer", got)
			}
		})
	}
	for name, answer := range map[string]string{
		"question":  answered(1, `{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}}}`),
		"errand":    `{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://evil.example.org"}]}}}`,
		"too large": answered(1, `{"content":"`+strings.Repeat("x", 3000)+`"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			}
			resp, got := send(t, c, "POST", "/mcp", list)
			var m struct {
				ID     int
				Result any
				Error  struct{ Code int }
			}
			if err := json.Unmarshal([]byte(got), &m); err != nil || resp.StatusCode != 200 || m.ID != 1 || m.Result != nil || m.Error.Code != rpcDenied || strings.Contains(got, "evil") {
				t.Errorf("got %d %s, want an error for id 1", resp.StatusCode, got)
			}
		})
	}
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, answered(1, listing))
	}
	if resp, got := send(t, c, "POST", "/mcp", list); resp.StatusCode != 502 {
		t.Errorf("as HTML: got %d %s, want 502", resp.StatusCode, got)
	}
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, answered(1, listing))
	}
	if resp, got := send(t, c, "POST", "/mcp", list); resp.StatusCode != 502 {
		t.Errorf("packed: got %d %s, want 502", resp.StatusCode, got)
	}
}

// Events arrive one by one, each judged, and nothing is forged where a stream
// breaks (corpus D61, D93).
func TestMCPStream(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w, s, _ := messageWorld(t, mcpRule())
			next := make(chan string)
			s.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				w.WriteHeader(200)
				for {
					_ = http.NewResponseController(w).Flush()
					select {
					case text, ok := <-next:
						if !ok {
							return
						}
						_, _ = io.WriteString(w, text)
					case <-r.Context().Done():
						return
					}
				}
			}
			r, err := http.NewRequest("POST", messageBase+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client(messageHost, 443, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			in := bufio.NewReader(resp.Body)
			notice := `{"jsonrpc":"2.0","method":"notifications/progress"}`
			for _, step := range []struct{ say, hear string }{
				{": keep-alive\n", ": keep-alive\n"},
				{"id: 1\nretry: 5\ndata:\n\n", "id: 1\nretry: 5\ndata: \n\n"},
				{"data: " + notice + "\n\n", "data: " + notice + "\n\n"},
				{"event: message\r\ndata:" + notice + "\r\n\r\n", "event: message\ndata: " + notice + "\n\n"},
				{"data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\n", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n"},
				{"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n"},
				{"data: " + answered(1, listing) + "\n\n", "data: " + answered(1, shown) + "\n\n"},
			} {
				next <- step.say
				got := make([]byte, len(step.hear))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != step.hear {
					t.Fatalf("after %q: got %q %v, want %q", step.say, got, err, step.hear)
				}
			}
			next <- "data: " + notice + "x\n\ndata: " + notice + "\n\n"
			rest, err := io.ReadAll(in)
			if err == nil || len(rest) > 0 {
				t.Errorf("after a malformed event: got %q %v, want nothing and an error", rest, err)
			}
		})
	}
}

// A question that no rule allows does not reach the client. The call that it was
// asked for fails; where no call waits, the stream goes on.
func TestMCPQuestion(t *testing.T) {
	w, s, c := messageWorld(t, mcpRule())
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 9\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sampling/createMessage\"}\n\n: next\n")
	}
	_, got := send(t, c, "POST", "/mcp", callTool(3, "search", `{}`))
	if !strings.HasPrefix(got, `data: {"jsonrpc":"2.0","id":3,"error":{"code":`) || !strings.HasSuffix(got, "}\n\n") || strings.Contains(got, "next") {
		t.Errorf("call: got %q, want an error for id 3 and the end", got)
	}
	if _, got := send(t, c, "GET", "/mcp", ""); got != "id: 9\ndata: \n\n: next\n" {
		t.Errorf("stream: got %q, want the question left out", got)
	}
	w.wantEvent("question of the server", func(e audit.Event) bool {
		return e.Verdict == audit.Deny && e.Operation == "from server: sampling/createMessage"
	})
}

// An event that is too large becomes an error for the call that waits; where
// nobody waits, the stream ends.
func TestMCPStreamTooLarge(t *testing.T) {
	rule := mcpRule()
	rule.MaxResponse = 4000
	_, s, c := messageWorld(t, rule)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+answered(1, `"`+strings.Repeat("x", 100_000)+`"`)+"\n\n")
	}
	_, got := send(t, c, "POST", "/mcp", callTool(1, "search", `{}`))
	if !strings.HasPrefix(got, `data: {"jsonrpc":"2.0","id":1,"error":{"code":`) || !strings.Contains(got, "max_response") || strings.Contains(got, "xxx") {
		t.Errorf("call: got %.300q, want an error for id 1", got)
	}
	resp, err := c.Get(messageBase + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if b, err := io.ReadAll(resp.Body); err == nil || len(b) > 0 {
		t.Errorf("stream: got %.100q %v, want nothing and an error", b, err)
	}
}

// In the older transport the server says where messages go: that must be a
// place of the rule's.
func TestMCPEndpoint(t *testing.T) {
	w, s, c := messageWorld(t, mcpRule())
	tests := []struct{ endpoint, want string }{
		{"/messages?session=1", "/messages?session=1"},
		{"messages?session=1", "/messages?session=1"},
		{messageBase + "/messages", "/messages"},
		{"/./messages", "/messages"},
		{"/admin", ""},
		{"/messages/../admin", ""},
		{"https://evil.example.org/messages", ""},
		{"//evil.example.org/messages", ""},
		{"http://" + messageHost + "/messages", ""},
		{messageBase + ":8443/messages", ""},
		{"https://user@" + messageHost + "/messages", ""},
		{"javascript:alert(1)", ""},
		{"/messages%2f..%2fadmin", ""},
	}
	for _, tt := range tests {
		t.Run(tt.endpoint, func(t *testing.T) {
			s.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "event: endpoint\ndata: "+tt.endpoint+"\n\n")
			}
			resp, err := c.Get(messageBase + "/mcp")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			b, err := io.ReadAll(resp.Body)
			want := "event: endpoint\ndata: " + tt.want + "\n\n"
			if tt.want == "" {
				want = ""
			}
			if string(b) != want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q %v, want %q", b, err, want)
			}
		})
	}
	w.wantNoFault()
}

// A stream that stays open holds nothing while nothing happens.
func TestMCPStreamHolds(t *testing.T) {
	w, s, c := messageWorld(t, mcpRule())
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+answered(4, `"`+strings.Repeat("x", 1<<20)+`"`)+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	resp, err := c.Get(messageBase + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); w.srv.bodies.held.Load() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("held: got %d bytes, want none", w.srv.bodies.held.Load())
		}
		time.Sleep(time.Millisecond)
	}
	_ = resp.Body.Close()
}

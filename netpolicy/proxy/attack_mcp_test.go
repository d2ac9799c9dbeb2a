package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestMCPListsThatHide: a server hides a tool that may not be called in every shape in
// which a client could still read it.
func TestMCPListsThatHide(t *testing.T) {
	message := answered(1, listing)
	half := len(message) / 2
	const stream = "text/event-stream"
	cases := []struct{ name, kind, answer string }{
		{"control: JSON", "application/json", message},
		{"control: event", stream, "data: " + message + "\n\n"},
		{"JSON of another name", "application/json; charset=utf-8", message},
		{"JSON in UTF-16", "application/json; charset=utf-16", message},
		{"JSON in bytes of UTF-16", "application/json", strings.Join(strings.Split(message, ""), "\x00")},
		{"byte order mark", "application/json", "\xef\xbb\xbf" + message},
		{"no type", "", message},
		{"plain text", "text/plain", message},
		{"stream as JSON", "application/json", "data: " + message + "\n\n"},
		{"JSON with a suffix", "application/vnd.x+json", message},
		{"CR alone", stream, "data: " + message + "\r\r"},
		{"CR LF", stream, "data: " + message + "\r\n\r\n"},
		{"byte order mark in a stream", stream, "\xef\xbb\xbfdata: " + message + "\n\n"},
		{"data in two lines", stream, "data: " + message[:half] + "\ndata: " + message[half:] + "\n\n"},
		{"data without a blank", stream, "data:" + message + "\n\n"},
		{"another event", stream, "event: other\ndata: " + message + "\n\n"},
		{"endpoint", stream, "event: endpoint\ndata: " + message + "\n\n"},
		{"no end", stream, "data: " + message + "\n"},
		{"comment", stream, ":x\ndata: " + message + "\n\n"},
		{"field in capitals", stream, "DATA: " + message + "\n\n"},
		{"another id", stream, "data: " + answered(7, listing) + "\n\n"},
		{"id as text", "application/json", strings.Replace(message, `"id":1`, `"id":"1"`, 1)},
		{"no id", "application/json", strings.Replace(message, `"id":1`, `"id":null`, 1)},
		{"result twice", "application/json", strings.Replace(message, `"result"`, `"result":{},"result"`, 1)},
		{"result and error", "application/json", strings.Replace(message, `"id":1`, `"id":1,"error":{"code":1,"message":"m"}`, 1)},
		{"list in capitals", "application/json", strings.Replace(message, `"tools"`, `"Tools"`, 1)},
		{"list with an escape", "application/json", strings.Replace(message, `"tools"`, `"\u0074ools"`, 1)},
		{"name with an escape", "application/json", strings.Replace(message, `"delete"`, `"d\u0065lete"`, 1)},
		{"name in capitals", "application/json", strings.Replace(message, `"name":"delete"`, `"Name":"delete","name":"search"`, 1)},
		{"an object as list", "application/json", answered(1, `{"tools":{"0":{"name":"delete"}}}`)},
		{"two answers", "application/json", message + message},
		{"batch in a batch", "application/json", "[[" + message + "]]"},
	}
	const host = "mcp.example.org"
	rule := mcpRule()
	rule.Name, rule.Host = "tools", host
	w := newWorld(t, policy.Network{Rules: []policy.Rule{rule}})
	var kind, answer string
	w.serve(host, 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header()["Content-Type"] = nil
		if kind != "" {
			rw.Header().Set("Content-Type", kind)
		}
		for _, piece := range []string{answer[:len(answer)/3], answer[len(answer)/3:]} {
			_, _ = io.WriteString(rw, piece)
			rw.(http.Flusher).Flush()
		}
	}))
	c := w.client(host, 443, false)
	for _, tt := range cases {
		kind, answer = tt.kind, tt.answer
		r := with(newRequest(t, "POST", "https://"+host+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)), "Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if strings.Contains(string(body), "delete") || strings.Contains(string(body), `d\u0065`) || strings.Contains(string(body), "d\x00e") {
			t.Errorf("%s: got %q, want the tool hidden", tt.name, body)
		}
		if strings.HasPrefix(tt.name, "control") && (err != nil || !strings.Contains(string(body), "search")) {
			t.Errorf("%s: got %q and %v, want the other tools", tt.name, body, err)
		}
	}
	w.wantNoFault()
}

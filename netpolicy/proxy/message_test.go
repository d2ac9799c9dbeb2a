package proxy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const (
	messageHost = "msg.example.org"
	messageBase = "https://" + messageHost
)

// sink is a server that keeps what it was sent, and answers as told.
type sink struct {
	mu     sync.Mutex
	bodies []string
	heads  []*http.Request
	// answer writes an answer; nil answers "{}".
	answer http.HandlerFunc
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.bodies, s.heads = append(s.bodies, string(b)), append(s.heads, r)
	s.mu.Unlock()
	if s.answer != nil {
		r.Body = io.NopCloser(bytes.NewReader(b))
		s.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

// last is the last request that arrived and its body, nil when none did.
func (s *sink) last() (*http.Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heads) == 0 {
		return nil, ""
	}
	return s.heads[len(s.heads)-1], s.bodies[len(s.bodies)-1]
}

func (s *sink) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads, s.bodies = nil, nil
}

// messageWorld has one host with one rule.
func messageWorld(t *testing.T, r policy.Rule) (*world, *sink, *http.Client) {
	t.Helper()
	return limitedWorld(t, r, func(*Limits) {})
}

// limitedWorld is a messageWorld with other limits.
func limitedWorld(t *testing.T, r policy.Rule, limit func(*Limits)) (*world, *sink, *http.Client) {
	t.Helper()
	r.Name, r.Host = "msg", messageHost
	w := newWorld(t, policy.Network{Rules: []policy.Rule{r}})
	limit(&w.srv.Limits)
	s := &sink{}
	w.serve(messageHost, 443, s)
	return w, s, w.client(messageHost, 443, false)
}

// send makes a request; the fields are pairs of name and value.
func send(t *testing.T, c *http.Client, method, target, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, messageBase+target, in)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp, readBody(t, resp)
}

const inJSON = "Content-Type"

func jsonrpcRule() policy.Rule {
	return policy.Rule{
		Protocol: policy.ProtocolJSONRPC, Paths: []string{"/rpc"}, AllowSet: true,
		Allow: []policy.Match{{Calls: []string{"eth_call", "net_*"}}, {Calls: []string{"read"}, Args: map[string]string{"/path": "/pub/*"}}},
		Deny:  []policy.Match{{Calls: []string{"net_kill"}}},
	}
}

func pack(t *testing.T, coding string, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "deflate" {
		w = zlib.NewWriter(&b)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is judged is what arrives, whatever a body is packed in; what can be read
// in two ways does not arrive (corpus D54, D82, D84).
func TestMessageBodies(t *testing.T) {
	const call = `{"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [1e2, "\u0041"]}`
	const canonical = `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[1e2,"A"]}`
	_, s, c := messageWorld(t, jsonrpcRule())
	tests := []struct {
		name   string
		body   string
		fields []string
		status int // 200: it arrives
	}{
		{"plain", call, []string{inJSON, "application/json"}, 200},
		{"charset", call, []string{inJSON, "application/json; charset=UTF-8"}, 200},
		{"no type", call, nil, 200},
		{"gzip", pack(t, "gzip", call), []string{inJSON, "application/json", "Content-Encoding", "gzip"}, 200},
		{"deflate", pack(t, "deflate", call), []string{"Content-Encoding", "deflate"}, 200},
		{"identity", call, []string{"Content-Encoding", "identity", "Content-MD5", "aGk="}, 200},
		{"brotli", call, []string{"Content-Encoding", "br"}, 403},
		{"zstd", call, []string{"Content-Encoding", "zstd"}, 403},
		{"twice", pack(t, "gzip", pack(t, "gzip", call)), []string{"Content-Encoding", "gzip, gzip"}, 403},
		{"twice in two fields", pack(t, "gzip", call), []string{"Content-Encoding", "gzip", "Content-Encoding", "deflate"}, 403},
		{"packed in secret", pack(t, "gzip", call), nil, 400},
		{"not packed at all", call, []string{"Content-Encoding", "gzip"}, 403},
		{"cut", pack(t, "gzip", call)[:30], []string{"Content-Encoding", "gzip"}, 403},
		{"bytes after", pack(t, "gzip", call) + "x", []string{"Content-Encoding", "gzip"}, 403},
		{"bomb", pack(t, "gzip", call+strings.Repeat(" ", 12<<20)), []string{"Content-Encoding", "gzip"}, 403},
		{"too large", call + strings.Repeat(" ", 17<<20), nil, 403},
		{"too large when unpacked", pack(t, "gzip", call+strings.Repeat(" ", 20<<20)), []string{"Content-Encoding", "gzip"}, 403},
		{"many values", `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[` + strings.Repeat("0,", 600_000) + `0]}`, nil, 403},
		{"charset of two bytes", call, []string{inJSON, "application/json; charset=utf-16"}, 403},
		{"UTF-16", "\xfe\xff\x00{\x00}", nil, 400},
		{"byte order mark", "\xef\xbb\xbf" + call, nil, 400},
		{"two documents", call + call, nil, 400},
		{"comment", "/* */" + call, nil, 400},
		{"NaN", strings.Replace(call, "1e2", "NaN", 1), nil, 400},
		{"bytes that are no text", strings.Replace(call, `\u0041`, "\xff", 1), nil, 400},
		{"half a pair", strings.Replace(call, `\u0041`, `\ud800`, 1), nil, 400},
		{"deep", strings.Repeat("[", 100_000), nil, 400},
		{"empty", " ", nil, 400},
		{"name twice", `{"jsonrpc":"2.0","id":1,"method":"evil","method":"eth_call"}`, nil, 400},
		{"name twice below", `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"a":1,"\u0061":2}]}`, nil, 400},
		{"name in another case", `{"jsonrpc":"2.0","id":1,"method":"eth_call","Method":"evil"}`, nil, 400},
		{"form", call, []string{inJSON, "application/x-www-form-urlencoded"}, 403},
		{"multipart", call, []string{inJSON, "multipart/form-data; boundary=x"}, 403},
		{"text", call, []string{inJSON, "text/plain"}, 403},
		{"two types", call, []string{inJSON, "application/json", inJSON, "text/plain"}, 403},
		{"malformed type", call, []string{inJSON, "json"}, 403},
		{"other method", call, []string{"X-HTTP-Method-Override", "POST"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, "POST", "/rpc", tt.body, tt.fields...)
			r, got := s.last()
			if resp.StatusCode != tt.status {
				t.Fatalf("status: got %d, want %d\n%s", resp.StatusCode, tt.status, answer)
			}
			if tt.status != 200 {
				if r != nil {
					t.Errorf("server: got %.200q, want nothing", got)
				}
				return
			}
			if got != canonical {
				t.Errorf("body: got %q, want %q", got, canonical)
			}
			if e := r.Header.Get("Content-Encoding") + r.Header.Get("Content-Md5"); e != "" || r.Header.Get(inJSON) != "application/json" || r.ContentLength != int64(len(canonical)) {
				t.Errorf("head: got encoding %q, type %q, length %d, want none, JSON, %d", e, r.Header.Get(inJSON), r.ContentLength, len(canonical))
			}
		})
	}
}

// A message is judged whole in whatever pieces it comes (corpus D65).
func TestMessageInPieces(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for method, want := range map[string]int{"eth_call": 200, "evil": 403} {
			t.Run(fmt.Sprintf("%s h2 %v", method, h2), func(t *testing.T) {
				w, s, _ := messageWorld(t, jsonrpcRule())
				in, out := io.Pipe()
				go func() {
					for _, c := range []byte(`{"jsonrpc":"2.0","id":"a","method":"` + method + `"}`) {
						_, _ = out.Write([]byte{c})
					}
					_ = out.Close()
				}()
				r, err := http.NewRequest("POST", messageBase+"/rpc", in)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := w.client(messageHost, 443, h2).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				readBody(t, resp)
				if got, _ := s.last(); resp.StatusCode != want || (got != nil) != (want == 200) {
					t.Errorf("got status %d, arrived %v, want %d", resp.StatusCode, got != nil, want)
				}
			})
		}
	}
}

// A body that does not come ends at the deadline, whether nothing comes or too
// little at a time.
func TestMessageDeadline(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w, s, _ := limitedWorld(t, jsonrpcRule(), func(l *Limits) { l.Message = 400 * time.Millisecond })
			in, out := io.Pipe()
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				defer func() { _ = out.Close() }()
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						if _, err := out.Write([]byte(" ")); err != nil {
							return
						}
					}
				}
			}()
			r, err := http.NewRequest("POST", messageBase+"/rpc", in)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client(messageHost, 443, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			readBody(t, resp)
			if got, _ := s.last(); resp.StatusCode != http.StatusRequestTimeout || got != nil {
				t.Errorf("got status %d, arrived %v, want 408 and nothing", resp.StatusCode, got != nil)
			}
		})
	}
}

// What all requests hold together is bounded, and given back at their end.
func TestMessagesHeld(t *testing.T) {
	w, _, c := limitedWorld(t, jsonrpcRule(), func(l *Limits) { l.MessagesHeld = 64 << 10 })
	const call = `{"jsonrpc":"2.0","id":1,"method":"eth_call"}`
	for range 3 {
		if resp, _ := send(t, c, "POST", "/rpc", call+strings.Repeat(" ", 100<<10)); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("large: got %d, want 503", resp.StatusCode)
		}
		if resp, _ := send(t, c, "POST", "/rpc", call); resp.StatusCode != http.StatusOK {
			t.Errorf("small: got %d, want 200", resp.StatusCode)
		}
	}
	c.CloseIdleConnections()
	_ = w.srv.Close()
	if got := w.srv.bodies.held.Load(); got != 0 {
		t.Errorf("held at the end: got %d, want 0", got)
	}
}

// Every call counts, and a batch goes as a whole (corpus D85, D86).
func TestJSONRPC(t *testing.T) {
	w, s, c := messageWorld(t, jsonrpcRule())
	call := func(method string) string { return `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}` }
	tests := []struct {
		name, body string
		status     int
	}{
		{"call", call("eth_call"), 200},
		{"glob", call("net_version"), 200},
		{"notification", `{"jsonrpc":"2.0","method":"eth_call"}`, 200},
		{"batch", "[" + call("eth_call") + "," + call("net_version") + "]", 200},
		{"argument", `{"jsonrpc":"2.0","id":1,"method":"read","params":{"path":"/pub/a"}}`, 200},
		{"other argument", `{"jsonrpc":"2.0","id":1,"method":"read","params":{"path":"/etc/a"}}`, 403},
		{"argument missing", `{"jsonrpc":"2.0","id":1,"method":"read"}`, 403},
		{"argument twice", `{"jsonrpc":"2.0","id":1,"method":"read","params":{"path":"/pub/a","Path":"/etc/a"}}`, 403},
		{"unknown", call("evil"), 403},
		{"denied", call("net_kill"), 403},
		{"denied notification", `{"jsonrpc":"2.0","method":"net_kill"}`, 403},
		{"denied in a batch", "[" + call("eth_call") + "," + call("net_kill") + "]", 403},
		{"denied first in a batch", "[" + call("net_kill") + "," + call("eth_call") + "]", 403},
		{"batch in a batch", "[[" + call("eth_call") + "]]", 400},
		{"empty batch", "[]", 400},
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, 403},
		{"response in a batch", "[" + call("eth_call") + `,{"jsonrpc":"2.0","id":1,"result":{}}]`, 403},
		{"call and response", `{"jsonrpc":"2.0","id":1,"method":"eth_call","result":1}`, 400},
		{"version 1", `{"id":1,"method":"eth_call"}`, 400},
		{"version as number", `{"jsonrpc":2.0,"id":1,"method":"eth_call"}`, 400},
		{"no method", `{"jsonrpc":"2.0","id":1}`, 400},
		{"method as list", `{"jsonrpc":"2.0","id":1,"method":["eth_call"]}`, 400},
		{"empty method", call(""), 400},
		{"slash", call("eth_call/"), 400},
		{"space", call("eth_call "), 400},
		{"NUL", `{"jsonrpc":"2.0","id":1,"method":"eth_call\u0000"}`, 400},
		{"id as object", `{"jsonrpc":"2.0","id":{},"method":"eth_call"}`, 400},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"eth_call"}`, 400},
		{"id as fraction", `{"jsonrpc":"2.0","id":1.5,"method":"eth_call"}`, 400},
		{"long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","method":"eth_call"}`, 400},
		{"params as string", `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":"x"}`, 400},
		{"other member", `{"jsonrpc":"2.0","id":1,"method":"eth_call","auth":"x"}`, 400},
		{"not an object", `"eth_call"`, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, "POST", "/rpc", tt.body)
			if r, _ := s.last(); resp.StatusCode != tt.status || (r != nil) != (tt.status == 200) {
				t.Errorf("got status %d, arrived %v, want %d\n%s", resp.StatusCode, r != nil, tt.status, answer)
			}
		})
	}
	for _, tt := range []struct{ method, target string }{{"GET", "/rpc"}, {"PUT", "/rpc"}, {"POST", "/rpc?Method=net_kill"}, {"POST", "/other"}} {
		s.forget()
		if resp, _ := send(t, c, tt.method, tt.target, map[string]string{"GET": ""}[tt.method]+call("eth_call")); resp.StatusCode != 403 {
			t.Errorf("%s %s: got %d, want 403", tt.method, tt.target, resp.StatusCode)
		}
		if r, _ := s.last(); r != nil {
			t.Errorf("%s %s: it arrived", tt.method, tt.target)
		}
	}
	w.wantEvent("allowed batch", func(e audit.Event) bool {
		return e.Verdict == audit.Allow && e.Operation == "eth_call, net_version" && e.Rule == "msg"
	})
	w.wantEvent("denied call", func(e audit.Event) bool { return e.Verdict == audit.Deny && e.Operation == "net_kill" })
	w.wantNoFault()
}

// A refusal is a JSON-RPC error with the call's id, and holds nothing of the
// content.
func TestJSONRPCRefusal(t *testing.T) {
	_, _, c := messageWorld(t, jsonrpcRule())
	_, answer := send(t, c, "POST", "/rpc", `{"jsonrpc":"2.0","id":"x7","method":"evil","params":["s3cret"]}`)
	var got struct {
		ID    string
		Error struct {
			Code    int
			Message string
			Data    struct{ Error, ID, Reason string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	if got.ID != "x7" || got.Error.Code != rpcDenied || got.Error.Data.Error != errPolicy || got.Error.Data.ID == "" {
		t.Errorf("got %s, want an error for x7 with a refusal", answer)
	}
	if !strings.Contains(got.Error.Message, "policy") || strings.Contains(answer, "s3cret") {
		t.Errorf("message: got %q, want the policy named and no content", got.Error.Message)
	}
}

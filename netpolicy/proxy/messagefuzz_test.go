package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// A batch with an element that cannot be read cannot be read, and one that can
// has as many messages as elements, each the same as alone.
func FuzzJSONRPCBatch(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","method":"a","params":[]}`, `{"jsonrpc":"2.0","id":"x","result":{}}`,
		`[]`, `null`, `{"Method":"a"}`, `{"jsonrpc":"2.0","id":1,"method":"a","result":1}`,
	} {
		f.Add(seed, `{"jsonrpc":"2.0","id":2,"method":"evil"}`)
		f.Add(`{"jsonrpc":"2.0","id":2,"method":"evil"}`, seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		a, errA := strictjson.Parse([]byte(first))
		b, errB := strictjson.Parse([]byte(second))
		if errA != nil || errB != nil {
			return
		}
		batch, err := strictjson.Parse([]byte("[" + first + "," + second + "]"))
		if err != nil {
			t.Fatalf("batch of two values: %v", err)
		}
		ma, badA := parseRPCMessage(a)
		mb, badB := parseRPCMessage(b)
		got, isBatch, err := parseRPC(batch)
		if (err == nil) != (badA == nil && badB == nil) {
			t.Fatalf("got %v, want %v and %v", err, badA, badB)
		}
		if err != nil {
			return
		}
		if !isBatch || len(got) != 2 || got[0].method != ma.method || got[1].method != mb.method || got[0].kind != ma.kind || got[1].kind != mb.kind {
			t.Errorf("got %v, want %q and %q", got, ma.method, mb.method)
		}
		// What goes out is read alike.
		again, err := strictjson.Parse(batch.Append(nil))
		if err != nil || !bytes.Equal(again.Append(nil), batch.Append(nil)) {
			t.Errorf("written anew: got %v, want the same", err)
		}
	})
}

// The events of a stream do not depend on the pieces that it comes in, and none
// of its fields can end an event early.
func FuzzEventSplitter(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\n", "data: a\r\rdata: b\r\n\r\n", ": c\n\ndata\n\n", "\xef\xbb\xbfdata: x\n\n", "id: 1\nid\nretry: 5\nevent: e\ndata: 1\ndata: 2\n\n",
		"data: a\n", "id: a\x00b\ndata: x\n\n", "x: y\n\n",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(3))
	}
	split := func(b []byte, piece int) (out []string, err error) {
		s := eventSplitter{most: 1 << 16, comment: func(c []byte) { out = append(out, "c"+string(c)) }, event: func(e serverEvent) error {
			out = append(out, fmt.Sprintf("e%q %q %v %q %q", e.name, e.id, e.hasID, e.retry, e.data))
			if strings.ContainsAny(e.name+e.id+e.retry, "\r\n") || bytes.ContainsAny(e.data, "\r") {
				return fmt.Errorf("line end in %+v", e)
			}
			return nil
		}}
		for len(b) > 0 && err == nil {
			n := min(piece, len(b))
			err = s.feed(b[:n])
			b = b[n:]
		}
		return out, err
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		whole, errWhole := split(b, len(b)+1)
		pieces, errPieces := split(b, int(piece)%7+1)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) || fmt.Sprint(errWhole) != fmt.Sprint(errPieces) {
			t.Errorf("got %q %v, want %q %v", pieces, errPieces, whole, errWhole)
		}
		if errWhole != nil && !errors.Is(errWhole, errEventField) {
			t.Errorf("got %v", errWhole)
		}
	})
}

// What is read of a push is what goes out, to the byte, and its refs are names
// that git takes.
func FuzzPushCommands(f *testing.F) {
	for _, lines := range [][]string{
		{oldID + " " + freshID + " refs/heads/a" + caps},
		{"shallow " + oldID, oldID + " " + noID + " refs/tags/b" + caps},
		{"push-cert" + caps},
		{oldID + " " + freshID + " refs/heads/a" + caps, oldID + " " + freshID + " refs/heads/b\n"},
	} {
		f.Add([]byte(push(lines...) + "PACK"))
	}
	f.Add([]byte("0000"))
	f.Add([]byte("0001"))
	f.Fuzz(func(t *testing.T, b []byte) {
		commands, raw, err := readPushCommands(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, raw) || !bytes.HasSuffix(raw, []byte("0000")) {
			t.Fatalf("got %q, want the start of %q up to a flush", raw, b)
		}
		for _, c := range commands {
			if !isRef(c.ref) || strings.ContainsAny(c.ref, "\x00\n ") || !bytes.Contains(raw, []byte(" "+c.ref)) {
				t.Errorf("ref: got %q", c.ref)
			}
		}
	})
}

// A document that was written anew is read alike, and has the same fields.
func FuzzGraphQL(f *testing.F) {
	for _, seed := range []string{
		"{ a }", "query A($x: [Int!] = [1]) { a(x: $x, s: \"\\u0041\\n\") @d ...f } fragment f on Q { b }", "{ a(s: \"\"\"x\n  y\\\"\"\"\"\"\") }",
		"mutation { a: b }", "# c\n{ ... on Q { a } }", "{a,b}", "\ufeff{ a }", "{ a # x\rb }",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		text, operations, err := parseDocument(source, "")
		if err != nil {
			return
		}
		again, same, err := parseDocument(text, "")
		if err != nil || again != text || fmt.Sprint(operations) != fmt.Sprint(same) {
			t.Errorf("got %q %v %v, want %q %v", again, same, err, text, operations)
		}
		for _, o := range operations {
			for _, field := range o.Fields {
				if !strings.Contains(text, field) {
					t.Errorf("field %q: got none in %q", field, text)
				}
			}
		}
	})
}

// A batch is allowed only if every element alone is: what a claim says of one
// call, no other call beside it changes.
func FuzzBatchIsJudgedWhole(f *testing.F) {
	rule := jsonrpcRule()
	rule.Name, rule.Host = "msg", messageHost
	engine, err := netpolicy.Compile(policy.Network{Rules: []policy.Rule{rule}})
	if err != nil {
		f.Fatal(err)
	}
	s := &Server{Rules: Rules{Engine: engine}}
	f.Cleanup(func() { _ = s.Close() })
	host, err := netpolicy.ParseHost(messageHost)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"eth_call"}`, `{"jsonrpc":"2.0","id":2,"method":"net_kill"}`, `{"jsonrpc":"2.0","method":"net_x"}`,
		`{"jsonrpc":"2.0","id":3,"method":"read","params":{"path":"/pub/a"}}`, `{"jsonrpc":"2.0","id":3,"method":"read","params":{"path":"/etc/a"}}`, `[]`, `1`,
	} {
		f.Add(`{"jsonrpc":"2.0","id":9,"method":"eth_call"}`, seed)
		f.Add(seed, `{"jsonrpc":"2.0","id":9,"method":"net_kill"}`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		judge := func(body string) bool {
			fl, refused := s.judge(context.Background(), &front{host: host, port: 443, tls: true}, &request{
				method: "POST", target: "/rpc", authority: messageHost, header: http.Header{},
				body: io.NopCloser(strings.NewReader(body)), length: int64(len(body)),
			})
			if refused == nil {
				fl.close()
			}
			return refused == nil
		}
		// A list is not an element: a batch in a batch is refused.
		alone := judge(first) && judge(second) && !isList(first) && !isList(second)
		if got := judge("[" + first + "," + second + "]"); got && !alone && plainPair(first, second) {
			t.Errorf("batch of %q and %q: got it allowed, want it denied", first, second)
		}
	})
}

func isList(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "[") }

// plainPair tells whether each text is one JSON value: two that are none can
// make one together.
func plainPair(texts ...string) bool {
	for _, text := range texts {
		if _, err := strictjson.Parse([]byte(text)); err != nil {
			return false
		}
	}
	return true
}

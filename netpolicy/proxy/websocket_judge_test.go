package proxy

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Each message is judged whole, and JSON goes out as it was read (corpus D56).
func TestWebSocketMessagesAreJudged(t *testing.T) {
	text := func(s string) []ws.Frame { return []ws.Frame{ws.NewTextFrame([]byte(s))} }
	cases := []struct {
		name   string
		frames []ws.Frame
		want   string // what the server gets; "" when it is denied
	}{
		{"allowed", text(`{"op":"read"}`), `text:{"op":"read"}`},
		{"written anew", text("{ \"op\" : \"re\\u0061d\",\t\"n\": 1.50 }"), `text:{"op":"read","n":1.50}`},
		{"allowed in parts", []ws.Frame{ws.NewFrame(ws.OpText, false, []byte(`{"op":`)), ws.NewFrame(ws.OpContinuation, true, []byte(`"read"}`))}, `text:{"op":"read"}`},
		{"other value", text(`{"op":"write"}`), ""},
		{"other value in parts", []ws.Frame{ws.NewFrame(ws.OpText, false, []byte(`{"op":"wr`)), ws.NewFrame(ws.OpContinuation, true, []byte(`ite"}`))}, ""},
		{"no value", text(`{}`), ""},
		{"name twice", text(`{"op":"read","op":"write"}`), ""},
		{"name in two spellings", text(`{"op":"read","OP":"write"}`), ""},
		{"text after it", text(`{"op":"read"}{"op":"write"}`), ""},
		{"not JSON", text(`read`), ""},
		{"binary", []ws.Frame{ws.NewBinaryFrame([]byte(`{"op":"read"}`))}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			server := make(chan string, 10)
			w.serveSockets(80, func(e *wsEnd) {
				for f := e.next(); f != "end"; f = e.next() {
					server <- f
				}
				close(server)
			})
			client := w.socket(80, "/ws/json")
			for _, f := range c.frames {
				client.send(f)
			}
			if c.want != "" {
				if got := <-server; got != c.want {
					t.Errorf("server: got %q, want %q", got, c.want)
				}
				return
			}
			if got := client.all(); !slices.Equal(got, []string{"close:1008"}) {
				t.Errorf("client: got %q, want close:1008", got)
			}
			if got := <-server; got != "close:1008" {
				t.Errorf("server: got %q, want close:1008 alone", got)
			}
			w.wantEvent("denial that names rule and reason", func(e audit.Event) bool {
				return e.Verdict == audit.Deny && e.Rule == "ws" && e.Operation == "websocket" && e.Reason != "" && e.ID != "" && e.Path == "/ws/json"
			})
		})
	}
}

// Whoever searches messages sees each of the client's as it goes out, and what
// its control frames hold, before the server does.
func TestWebSocketMessagesAreSearched(t *testing.T) {
	for name, frame := range map[string]ws.Frame{
		"text":   ws.NewTextFrame([]byte("a secret")),
		"binary": ws.NewBinaryFrame([]byte("a secret")),
		"ping":   ws.NewPingFrame([]byte("a secret")),
		"close":  ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "a secret")),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			k := &socket{fl: &flow{s: &Server{}, messages: []func([]byte) *refusal{func(b []byte) *refusal {
				if strings.Contains(string(b), "secret") {
					return malformed(0, "a secret")
				}
				return nil
			}}}}
			k.client = wsPeer{}
			in := strings.NewReader(string(frame.Payload))
			k.client.in = bufio.NewReader(in)
			k.server = wsPeer{out: &out}
			k.claim.Store(allowAll(t))
			k.fl.s.start()
			defer func() { _ = k.fl.s.Close() }()
			var err error
			if frame.Header.OpCode.IsControl() {
				err = k.passControl(&k.client, &k.server, frame.Header)
			} else {
				err = k.forward(&wsMessage{op: frame.Header.OpCode, buf: append(make([]byte, wsHeadroom), frame.Payload...)})
			}
			var fault *wsFault
			if !errors.As(err, &fault) || fault.code != ws.StatusPolicyViolation || out.Len() > 0 {
				t.Errorf("got %v and %q forwarded, want a policy violation and nothing", err, out.String())
			}
		})
	}
}

// allowAll gives a claim that allows every message.
func allowAll(t testing.TB) *netpolicy.Claim {
	t.Helper()
	e, err := netpolicy.Compile(policy.Network{Rules: []policy.Rule{{Name: "ws", Host: "api.example.org", Protocol: policy.ProtocolWebSocket}}})
	if err != nil {
		t.Fatal(err)
	}
	d := e.Request(netpolicy.Request{Host: mustHost(t, "api.example.org"), Port: 443, Method: "GET", Path: "/", WebSocket: true})
	if d.Claim == nil {
		t.Fatalf("got %+v, want a claim", d)
	}
	return d.Claim
}

// A reload reaches open sockets: the new rules judge the next message, and a
// socket that they forbid is closed.
func TestWebSocketReload(t *testing.T) {
	tighter, none := socketNetwork(), without(socketNetwork(), "ws")
	tighter.Rules[0].Allow = []policy.Match{{Paths: []string{"/ws/any"}, JSON: map[string]string{"/op": "read"}}}
	cases := []struct {
		name string
		now  policy.Network
		want string
	}{
		{"control: the same rules", socketNetwork(), "text:after"},
		{"tighter", tighter, "close:1008"},
		{"gone", none, "close:1008"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			w.serveSockets(80, repeat)
			client := w.socket(80, "/ws/any")
			client.say("before")
			if got := client.next(); got != "text:before" {
				t.Fatalf("before: got %q", got)
			}
			w.swap(c.now)
			client.say("after")
			if got := client.next(); got != c.want {
				t.Errorf("after: got %q, want %q", got, c.want)
			}
		})
	}
}

// The end of one side ends the other, however it comes, and leaves nothing open.
func TestWebSocketEnds(t *testing.T) {
	before := openFiles(t)
	for range 20 {
		w := newWorld(t, socketNetwork())
		ended := make(chan []string, 1)
		w.serveSockets(80, func(e *wsEnd) {
			if e.next() == "text:go" {
				return // without a Close frame
			}
			ended <- e.all()
		})
		client := w.socket(80, "/ws/any")
		client.say("go")
		if got := client.all(); len(got) > 0 {
			t.Errorf("server gone: client got %q, want the end alone", got)
		}
		client = w.socket(80, "/ws/any")
		client.say("stay")
		_ = client.Close()
		if got := <-ended; !slices.Equal(got, []string{"close:1001"}) {
			t.Errorf("client gone: server got %q, want close:1001", got)
		}
		_ = w.srv.Close()
		if got := w.srv.waiting.held.Load(); got != 0 || len(w.srv.held.held) != 0 {
			t.Errorf("after the end: got %d bytes and %d sockets held, want none", got, len(w.srv.held.held))
		}
	}
	// The listeners and files of the worlds stay open until the test ends.
	if after := openFiles(t); after > before+20*8 {
		t.Errorf("open files: got %d, want no more than %d", after, before+20*8)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A socket on which nothing moves is closed after the idle limit, and not before.
func TestWebSocketIdle(t *testing.T) {
	w := newWorld(t, socketNetwork())
	w.srv.Limits.Idle = 2 * time.Second
	w.serveSockets(80, repeat)
	client := w.socket(80, "/ws/any")
	began := time.Now()
	for range 4 {
		time.Sleep(700 * time.Millisecond) // what is tested is the time itself
		client.say("x")
		if got := client.next(); got != "text:x" {
			t.Fatalf("after %v: got %q, want the socket to live", time.Since(began), got)
		}
	}
	idle := time.Now()
	if got := client.next(); got != "close:1001" || time.Since(idle) < 1900*time.Millisecond || time.Since(idle) > 30*time.Second {
		t.Errorf("got %q after %v, want close:1001 after two seconds", got, time.Since(idle))
	}
	w.wantEvent("closed for idleness", func(e audit.Event) bool { return strings.Contains(e.Reason, "nothing moved") })
}

// What all sockets together hold of messages that are not whole is bounded.
func TestWebSocketMessagesHeld(t *testing.T) {
	w := newWorld(t, socketNetwork())
	w.srv.Limits.Waiting = 256 << 10
	w.serveSockets(80, repeat)
	var clients []*wsEnd
	part := ws.NewFrame(ws.OpBinary, false, make([]byte, 90_000))
	for range 3 {
		c := w.socket(80, "/ws/any")
		c.send(part)
		clients = append(clients, c)
	}
	over := 0
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if f, err := readFrame(c.in); err == nil && f.Header.OpCode == ws.OpClose {
			if code, _ := ws.ParseCloseFrameData(f.Payload); code != 1013 {
				t.Errorf("got code %d, want 1013", code)
			}
			over++
		}
	}
	if over == 0 || over == len(clients) {
		t.Errorf("got %d of %d sockets closed, want those that came too late", over, len(clients))
	}
	if got := w.srv.waiting.held.Load(); got > 256<<10 {
		t.Errorf("got %d bytes held, want at most %d", got, 256<<10)
	}
}

package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// socketNetwork allows WebSockets on one host, and plain requests there.
func socketNetwork() policy.Network {
	return policy.Network{Rules: []policy.Rule{
		{
			Name: "ws", Host: "api.example.org", Protocol: policy.ProtocolWebSocket, Paths: []string{"/ws/**"}, AllowSet: true,
			Allow: []policy.Match{
				{Paths: []string{"/ws/any"}, MaxMessage: 100_000},
				{Paths: []string{"/ws/json"}, JSON: map[string]string{"/op": "read"}},
			},
			Pos: policy.Pos{File: "p.yaml", Line: 7, Col: 5},
		},
		{Name: "http", Host: "api.example.org", Access: "read-write"},
	}}
}

// wsEnd is one end of a socket, frame by frame.
type wsEnd struct {
	net.Conn
	in    *bufio.Reader
	masks bool
	head  *http.Request
}

// send writes a frame as it is told to, right or wrong.
func (e *wsEnd) send(f ws.Frame) {
	f.Payload = bytes.Clone(f.Payload)
	if e.masks && !f.Header.Masked {
		f = ws.MaskFrameInPlaceWith(f, [4]byte{1, 2, 3, 4})
	}
	f.Header.Length = int64(len(f.Payload))
	_ = ws.WriteFrame(e.Conn, f)
}

// readFrame reads one whole frame, none of which is long in these tests.
func readFrame(r io.Reader) (f ws.Frame, err error) {
	if f.Header, err = ws.ReadHeader(r); err != nil {
		return f, err
	}
	if f.Header.Length > 64<<20 {
		return f, fmt.Errorf("frame of %d bytes", f.Header.Length)
	}
	f.Payload = make([]byte, f.Header.Length)
	_, err = io.ReadFull(r, f.Payload)
	return f, err
}

func (e *wsEnd) say(text string) { e.send(ws.NewTextFrame([]byte(text))) }

// next gives the next frame, unmasked, as "text:hello", "close:1002" or "end".
func (e *wsEnd) next() string {
	_ = e.SetReadDeadline(time.Now().Add(5 * time.Second))
	f, err := readFrame(e.in)
	if err != nil {
		return "end"
	}
	if f.Header.Masked == e.masks {
		return "wrongly masked"
	}
	f = ws.UnmaskFrame(f)
	name := map[ws.OpCode]string{
		ws.OpText: "text", ws.OpBinary: "binary", ws.OpPing: "ping", ws.OpPong: "pong", ws.OpContinuation: "more",
	}[f.Header.OpCode]
	if f.Header.OpCode == ws.OpClose {
		code, _ := ws.ParseCloseFrameData(f.Payload)
		return fmt.Sprintf("close:%d", code)
	}
	if !f.Header.Fin {
		name += "…"
	}
	return name + ":" + string(f.Payload)
}

// all gives the frames up to the end.
func (e *wsEnd) all() (got []string) {
	for {
		f := e.next()
		if f == "end" {
			return got
		}
		got = append(got, f)
	}
}

// serveSockets publishes a server that accepts every handshake and has f hold
// the conversation.
func (w *world) serveSockets(port int, f func(*wsEnd)) {
	w.serveRaw("api.example.org", port, func(c net.Conn) {
		if port == 443 {
			config := w.serverTLS()
			config.NextProtos = []string{"http/1.1"}
			c = tls.Server(c, config)
		}
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Server: yes\r\n"+
			"Sec-WebSocket-Accept: %s\r\n\r\n", acceptOf(r.Header.Get(wsKeyField)))
		f(&wsEnd{Conn: c, in: in, head: r})
	})
}

const (
	testKey   = "dGhlIHNhbXBsZSBub25jZQ=="
	handshake = "Host: api.example.org\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + testKey + "\r\n"
)

// socket opens one and gives the client's end of it.
func (w *world) socket(port int, path string) *wsEnd {
	w.t.Helper()
	c := w.open("api.example.org", port, map[int]string{443: "api.example.org"}[port])
	w.t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\n"+handshake+"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("handshake: got %s, want 101", resp.Status)
	}
	if got, want := resp.Header.Get(wsAcceptField), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="; got != want {
		w.t.Errorf("accept: got %q, want %q", got, want)
	}
	if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
		w.t.Errorf("extensions: got %q, want none", got)
	}
	return &wsEnd{Conn: c, in: in, masks: true}
}

// repeat sends every frame back, whole, and answers Close.
func repeat(e *wsEnd) {
	for {
		h, err := ws.ReadHeader(e.in)
		if err != nil || !h.Masked {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(e.in, payload); err != nil {
			return
		}
		ws.Cipher(payload, h.Mask, 0)
		if h.OpCode == ws.OpPing {
			h.OpCode = ws.OpPong
		}
		e.send(ws.NewFrame(h.OpCode, h.Fin, payload))
		if h.OpCode == ws.OpClose {
			return
		}
	}
}

// What a socket is for works, over TLS and without (control of the attacks below).
func TestWebSocket(t *testing.T) {
	for _, port := range []int{80, 443} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			w.serveSockets(port, repeat)
			c := w.socket(port, "/ws/any")
			c.say("héllo")
			c.send(ws.NewFrame(ws.OpText, false, []byte("a")))
			c.send(ws.NewPingFrame([]byte("between")))
			c.send(ws.NewFrame(ws.OpContinuation, false, nil))
			c.send(ws.NewFrame(ws.OpContinuation, true, []byte("b")))
			c.send(ws.NewBinaryFrame([]byte{0xff}))
			c.say("")
			c.say(strings.Repeat("x", 70_000))
			var got []string
			for range 5 {
				got = append(got, c.next())
			}
			if want := []string{"text:héllo", "pong:between", "text:ab", "binary:\xff", "text:"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			var long strings.Builder
			for first := true; ; first = false {
				kind, text, _ := strings.Cut(c.next(), ":")
				long.WriteString(text)
				if first && strings.HasPrefix(kind, "more") || kind == "end" {
					t.Fatalf("long message: got frame %q", kind)
				}
				if !strings.HasSuffix(kind, "…") {
					break
				}
			}
			if long.Len() != 70_000 {
				t.Errorf("long message: got %d bytes, want 70000", long.Len())
			}
			c.send(ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "bye")))
			if got := c.all(); !slices.Equal(got, []string{"close:1000"}) {
				t.Errorf("close: got %q, want close:1000 and the end", got)
			}
			w.wantNoFault()
		})
	}
}

// The upgrade reaches servers only in its one form, and only by leave of a rule
// for WebSocket (corpus D56).
func TestWebSocketHandshake(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"control", "GET /ws/any HTTP/1.1\r\n" + handshake, "101"},
		{"control: a plain request", "GET /plain HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n", "200"},
		{"other path", "GET /other HTTP/1.1\r\n" + handshake, "403"},
		{"path that no clause allows", "GET /ws/other HTTP/1.1\r\n" + handshake, "403"},
		{"other method", "POST /ws/any HTTP/1.1\r\nContent-Length: 0\r\n" + handshake, "403"},
		{"with a body", "GET /ws/any HTTP/1.1\r\nContent-Length: 2\r\n" + handshake, "400"},
		{"HTTP/1.0", "GET /ws/any HTTP/1.0\r\n" + handshake, "403"},
		{"other version", "GET /ws/any HTTP/1.1\r\n" + strings.Replace(handshake, ": 13", ": 8", 1), "400"},
		{"two versions", "GET /ws/any HTTP/1.1\r\nSec-WebSocket-Version: 13\r\n" + handshake, "400"},
		{"no key", "GET /ws/any HTTP/1.1\r\n" + strings.Replace(handshake, "-Key", "-Kee", 1), "400"},
		{"short key", "GET /ws/any HTTP/1.1\r\n" + strings.Replace(handshake, testKey, "c2hvcnQ=", 1), "400"},
		{"two keys", "GET /ws/any HTTP/1.1\r\nSec-WebSocket-Key: " + testKey + "\r\n" + handshake, "400"},
		{"two upgrades", "GET /ws/any HTTP/1.1\r\nUpgrade: h2c\r\n" + handshake, "403"},
		{"list of upgrades", "GET /ws/any HTTP/1.1\r\n" + strings.Replace(handshake, "WebSocket\r", "websocket, h2c\r", 1), "403"},
		{"connection without upgrade", "GET /ws/any HTTP/1.1\r\n" + strings.Replace(handshake, "keep-alive, Upgrade", "keep-alive", 1), "403"},
		{"malformed protocol", "GET /ws/any HTTP/1.1\r\nSec-WebSocket-Protocol: a b\r\n" + handshake, "400"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			reached := make(chan *http.Request, 1)
			w.serveRaw("api.example.org", 80, func(conn net.Conn) {
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				reached <- r
				status := "200 OK\r\nContent-Length: 0"
				if key := r.Header.Get(wsKeyField); key != "" {
					status = "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + acceptOf(key)
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\n\r\n")
			})
			got := w.raw("api.example.org", 80, "", c.text+"\r\n")
			if line := statusLine(got); !strings.Contains(line, " "+c.want+" ") {
				t.Errorf("got %q, want %s", line, c.want)
			}
			select {
			case r := <-reached:
				if c.want != "101" && c.want != "200" {
					t.Errorf("server saw %v, want nothing", r.Header)
				}
				if c.want == "101" && (r.Header.Get(wsKeyField) == testKey || r.Header.Get("Sec-WebSocket-Extensions") != "") {
					t.Errorf("server saw %v, want a key of our own and no extensions", r.Header)
				}
			default:
				if c.want == "101" || c.want == "200" {
					t.Error("server saw nothing")
				}
			}
		})
	}
}

// A server cannot switch to something that nobody asked for (corpus D57, D58).
func TestWebSocketAnswer(t *testing.T) {
	const good = "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: KEY"
	cases := []struct{ name, answer, want string }{
		{"control", good, "101"},
		{"control: with a protocol", good + "\r\nSec-WebSocket-Protocol: b", "101"},
		{"control: not now", "429 Too Many\r\nContent-Length: 0", "429"},
		{"no accept", strings.Replace(good, "Accept", "Axxept", 1), "502"},
		{"accept of the client's own key", strings.Replace(good, "KEY", acceptOf(testKey), 1), "502"},
		{"two accepts", good + "\r\nSec-WebSocket-Accept: KEY", "502"},
		{"other upgrade", strings.Replace(good, "Upgrade: websocket", "Upgrade: raw", 1), "502"},
		{"no upgrade", strings.Replace(good, "Upgrade: websocket\r\n", "", 1), "502"},
		{"no connection", strings.Replace(good, "Connection: Upgrade\r\n", "", 1), "502"},
		{"extension", good + "\r\nSec-WebSocket-Extensions: permessage-deflate", "502"},
		{"protocol that nobody offered", good + "\r\nSec-WebSocket-Protocol: c", "502"},
		{"two protocols", good + "\r\nSec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b", "502"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			w.serveRaw("api.example.org", 80, func(conn net.Conn) {
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					accept := acceptOf(r.Header.Get(wsKeyField))
					_, _ = io.WriteString(conn, "HTTP/1.1 "+strings.ReplaceAll(c.answer, "KEY", accept)+"\r\n\r\n")
				}
			})
			got := w.raw("api.example.org", 80, "", "GET /ws/any HTTP/1.1\r\nSec-WebSocket-Protocol: a, b\r\n"+
				strings.Replace(handshake, "keep-alive", "close", 1)+"\r\n")
			if line := statusLine(got); !strings.Contains(line, " "+c.want+" ") {
				t.Errorf("got %q, want %s", line, c.want)
			}
			if c.want == "502" {
				w.wantEvent("upstream failure", func(e audit.Event) bool { return e.Kind == audit.KindUpstream })
			}
		})
	}
}

// rawFrame is a frame's bytes, whatever they say.
func rawFrame(b ...byte) []byte { return b }

// A client that breaks the protocol is closed with the code that says so, and so
// is the server (corpus D57). Nothing of the frame reaches the server.
func TestWebSocketClientAbuse(t *testing.T) {
	text := ws.NewTextFrame([]byte("hi"))
	rsv := text
	rsv.Header.Rsv = ws.Rsv(true, false, false)
	part := ws.NewFrame(ws.OpText, false, []byte("a"))
	cases := []struct {
		name   string
		frames []ws.Frame
		raw    []byte
		want   string
	}{
		{name: "unmasked", raw: ws.MustCompileFrame(text), want: "close:1002"},
		{name: "RSV1, as compression would set", frames: []ws.Frame{rsv}, want: "close:1002"},
		{name: "reserved opcode", frames: []ws.Frame{ws.NewFrame(3, true, []byte("x"))}, want: "close:1002"},
		{name: "reserved control opcode", frames: []ws.Frame{ws.NewFrame(0xb, true, nil)}, want: "close:1002"},
		{name: "fragmented ping", frames: []ws.Frame{ws.NewFrame(ws.OpPing, false, nil)}, want: "close:1002"},
		{name: "long ping", frames: []ws.Frame{ws.NewPingFrame(make([]byte, 126))}, want: "close:1002"},
		{name: "continuation without start", frames: []ws.Frame{ws.NewFrame(ws.OpContinuation, true, nil)}, want: "close:1002"},
		{name: "start inside a message", frames: []ws.Frame{part, text}, want: "close:1002"},
		{name: "length 2^63", raw: rawFrame(0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4), want: "close:1002"},
		{name: "length 2^63-1", raw: rawFrame(0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4), want: "close:1009"},
		{name: "over the limit", frames: []ws.Frame{ws.NewBinaryFrame(make([]byte, 100_001))}, want: "close:1009"},
		{name: "over the limit in parts", frames: []ws.Frame{ws.NewFrame(ws.OpBinary, false, make([]byte, 60_000)), ws.NewFrame(ws.OpContinuation, true, make([]byte, 60_000))}, want: "close:1009"},
		{name: "text that is not UTF-8", frames: []ws.Frame{ws.NewTextFrame([]byte("a\xff"))}, want: "close:1007"},
		{name: "text that is not UTF-8 in parts", frames: []ws.Frame{ws.NewFrame(ws.OpText, false, []byte("a\xc3")), ws.NewFrame(ws.OpContinuation, true, []byte("b"))}, want: "close:1007"},
		{name: "close of one byte", frames: []ws.Frame{ws.NewCloseFrame([]byte{3})}, want: "close:1002"},
		{name: "close with a code that must not be sent", frames: []ws.Frame{ws.NewCloseFrame([]byte{3, 0xee})}, want: "close:1002"},
		{name: "close with a reason that is not UTF-8", frames: []ws.Frame{ws.NewCloseFrame([]byte{3, 0xe8, 0xff})}, want: "close:1007"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			server := make(chan []string, 1)
			w.serveSockets(80, func(e *wsEnd) { server <- e.all() })
			client := w.socket(80, "/ws/any")
			client.say("before")
			for _, f := range c.frames {
				client.send(f)
			}
			_, _ = client.Write(c.raw)
			if got := client.all(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("client: got %q, want %s", got, c.want)
			}
			if got := <-server; !slices.Equal(got, []string{"text:before", c.want}) {
				t.Errorf("server: got %q, want the first message and %s", got, c.want)
			}
			w.wantEvent("denied", func(e audit.Event) bool {
				return e.Verdict == audit.Deny && e.Operation == "websocket" && e.Reason != ""
			})
			w.wantNoFault()
		})
	}
}

// A server that breaks the protocol is closed too.
func TestWebSocketServerAbuse(t *testing.T) {
	text := ws.NewTextFrame([]byte("hi"))
	rsv := text
	rsv.Header.Rsv = ws.Rsv(true, false, false)
	cases := []struct {
		name  string
		frame ws.Frame
		want  string
	}{
		{"masked", ws.MaskFrameWith(text, [4]byte{1, 2, 3, 4}), "close:1002"},
		{"RSV1, as compression would set", rsv, "close:1002"},
		{"reserved opcode", ws.NewFrame(7, true, nil), "close:1002"},
		{"long close", ws.NewCloseFrame(make([]byte, 130)), "close:1002"},
		{"continuation without start", ws.NewFrame(ws.OpContinuation, true, nil), "close:1002"},
		{"text that is not UTF-8", ws.NewTextFrame([]byte("\xc3\x28")), "close:1007"},
		{"text that ends inside a character", ws.NewTextFrame([]byte("a\xc3")), "close:1007"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, socketNetwork())
			server := make(chan []string, 1)
			w.serveSockets(80, func(e *wsEnd) {
				e.say("before")
				e.send(c.frame)
				server <- e.all()
			})
			client := w.socket(80, "/ws/any")
			if got := client.all(); !slices.Equal(got, []string{"text:before", c.want}) {
				t.Errorf("client: got %q, want the first message and %s", got, c.want)
			}
			if got := <-server; !slices.Equal(got, []string{c.want}) {
				t.Errorf("server: got %q, want %s", got, c.want)
			}
			w.wantEvent("the server's fault", func(e audit.Event) bool { return e.Kind == audit.KindUpstream && e.Operation == "websocket" })
		})
	}
}

package proxy

import (
	"bufio"
	"bytes"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// FuzzWebSocketClient sends any bytes as a client's frames. Whatever they are, what
// the server gets is whole frames, masked, without reserved bits or fragments, and
// text that is UTF-8, none longer than the rules allow.
func FuzzWebSocketClient(f *testing.F) {
	masked := func(frames ...ws.Frame) []byte {
		var b bytes.Buffer
		for _, frame := range frames {
			_ = ws.WriteFrame(&b, ws.MaskFrameWith(frame, [4]byte{1, 2, 3, 4}))
		}
		return b.Bytes()
	}
	f.Add(masked(ws.NewTextFrame([]byte("héllo")), ws.NewPingFrame([]byte("x")), ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "bye"))))
	f.Add(masked(ws.NewFrame(ws.OpText, false, []byte("a")), ws.NewFrame(ws.OpContinuation, true, []byte("b"))))
	f.Add(masked(ws.NewBinaryFrame(make([]byte, 300))))
	f.Add([]byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
	f.Add([]byte{0xc1, 0x80, 1, 2, 3, 4})
	claim := allowAll(f)
	s := &Server{}
	s.start()
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		k := &socket{fl: &flow{s: s, f: &front{host: mustHost(t, "api.example.org")}}, idle: time.NewTimer(time.Hour)}
		k.claim.Store(claim)
		k.client = wsPeer{in: bufio.NewReader(bytes.NewReader(in)), state: ws.StateServerSide, fault: k.clientFault}
		k.server = wsPeer{out: &out, masks: true}
		_ = k.fromClient()
		k.idle.Stop()
		if got := s.waiting.held.Load(); got != 0 {
			t.Fatalf("got %d bytes held at the end, want 0", got)
		}
		for out.Len() > 0 {
			frame, err := readFrame(&out)
			if err != nil {
				t.Fatalf("server: got %v, want whole frames", err)
			}
			h := frame.Header
			if err := ws.CheckHeader(h, ws.StateServerSide); err != nil || !h.Fin || h.Length > claim.MaxMessage() {
				t.Fatalf("server: got %+v, %v", h, err)
			}
			if frame = ws.UnmaskFrame(frame); h.OpCode == ws.OpText && !utf8.Valid(frame.Payload) {
				t.Fatalf("server: got text %q", frame.Payload)
			}
		}
	})
}

package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// said is one message or control frame, as a plain reading of RFC 6455 gives it.
type said struct {
	op      byte
	payload []byte
	whole   bool // the message has its last frame
}

// readSaid reads frames without regard to any rule but where each one ends. It
// stops where a frame is cut off; the last message may not be whole. Control
// frames stand where they came, also within a message, which stands where it began.
func readSaid(in []byte) (all []said) {
	open := -1
	for len(in) >= 2 {
		fin, op, masked, n := in[0]&0x80 != 0, in[0]&15, in[1]&0x80 != 0, uint64(in[1]&0x7f)
		in = in[2:]
		if wide := map[uint64]int{126: 2, 127: 8}[n]; wide > 0 {
			if len(in) < wide {
				return all
			}
			n, in = binary.BigEndian.Uint64(append(make([]byte, 8-wide), in[:wide]...)), in[wide:]
		}
		var mask [4]byte
		if masked {
			in = in[copy(mask[:], in):]
		}
		cut := n > uint64(len(in))
		payload := bytes.Clone(in[:min(n, uint64(len(in)))])
		in = in[len(payload):]
		for i := range payload {
			payload[i] ^= mask[i%4]
		}
		switch {
		case op&8 != 0 && !cut:
			all = append(all, said{op, payload, true})
		case op&8 != 0:
		case op == 0 && open >= 0:
			m := &all[open]
			m.payload, m.whole = append(m.payload, payload...), fin && !cut
			if fin {
				open = -1
			}
		default:
			all = append(all, said{op, payload, fin && !cut})
			if open = len(all) - 1; fin {
				open = -1
			}
		}
		if cut {
			return all
		}
	}
	return all
}

// messagesOf leaves out control frames, or all but them.
func messagesOf(all []said, control bool) (some []said) {
	for _, s := range all {
		if (s.op&8 != 0) == control {
			some = append(some, s)
		}
	}
	return some
}

// checkSaid fails unless what came out is what went in, up to where it ends. Only
// the last message may be a part, and only if parts is true. A Close frame of ours
// may stand at the end.
func checkSaid(t *testing.T, in, out []byte, parts bool) {
	t.Helper()
	for _, control := range []bool{false, true} {
		went, came := messagesOf(readSaid(in), control), messagesOf(readSaid(out), control)
		for i, got := range came {
			last := i == len(came)-1
			if i >= len(went) {
				t.Fatalf("got %+v, which nobody said", got)
			}
			want := went[i]
			partly := parts && last && !got.whole && bytes.HasPrefix(want.payload, got.payload)
			if got.op != want.op || !partly && (!got.whole || !bytes.Equal(got.payload, want.payload)) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
	}
}

// checkFrames fails unless the frames are whole and well-formed for whoever gets
// them, who is in the state that is given at first.
func checkFrames(t *testing.T, out []byte, state ws.State, longest int64) {
	t.Helper()
	var text []byte
	inText := false
	for r := bytes.NewReader(out); r.Len() > 0; {
		frame, err := readFrame(r)
		if err != nil {
			t.Fatalf("got %v, want whole frames", err)
		}
		h := frame.Header
		if err := ws.CheckHeader(h, state); err != nil || h.Length > longest {
			t.Fatalf("got %+v, %v", h, err)
		}
		if h.OpCode.IsControl() {
			continue
		}
		if state = state.Set(ws.StateFragmented); h.Fin {
			state = state.Clear(ws.StateFragmented)
		}
		if h.Masked {
			frame = ws.UnmaskFrame(frame)
		}
		if h.OpCode != ws.OpContinuation {
			text, inText = nil, h.OpCode == ws.OpText
		}
		if text = append(text, frame.Payload...); inText && h.Fin && !utf8.Valid(text) {
			t.Fatalf("got text %q", text)
		}
	}
}

// fuzzSeeds writes conversations, masked or not.
func fuzzSeeds(mask bool) (seeds [][]byte) {
	for _, frames := range [][]ws.Frame{
		{ws.NewTextFrame([]byte("héllo")), ws.NewPingFrame([]byte("x")), ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "bye"))},
		{ws.NewFrame(ws.OpText, false, []byte("h\xc3")), ws.NewPongFrame(nil), ws.NewFrame(ws.OpContinuation, true, []byte("\xa9"))},
		{ws.NewFrame(ws.OpBinary, false, nil), ws.NewFrame(ws.OpContinuation, false, []byte("a")), ws.NewFrame(ws.OpContinuation, true, nil)},
		{ws.NewBinaryFrame(make([]byte, 300)), ws.NewTextFrame(nil)},
		{ws.NewBinaryFrame(bytes.Repeat([]byte("0123456789"), 7000))},
		{ws.NewTextFrame([]byte("\xff")), ws.NewTextFrame([]byte("after"))},
		{ws.NewCloseFrame([]byte{3}), ws.NewTextFrame([]byte("after"))},
		{ws.NewFrame(ws.OpContinuation, true, []byte("alone"))},
	} {
		var b bytes.Buffer
		for _, frame := range frames {
			if mask {
				frame = ws.MaskFrameWith(frame, [4]byte{1, 2, 3, 4})
			}
			_ = ws.WriteFrame(&b, frame)
		}
		seeds = append(seeds, b.Bytes())
	}
	return append(seeds, []byte{0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4}, []byte{0xc1, 0x80, 1, 2, 3, 4}, []byte{0x81, 0x7e, 0, 1, 'a'})
}

// fuzzSocket gives a socket without connections.
func fuzzSocket(t *testing.T, s *Server, claim *netpolicy.Claim) *socket {
	k := &socket{fl: &flow{s: s, f: &front{host: mustHost(t, "api.example.org")}}, idle: time.NewTimer(time.Hour)}
	k.claim.Store(claim)
	return k
}

// FuzzWebSocketClient sends any bytes as a client's frames. Whatever they are, what
// the server gets is the messages that a plain reading finds in them, in their
// order, each in one whole masked frame without reserved bits, and text that is
// UTF-8, none longer than the rules allow.
func FuzzWebSocketClient(f *testing.F) {
	for _, seed := range fuzzSeeds(true) {
		f.Add(seed)
	}
	claim := allowAll(f)
	s := &Server{}
	s.start()
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		k := fuzzSocket(t, s, claim)
		k.client = wsPeer{in: bufio.NewReader(bytes.NewReader(in)), state: ws.StateServerSide, fault: k.clientFault}
		k.server = wsPeer{out: &out, masks: true}
		_ = k.fromClient()
		k.idle.Stop()
		if got := s.waiting.held.Load(); got != 0 {
			t.Fatalf("got %d bytes held at the end, want 0", got)
		}
		checkFrames(t, out.Bytes(), ws.StateServerSide, claim.MaxMessage())
		checkSaid(t, in, out.Bytes(), false)
	})
}

// FuzzWebSocketServer sends any bytes as a server's frames. The client gets
// what a plain reading finds in them, of the last message perhaps a part, in
// frames without masks and reserved bits, and text that is UTF-8.
func FuzzWebSocketServer(f *testing.F) {
	for _, seed := range fuzzSeeds(false) {
		f.Add(seed)
	}
	claim := allowAll(f)
	s := &Server{}
	s.start()
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		k := fuzzSocket(t, s, claim)
		k.server = wsPeer{in: bufio.NewReader(bytes.NewReader(in)), state: ws.StateClientSide, fault: k.serverFault}
		k.client = wsPeer{out: &out}
		_ = k.fromServer()
		k.idle.Stop()
		checkFrames(t, out.Bytes(), ws.StateClientSide, wsPiece)
		checkSaid(t, in, out.Bytes(), true)
	})
}

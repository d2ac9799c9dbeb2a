package proxy

import (
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// wsKeep is how large a buffer a socket keeps between messages.
const wsKeep = 4 << 10

// wsMessage is a message of the client that is being put together.
type wsMessage struct {
	op   ws.OpCode
	buf  []byte // behind wsHeadroom
	held int64  // what is reserved for it
}

func (m *wsMessage) size() int64 { return int64(len(m.buf) - wsHeadroom) }

// fromClient judges and forwards the client's messages until its Close frame.
func (k *socket) fromClient() error {
	m := &wsMessage{}
	defer func() { k.fl.s.waiting.release(m.held) }()
	for {
		h, err := k.client.head()
		if err != nil {
			return err
		}
		k.alive()
		if h.OpCode.IsControl() {
			if err := k.passControl(&k.client, &k.server, h); err != nil || h.OpCode == ws.OpClose {
				return err
			}
			continue
		}
		if err := k.collect(m, h); err != nil {
			return err
		}
		if !h.Fin {
			continue
		}
		if err := k.forward(m); err != nil {
			return err
		}
		if cap(m.buf) > wsKeep {
			k.fl.s.waiting.release(m.held)
			m.buf, m.held = nil, 0
		}
	}
}

// collect adds a frame to the message. Memory is taken as bytes arrive, never
// because a head announces them.
func (k *socket) collect(m *wsMessage, h ws.Header) error {
	if h.OpCode != ws.OpContinuation {
		m.op = h.OpCode
		m.buf = append(m.buf[:0], make([]byte, wsHeadroom)...)
	}
	if most := k.claim.Load().MaxMessage(); h.Length > most-m.size() {
		d := netpolicy.Decision{Rule: k.fl.decision.Rule, Pos: k.fl.decision.Pos}
		d.Reason = "a message is longer than the " + strconv.FormatInt(most, 10) + " bytes that the rules allow"
		return &wsFault{ws.StatusMessageTooBig, denied(k.fl.f.host, d)}
	}
	start := len(m.buf)
	for left := int(h.Length); left > 0; {
		n := min(left, wsPiece)
		if fault := k.grow(m, n); fault != nil {
			return fault
		}
		at := len(m.buf)
		m.buf = m.buf[:at+n]
		if _, err := io.ReadFull(k.client.in, m.buf[at:]); err != nil {
			return unexpected(err)
		}
		left -= n
		k.alive()
	}
	ws.Cipher(m.buf[start:], h.Mask, 0)
	return nil
}

// grow makes room for n more bytes, if all sockets together may hold them.
func (k *socket) grow(m *wsMessage, n int) error {
	m.buf = slices.Grow(m.buf, n)
	more := int64(cap(m.buf)) - m.held
	if more <= 0 || k.fl.s.waiting.reserve(more, k.fl.s.limits.Waiting) {
		m.held += max(more, 0)
		return nil
	}
	return &wsFault{1013, tooMany(k.fl.f.host, "bytes of messages that wait to be judged")}
}

// forward judges a whole message, and sends it as one frame.
func (k *socket) forward(m *wsMessage) error {
	payload := m.buf[wsHeadroom:]
	if m.op == ws.OpText && !utf8.Valid(payload) {
		return k.clientFault(ws.StatusInvalidFramePayloadData, "a text message is not UTF-8")
	}
	out, refused := k.judge(m)
	if refused == nil {
		refused = k.look(out[wsHeadroom:])
	}
	if refused != nil {
		return &wsFault{ws.StatusPolicyViolation, refused}
	}
	return k.server.write(m.op, true, out)
}

// judge gives the message as it may be forwarded: JSON that was judged is
// written anew.
func (k *socket) judge(m *wsMessage) ([]byte, *refusal) {
	if k.barred.Load() {
		return nil, k.bar()
	}
	claim, out := k.claim.Load(), m.buf
	message := netpolicy.Message{Size: m.size(), Text: m.op == ws.OpText}
	note := ""
	if message.Text && claim.ReadsMessages() {
		v, done, err := k.parse(m.buf[wsHeadroom:])
		defer done()
		if err != nil { // the claim tells whether that matters
			note = " (" + err.Error() + ")"
		} else {
			message.JSON = v
			out = v.Append(make([]byte, wsHeadroom, len(m.buf)))
		}
	}
	if d := claim.Message(message); d.Verdict != netpolicy.Allow {
		d.Reason += note
		return nil, denied(k.fl.f.host, d)
	}
	return out, nil
}

// parse reads JSON. Values take many times the bytes of their text, which count
// until done is called.
func (k *socket) parse(payload []byte) (v strictjson.Value, done func(), err error) {
	weight, err := weigh(payload)
	if err != nil {
		return v, func() {}, err
	}
	bodies := &k.fl.s.bodies
	if !bodies.reserve(weight, k.fl.s.limits.MessagesHeld) {
		return v, func() {}, errHeld
	}
	v, err = strictjson.Parse(payload)
	return v, func() { bodies.release(weight) }, err
}

// look shows what is about to be forwarded to whoever searches it.
func (k *socket) look(payload []byte) *refusal {
	for _, see := range k.fl.messages {
		if refused := see(payload); refused != nil {
			return refused
		}
	}
	return nil
}

// passControl forwards a Ping, Pong or Close frame.
func (k *socket) passControl(from, to *wsPeer, h ws.Header) error {
	buf, err := from.control(h)
	if err != nil {
		return err
	}
	look := k.look
	if from == &k.server {
		look = k.fl.cleanControl
	}
	if refused := look(buf[wsHeadroom:]); refused != nil {
		return &wsFault{ws.StatusPolicyViolation, refused}
	}
	return to.write(h.OpCode, true, buf)
}

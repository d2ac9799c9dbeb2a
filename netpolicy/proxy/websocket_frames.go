package proxy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// wsHeadroom is kept free in front of every payload, so that a frame is written
// at once and its payload never copied.
const wsHeadroom = ws.MaxHeaderSize

// wsPiece is how much of a server's frame is carried at a time.
const wsPiece = 32 << 10

var errSocketClosed = errors.New("write frame: the socket is closed")

// wsFault is why a socket must be closed. One of our making has a refusal.
type wsFault struct {
	code    ws.StatusCode
	refused *refusal
}

func (f *wsFault) Error() string { return f.refused.Reason }

// wsPeer is one end of a socket: the client or the server.
type wsPeer struct {
	in  *bufio.Reader
	out io.Writer
	// masks tells that the frames to this end are masked, which those to the
	// server are and those to the client are not.
	masks bool
	// state is what the next frame from this end must fit.
	state ws.State
	// fault makes a fault of a frame that breaks the protocol.
	fault func(ws.StatusCode, string) *wsFault
	// cut ends the connection; whoever waits for it fails.
	cut func()
	buf [ws.MaxHeaderSize]byte

	mu     sync.Mutex // one frame at a time
	closed bool       // a Close frame went to this end: nothing may follow

	expiring sync.Mutex // not mu, which a write that is stuck holds
	expiry   *time.Timer
}

// head reads the head of the next frame.
func (p *wsPeer) head() (ws.Header, error) {
	h, err := ws.ReadHeaderBuffer(p.in, p.buf[:])
	if errors.Is(err, ws.ErrHeaderLengthMSB) || errors.Is(err, ws.ErrHeaderLengthUnexpected) {
		return h, p.fault(ws.StatusProtocolError, "a frame has an impossible length")
	}
	if err != nil {
		return h, err
	}
	if err := ws.CheckHeader(h, p.state); err != nil {
		return h, p.fault(ws.StatusProtocolError, err.Error())
	}
	switch {
	case h.OpCode.IsControl():
	case h.Fin:
		p.state = p.state.Clear(ws.StateFragmented)
	default:
		p.state = p.state.Set(ws.StateFragmented)
	}
	return h, nil
}

// control reads the payload of a control frame, behind wsHeadroom.
func (p *wsPeer) control(h ws.Header) ([]byte, error) {
	buf := make([]byte, wsHeadroom+int(h.Length))
	payload := buf[wsHeadroom:]
	if _, err := io.ReadFull(p.in, payload); err != nil {
		return nil, unexpected(err)
	}
	if h.Masked {
		ws.Cipher(payload, h.Mask, 0)
	}
	if h.OpCode != ws.OpClose || len(payload) == 0 {
		return buf, nil
	}
	code, reason := ws.ParseCloseFrameData(payload)
	switch {
	case len(payload) == 1 || !mayClose(code):
		return nil, p.fault(ws.StatusProtocolError, "a Close frame has no code that may be sent")
	case !utf8.ValidString(reason):
		return nil, p.fault(ws.StatusInvalidFramePayloadData, "the reason of a Close frame is not UTF-8")
	}
	return buf, nil
}

// mayClose tells whether a Close frame may have the code: the registered ones
// that are meant to be sent, and those of libraries and applications.
func mayClose(code ws.StatusCode) bool {
	switch {
	case code >= 1000 && code <= 1003, code >= 1007 && code <= 1014, code >= 3000 && code <= 4999:
		return true
	}
	return false
}

// write sends one frame, whose payload is in buf behind wsHeadroom. A payload
// that must be masked is changed in place.
func (p *wsPeer) write(op ws.OpCode, fin bool, buf []byte) error {
	payload := buf[wsHeadroom:]
	h := ws.Header{Fin: fin, OpCode: op, Length: int64(len(payload))}
	if p.masks {
		h.Masked = true
		_, _ = rand.Read(h.Mask[:])
		ws.Cipher(payload, h.Mask, 0)
	}
	var head bytes.Buffer
	if err := ws.WriteHeader(&head, h); err != nil {
		return err
	}
	from := wsHeadroom - head.Len()
	copy(buf[from:], head.Bytes())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errSocketClosed
	}
	p.closed = op == ws.OpClose
	_, err := p.out.Write(buf[from:])
	return err
}

// close sends a Close frame unless one was sent. The connection ends after
// patience at the latest.
func (p *wsPeer) close(code ws.StatusCode, reason string, patience time.Duration) {
	p.expire(patience)
	body := ws.NewCloseFrameBody(code, cutText(reason, ws.MaxControlFramePayloadSize-2))
	_ = p.write(ws.OpClose, true, append(make([]byte, wsHeadroom, wsHeadroom+len(body)), body...))
}

// expire ends the connection after patience, unless that is to happen already.
func (p *wsPeer) expire(patience time.Duration) {
	p.expiring.Lock()
	defer p.expiring.Unlock()
	if p.expiry == nil {
		p.expiry = time.AfterFunc(patience, p.cut)
	}
}

// settle stops what expire began.
func (p *wsPeer) settle() {
	p.expiring.Lock()
	defer p.expiring.Unlock()
	if p.expiry != nil {
		p.expiry.Stop()
	}
}

// cutText gives at most n bytes of a text, whole characters.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

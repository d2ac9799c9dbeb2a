package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// wsGrace is how long the other side may take to answer a Close frame.
const wsGrace = 20 * time.Second

// socket is one WebSocket: what the client says is judged message by message,
// what the server says is carried piece by piece, and both are written anew.
type socket struct {
	fl       *flow
	expect   string   // the server's answer to our key
	answer   string   // ours to the client's
	asked    []string // protocols that the client offers
	protocol string   // the one that the server chose
	// claim judges the messages. Rules that are loaded meanwhile replace it.
	claim      atomic.Pointer[netpolicy.Claim]
	barred     atomic.Bool        // other rules forbid it, and its end is on its way
	connection io.ReadWriteCloser // to the server

	conn           net.Conn // to the client
	client, server wsPeer
	idle           *time.Timer
	over           sync.Once // why it was closed is recorded
}

// wsBuffers are what a server's frames are carried through.
var wsBuffers = sync.Pool{New: func() any { b := make([]byte, wsHeadroom+wsPiece); return &b }}

// carry carries frames both ways until both sides have closed or one is gone.
func (k *socket) carry(h *http1) {
	s := k.fl.s
	k.conn = h.conn
	k.client = wsPeer{
		in: h.in, out: patientWriter{h.conn, s.limits.Idle}, state: ws.StateServerSide,
		fault: k.clientFault, cut: func() { reset(h.c.Conn) },
	}
	k.server = wsPeer{
		in: bufio.NewReader(k.connection), out: k.connection, masks: true, state: ws.StateClientSide,
		fault: k.serverFault, cut: func() { _ = k.connection.Close() },
	}
	if h.conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	k.idle = time.AfterFunc(s.limits.Idle, func() { s.wg.Go(k.endIdle) })
	defer k.idle.Stop()
	defer s.hold(k.rejudge, func() { s.wg.Go(k.forbid) })()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer k.cutOnPanic()
		k.ended(k.fromServer(), &k.server)
	})
	func() {
		defer k.cutOnPanic()
		k.ended(k.fromClient(), &k.client)
	}()
	wg.Wait()
	k.client.settle()
	k.server.settle()
	_ = k.connection.Close()
}

// patientWriter gives each write a time.
type patientWriter struct {
	net.Conn
	patience time.Duration
}

// Write writes within the time.
func (w patientWriter) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// cutOnPanic keeps a mistake of ours inside its socket.
func (k *socket) cutOnPanic() {
	if v := recover(); v != nil {
		k.cut()
		k.fl.s.fault("websocket", v)
	}
}

func (k *socket) cut() {
	k.server.cut()
	k.client.cut()
}

// endIdle ends a socket on which nothing moves.
func (k *socket) endIdle() {
	reason := "the WebSocket was closed: nothing moved for " + k.fl.s.limits.Idle.String()
	k.end(&wsFault{ws.StatusGoingAway, unreachable(k.fl.f.host, http.StatusGatewayTimeout, reason)})
}

// alive puts the end for idleness off.
func (k *socket) alive() { k.idle.Reset(k.fl.s.limits.Idle) }

// ended deals with the end of what one side sends.
func (k *socket) ended(err error, from *wsPeer) {
	linger := k.fl.s.limits.Linger
	var fault *wsFault
	switch {
	case err == nil && from == &k.client: // a Close frame, which the other side answers
		k.server.expire(wsGrace)
		return
	case err == nil:
		k.client.expire(wsGrace)
		return
	case errors.As(err, &fault):
		k.end(fault)
	case from == &k.client:
		k.server.close(ws.StatusGoingAway, "", linger)
	default: // the end is the client's to see: no frame can say it
		closeWrite(k.conn)
		k.client.expire(linger)
		k.server.expire(linger)
	}
	if from == &k.server {
		// Closing with unread bytes would destroy a Close frame on its way.
		_, _ = io.Copy(io.Discard, io.LimitReader(k.server.in, lingerBytes))
	}
}

// end closes both sides and records why, once.
func (k *socket) end(fault *wsFault) {
	k.over.Do(func() {
		e := fault.refused.event(audit.KindRequest, k.fl.f)
		e.Method, e.Path, e.Status = http.MethodGet, audit.Redact(k.fl.out.URL.RequestURI()), 0
		e.Operation = "websocket"
		k.fl.s.record(e)
	})
	linger := k.fl.s.limits.Linger
	k.client.close(fault.code, fault.refused.Reason, linger)
	k.server.close(fault.code, "", linger) // the reason is the policy's, none of the server's business
}

// rejudge tells whether other rules allow the socket, and has its messages
// judged by them from now on.
func (k *socket) rejudge(r *Rules) bool {
	d := r.Engine.Request(k.fl.judged)
	if d.Verdict != netpolicy.Allow || d.Claim == nil || d.Claim.Protocol != policy.ProtocolWebSocket {
		k.barred.Store(true)
		return false
	}
	k.claim.Store(d.Claim)
	return true
}

// forbid ends a socket that other rules do not allow.
func (k *socket) forbid() {
	k.end(&wsFault{ws.StatusPolicyViolation, k.bar()})
}

// bar is the refusal of every message until then.
func (k *socket) bar() *refusal {
	return forbidden(k.fl.f.host, "the policy that was loaded since no longer allows this socket")
}

func (k *socket) clientFault(code ws.StatusCode, reason string) *wsFault {
	refused := malformed(0, "the client's WebSocket: "+reason)
	refused.Host = k.fl.f.host.String()
	return &wsFault{code, refused}
}

func (k *socket) serverFault(code ws.StatusCode, reason string) *wsFault {
	return &wsFault{code, unreachable(k.fl.f.host, 0, "the server's WebSocket: "+reason)}
}

// fromServer carries the server's frames until its Close frame.
func (k *socket) fromServer() error {
	var m serverMessage
	for {
		h, err := k.server.head()
		if err != nil {
			return err
		}
		k.alive()
		if h.OpCode.IsControl() {
			if err := k.passControl(&k.server, &k.client, h); err != nil || h.OpCode == ws.OpClose {
				return err
			}
			continue
		}
		if h.OpCode != ws.OpContinuation {
			m = serverMessage{op: h.OpCode, src: k.server.in}
		}
		if h.OpCode == ws.OpText {
			m.text = wsutil.NewUTF8Reader(k.server.in)
			m.src = m.text
		}
		if err := k.passData(h, &m); err != nil {
			return err
		}
	}
}

// serverMessage is a message of the server that is on its way.
type serverMessage struct {
	op   ws.OpCode // of the next frame to the client
	src  io.Reader
	text *wsutil.UTF8Reader // nil: it is no text
	kept []byte             // could be the beginning of a secret
}

// passData carries one data frame of the server, each piece as it comes. The
// pieces become frames of their own, so that a Close frame of ours can go
// between them and one that is not whole is never taken for it.
func (k *socket) passData(h ws.Header, m *serverMessage) error {
	buf := wsBuffers.Get().(*[]byte)
	defer wsBuffers.Put(buf)
	for left := h.Length; ; {
		kept := copy((*buf)[wsHeadroom:], m.kept)
		n, err := m.read((*buf)[wsHeadroom+kept:], left)
		if errors.Is(err, wsutil.ErrInvalidUTF8) {
			return k.serverFault(ws.StatusInvalidFramePayloadData, "a text message is not UTF-8")
		}
		if n == 0 && left > 0 {
			return unexpected(err)
		}
		left -= int64(n)
		last := left == 0
		if last && h.Fin && m.text != nil && !m.text.Valid() {
			return k.serverFault(ws.StatusInvalidFramePayloadData, "a text message is not UTF-8")
		}
		if err := k.passPiece(m, (*buf)[:wsHeadroom+kept+n], kept, last && h.Fin); err != nil || last {
			return err
		}
		k.alive()
	}
}

// read gives the next bytes of a frame of which so many are left.
func (m *serverMessage) read(p []byte, left int64) (int, error) {
	if left == 0 {
		return 0, nil
	}
	return m.src.Read(p[:min(left, int64(len(p)))])
}

// passPiece cleans a piece and passes it on, but for what could be the beginning
// of a secret.
func (k *socket) passPiece(m *serverMessage, buf []byte, kept int, end bool) error {
	watch := k.fl.secrets.coming
	if refused := k.fl.cleanMessage(watch, buf[wsHeadroom:], kept); refused != nil {
		return &wsFault{ws.StatusPolicyViolation, refused}
	}
	held := min(watch.Held(), len(buf)-wsHeadroom)
	switch {
	case end:
		held = 0
	case held > wsPiece/2:
		return &wsFault{ws.StatusPolicyViolation, forbidden(k.fl.f.host, "a message of the server has more escapes or line ends than can be searched for credentials")}
	}
	ready := len(buf) - held
	m.kept = append(m.kept[:0], buf[ready:]...)
	if ready == wsHeadroom && !end {
		return nil
	}
	op := m.op
	m.op = ws.OpContinuation
	return k.client.write(op, end, buf[:ready])
}

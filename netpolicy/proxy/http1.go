package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// http1 serves HTTP/1 on one connection.
type http1 struct {
	s    *Server
	c    *capture
	conn net.Conn // c, or TLS on it
	f    *front
	in   *bufio.Reader
	out  *bufio.Writer
	head []byte
	held int64 // bytes that are counted for a large head
	// key is set where clients know that we are a proxy.
	key *doorKey

	mu sync.Mutex
	// answered is set as the final answer begins. 100 Continue, which another
	// goroutine sends, must not land inside it.
	answered bool
}

// copyBuffers are what bodies are copied through.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (s *Server) serveHTTP1(ctx context.Context, c *capture, conn net.Conn, f *front) {
	h := &http1{s: s, c: c, conn: conn, f: f, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}
	for patience := s.limits.Head; h.next(ctx, patience); {
		patience = s.limits.KeepAlive
	}
	_ = conn.Close()
}

// next serves one request and tells whether another may follow.
func (h *http1) next(ctx context.Context, patience time.Duration) bool {
	if h.conn.SetReadDeadline(time.Now().Add(patience)) != nil {
		return false
	}
	if _, err := h.in.Peek(1); err != nil {
		return false
	}
	if h.conn.SetReadDeadline(time.Now().Add(h.s.limits.Head)) != nil {
		return false
	}
	defer h.dropHead()
	hd, err := h.read()
	if err != nil {
		h.badHead(err)
		return false
	}
	r, b := h.request(hd)
	ctx, cancelFor := context.WithCancelCause(ctx)
	cancel := func() { cancelFor(nil) }
	defer cancel()
	fl, refused := h.s.judge(ctx, h.f, r)
	if refused != nil {
		h.refuse(hd, refused)
		return false
	}
	defer fl.close()
	idle := time.AfterFunc(h.s.limits.Idle, func() { cancelFor(errIdle) })
	defer idle.Stop()
	if b != nil {
		fl.out.Body = &progress{fl.out.Body, idle, h.s.limits.Idle}
	}
	unwatch := h.watch(b, cancel)
	resp, refused := fl.exchange()
	if refused != nil {
		unwatch()
		if b != nil && b.malformed() {
			refused = malformed(http.StatusBadRequest, "malformed request body")
		}
		if refused.Error != errUpstream || b != nil && !b.finished() || hd.close {
			h.refuse(hd, refused)
			return false
		}
		return h.answer(hd, refused, false) == nil
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // only where it was asked for
		unwatch()
		if fl.upgrades != "" {
			idle.Stop()
			h.carryUpgraded(fl, resp)
			return false
		}
		h.webSocket(fl, resp)
		return false
	}
	keep := !hd.close
	err = h.respond(hd, resp, idle, &keep)
	_ = resp.Body.Close()
	unwatch()
	if err != nil {
		h.cut()
		return false
	}
	if b != nil && !b.finished() {
		cancel()
		h.linger()
		return false
	}
	return keep
}

func (h *http1) read() (*head, error) {
	if h.key != nil {
		return h.readExplicit()
	}
	raw, err := readHead(h.in, h.head, h.s.limits.HeadBytes, h.holdHead)
	if err != nil {
		return nil, err
	}
	h.keepHead(raw)
	hd, err := parseHead(raw, h.s.limits.Headers)
	if err != nil || hd.absolute == "" {
		return hd, err
	}
	return hd, h.checkAbsolute(hd)
}

// holdHead counts bytes that a large head takes until its request is over.
func (h *http1) holdHead(n int64) bool {
	if !h.s.heads.reserve(n, h.s.limits.HeadsHeld) {
		return false
	}
	h.held += n
	return true
}

func (h *http1) dropHead() {
	h.s.heads.release(h.held)
	h.held = 0
}

// keepHead keeps a small buffer for the next head of the connection.
func (h *http1) keepHead(raw []byte) {
	h.head = nil
	if cap(raw) <= smallHead {
		h.head = raw
	}
}

// checkAbsolute refuses a target that says something else than the rest: Go
// prefers the target, others the Host field.
func (h *http1) checkAbsolute(hd *head) error {
	if hd.absolute != hd.host {
		return badHead("request target and Host name different hosts")
	}
	if (hd.scheme == "https") != h.f.tls {
		return &headError{http.StatusForbidden, "proxy requests are not supported: " + hintCaptured}
	}
	return nil
}

// badHead answers a request that could not be read.
func (h *http1) badHead(err error) {
	var e *headError
	if !errors.As(err, &e) {
		return // the client went away or was too slow
	}
	refused := h.f.malformed(e)
	if e.status == http.StatusServiceUnavailable {
		refused = tooMany(h.f.host, "large heads")
	}
	h.s.record(refused.event(audit.KindRequest, h.f))
	h.refuse(&head{minor: 1}, refused)
}

// request gives what is to be judged. b is nil when there is no body.
func (h *http1) request(hd *head) (r *request, b *body) {
	h.mu.Lock()
	h.answered = false
	h.mu.Unlock()
	r = &request{
		method: hd.method, target: hd.target, authority: hd.host, header: hd.header, length: hd.length,
		upgrade: hd.upgrade, websocket: hd.websocket,
	}
	if hd.length == 0 {
		return r, nil
	}
	b = &body{conn: h.conn, in: h.in, idle: h.s.limits.Idle, first: true}
	r.due = b.due
	if hd.length < 0 {
		b.chunked = true
	} else {
		b.left = hd.length
	}
	if hd.expect {
		b.before = h.sendContinue
	}
	if b.chunked && len(hd.trailer) > 0 {
		b.trailer = http.Header{}
		for _, name := range hd.trailer {
			b.trailer[name] = nil
		}
		r.trailer = b.trailer
	}
	r.body = b
	return r, b
}

// sendContinue runs only after the request was allowed, when its body is first
// read, unless the server answered without reading it.
func (h *http1) sendContinue() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answered {
		return errors.New("read request body: answered already")
	}
	if err := h.conn.SetWriteDeadline(time.Now().Add(h.s.limits.Head)); err != nil {
		return err
	}
	_, err := io.WriteString(h.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// watchAfter is how long a request must last before somebody looks whether its
// client is still there; most end sooner.
const watchAfter = time.Second

// watch cancels the request when its client goes away while nothing is read
// from it. The returned function ends the watch.
func (h *http1) watch(b *body, cancel func()) (stop func()) {
	done := make(chan struct{})
	var ended bool
	var mu sync.Mutex
	timer := time.AfterFunc(watchAfter, func() {
		defer close(done)
		if b != nil && !b.finished() {
			return // reading the body notices
		}
		mu.Lock()
		if ended || h.conn.SetReadDeadline(time.Time{}) != nil {
			mu.Unlock()
			return
		}
		mu.Unlock()
		if _, err := h.in.Peek(1); err != nil {
			cancel() // harmless when stop woke us: the request is over then
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		mu.Lock()
		ended = true
		_ = h.conn.SetReadDeadline(time.Unix(1, 0)) // wakes Peek
		mu.Unlock()
		<-done
	}
}

// refuse answers in place of the server and ends the connection.
func (h *http1) refuse(hd *head, r *refusal) {
	if h.answer(hd, r, true) == nil {
		h.linger()
	}
}

func (h *http1) answer(hd *head, r *refusal, last bool) error {
	if h.f.engine != nil {
		r = r.asEngine()
	}
	b := r.body()
	header := r.header()
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	if r.status == http.StatusProxyAuthRequired {
		header["Proxy-Authenticate"] = []string{`Basic realm="hermes-wrap"`}
	}
	if r.status == http.StatusMethodNotAllowed {
		header["Allow"] = []string{"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	}
	if err := h.writeHead(r.status, header, last); err != nil {
		return err
	}
	if hd.method != http.MethodHead {
		if _, err := h.out.Write(b); err != nil {
			return err
		}
	}
	return h.out.Flush()
}

// linger reads what the client still sends, within bounds: closing with unread
// bytes makes the kernel send RST, which can destroy the answer on its way.
func (h *http1) linger() {
	closeWrite(h.conn)
	closeWrite(h.c) // beneath TLS, too
	if h.c.SetReadDeadline(time.Now().Add(h.s.limits.Linger)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(h.c, lingerBytes))
}

// cut ends the connection so that the client sees that the answer is not whole.
func (h *http1) cut() {
	reset(h.c.Conn)
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// http2Server serves HTTP/2 on connections whose TLS handshake is done.
type http2Server struct {
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	ended  chan struct{}
}

// frontKey finds the front of a connection in the context of its requests.
type frontKey struct{}

func (s *Server) newHTTP2Server() *http2Server {
	h := &http2Server{conns: make(chan net.Conn), done: make(chan struct{}), ended: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	h.server = &http.Server{
		Protocols:      protocols,
		Handler:        http.HandlerFunc(s.serveHTTP2),
		MaxHeaderBytes: s.limits.HeadBytes,
		IdleTimeout:    s.limits.KeepAlive,
		ErrorLog:       log.New(io.Discard, "", 0), // net/http prints what clients send
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.limits.Streams,
			MaxReadFrameSize:     16 << 10,
			// The way from the client is short: small windows cost no speed, and what
			// it sends and no server takes waits here.
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
			SendPingTimeout:               time.Minute,
			PingTimeout:                   15 * time.Second,
			WriteByteTimeout:              s.limits.Idle,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				if c, ok := t.NetConn().(*capture); ok {
					return context.WithValue(ctx, frontKey{}, c.front)
				}
			}
			return ctx
		},
	}
	go func() {
		defer close(h.ended)
		_ = h.server.Serve(h)
	}()
	return h
}

// serve hands a connection over; it is closed when its last stream ends.
func (h *http2Server) serve(c *tls.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}

func (h *http2Server) close() {
	_ = h.server.Close() // closes the listener, which is h itself
	<-h.ended
}

// Accept makes the queue a net.Listener.
func (h *http2Server) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. http.Server calls it once.
func (h *http2Server) Close() error {
	select {
	case <-h.done:
	default:
		close(h.done)
	}
	return nil
}

// Addr is part of net.Listener.
func (h *http2Server) Addr() net.Addr { return &net.TCPAddr{} }

func (s *Server) serveHTTP2(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				s.fault("http2 stream", v)
			}
			panic(http.ErrAbortHandler) // resets the stream
		}
	}()
	f, ok := r.Context().Value(frontKey{}).(*front)
	if !ok || f == nil {
		panic("connection without a front")
	}
	defer s.countReset(f, r)
	r, done := withCallTimeout(r)
	defer done()
	defer s.streams.Add(-1)
	if s.streams.Add(1) > int64(s.limits.Requests) {
		refused := tooMany(f.host, "requests")
		s.record(refused.event(audit.KindRequest, f))
		s.answerHTTP2(w, r, http.NoBody, refused)
		return
	}
	in, err := readHTTP2(r)
	if err == nil {
		in.due = func(t time.Time) { _ = http.NewResponseController(w).SetReadDeadline(t) }
	}
	if err != nil {
		refused := malformed(http.StatusBadRequest, err.Error())
		var e *headError
		if errors.As(err, &e) {
			refused = f.malformed(e)
		}
		s.record(refused.event(audit.KindRequest, f))
		s.answerHTTP2(w, r, r.Body, refused)
		return
	}
	if isUpload(in) {
		defer s.uploads.Add(-1)
		if s.uploads.Add(1) > int64(s.limits.Uploads) {
			refused := tooMany(f.host, "uploads")
			s.record(refused.event(audit.KindRequest, f))
			s.answerHTTP2(w, r, http.NoBody, refused)
			return
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	fl, refused := s.judge(ctx, f, in)
	if refused != nil {
		s.answerHTTP2(w, r, r.Body, refused)
		return
	}
	defer fl.close()
	idle := time.AfterFunc(s.limits.Idle, func() { cancel(errIdle) })
	defer idle.Stop()
	if fl.out.Body != http.NoBody {
		fl.out.Body = &progress{fl.out.Body, idle, s.limits.Idle}
	}
	resp, refused := fl.exchange()
	if refused != nil {
		s.answerHTTP2(w, r, r.Body, refused)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if err := s.respondHTTP2(w, resp, r.Method, idle); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// isUpload tells whether net/http will take a large buffer to send the body.
func isUpload(r *request) bool {
	return r.body != nil && r.body != http.NoBody && (r.length < 0 || r.length > 16<<10)
}

// maxResets is how many more requests a connection may cancel than it lets be
// answered. Starting a request costs the proxy more than the client (CVE-2023-39325).
const maxResets = 500

// countReset ends a connection whose requests are cancelled again and again.
func (s *Server) countReset(f *front, r *http.Request) {
	if r.Context().Err() == nil {
		if f.resets.Add(-1) < 0 {
			f.resets.Store(0)
		}
		return
	}
	if f.resets.Add(1) == maxResets && f.cut != nil {
		refused := tooMany(f.host, "cancelled requests")
		s.record(refused.event(audit.KindConnection, f))
		f.cut()
	}
}

// readHTTP2 checks what net/http lets through: methods with spaces, absolute
// paths, a missing authority, and a Host field beside it. net/http hides
// :scheme; nothing is decided by it, the connection says what it is.
func readHTTP2(r *http.Request) (*request, error) {
	_, hasHost := r.Header["Host"]
	switch {
	case r.Method == http.MethodConnect:
		return nil, checkConnect(r.Host)
	case !isTokenString(r.Method) || len(r.Method) > longestMethod:
		return nil, badHead(":method is not a token")
	case r.Host == "":
		return nil, badHead("no :authority")
	case hasHost:
		return nil, badHead("both :authority and another Host")
	case len(r.Header["Transfer-Encoding"]) > 0 || len(r.TransferEncoding) > 0:
		return nil, badHead("Transfer-Encoding in HTTP/2")
	}
	h := head{method: r.Method}
	if err := h.parseTarget(r.RequestURI); err != nil {
		return nil, err
	}
	if h.absolute != "" {
		return nil, badHead(":path is not a path")
	}
	if bad := badFields(r.Header); bad != "" {
		return nil, badHead("malformed field %q", bad)
	}
	for name := range r.Trailer {
		if !mayTrail(name) {
			return nil, badHead("field %q cannot be a trailer", name)
		}
	}
	upgrade := len(r.Header["Upgrade"]) > 0
	delete(r.Header, "Content-Length")
	dropHopByHop(r.Header)
	return &request{
		method: r.Method, target: h.target, authority: r.Host, header: r.Header, body: r.Body,
		length: r.ContentLength, trailer: r.Trailer, upgrade: upgrade,
	}, nil
}

// answerHTTP2 answers a stream in place of the server. The connection stays: a
// GOAWAY would make some clients (Java's) report it instead of the answer, and
// every further stream is judged alone.
func (s *Server) answerHTTP2(w http.ResponseWriter, req *http.Request, rest io.Reader, r *refusal) {
	if isGRPC(req.Header) {
		answerGRPC(req.Context(), w, r)
		return
	}
	b := r.body()
	for name, values := range r.header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(r.status)
	_, _ = w.Write(b)
	// A stream that is reset while it uploads makes some clients forget the
	// answer, so let them finish, within bounds.
	control := http.NewResponseController(w)
	if control.Flush() == nil && control.SetReadDeadline(time.Now().Add(s.limits.Linger)) == nil {
		_, _ = io.CopyN(io.Discard, rest, lingerBytes)
	}
}

// respondHTTP2 writes the server's answer, each piece as it comes.
func (s *Server) respondHTTP2(w http.ResponseWriter, resp *http.Response, method string, idle *time.Timer) error {
	header := w.Header()
	for name, values := range resp.Header {
		header[name] = values
	}
	announced := sortedKeys(resp.Trailer)
	for _, name := range announced {
		header.Add("Trailer", name)
	}
	if _, ok := header["Date"]; !ok {
		header["Date"] = nil
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = nil // no guessing
	}
	w.WriteHeader(resp.StatusCode)
	if resp.ContentLength < 0 { // perhaps a stream, whose first piece may come much later
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
	if method != http.MethodHead {
		if err := s.copyHTTP2(w, resp.Body, idle); err != nil {
			return err
		}
	}
	if bad := badFields(resp.Trailer); bad != "" {
		return errors.New("malformed trailer " + bad)
	}
	for name, values := range resp.Trailer {
		if mayTrail(name) && len(values) > 0 { // net/http never ends a stream with a trailer that has no value
			header[http.TrailerPrefix+name] = values
		}
	}
	return nil
}

func (s *Server) copyHTTP2(w http.ResponseWriter, src io.Reader, idle *time.Timer) error {
	flush := http.NewResponseController(w).Flush
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := src.Read(*buf)
		idle.Reset(s.limits.Idle)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

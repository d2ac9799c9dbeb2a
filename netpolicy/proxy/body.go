package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of a chunked body's own lines.
const (
	maxChunkLine    = 18 // 16 hexadecimal digits, CR, LF
	maxTrailerBytes = 16 << 10
	maxTrailers     = 64
)

// errBody is any malformed body. What was read of it is never passed on as a
// whole.
var errBody = errors.New("read request body: malformed")

// body is the body of one HTTP/1 request on its connection.
type body struct {
	conn    net.Conn
	in      *bufio.Reader
	idle    time.Duration
	chunked bool
	left    int64 // of the body, or of the chunk
	first   bool  // no chunk was read yet
	// before is called before the first read: it sends 100 Continue.
	before func() error
	// trailer receives the announced fields after the last chunk.
	trailer http.Header

	mu     sync.Mutex // held while a Read waits for the client
	failed error
	until  time.Time // when all of it must be there; zero: whenever

	ended atomic.Bool // read to its end
	bad   atomic.Bool // found to be malformed
}

// Read gives the body's bytes.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.failed != nil:
		return 0, b.failed
	case b.ended.Load():
		return 0, io.EOF
	}
	n, err := b.lockedRead(p)
	if err == io.EOF {
		b.ended.Store(true)
	} else if err != nil {
		b.bad.Store(errors.Is(err, errBody))
		b.failed = err
	}
	return n, err
}

// due says when the whole body must have come; the zero time lifts that.
func (b *body) due(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = t
}

func (b *body) lockedRead(p []byte) (int, error) {
	if b.before != nil {
		if err := b.before(); err != nil {
			return 0, err
		}
		b.before = nil
	}
	wait := time.Now().Add(b.idle)
	if !b.until.IsZero() && b.until.Before(wait) {
		wait = b.until
	}
	if err := b.conn.SetReadDeadline(wait); err != nil {
		return 0, err
	}
	if b.left == 0 {
		if !b.chunked {
			return 0, io.EOF
		}
		if err := b.lockedNextChunk(); err != nil {
			return 0, err
		}
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.in.Read(p)
	b.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && b.left == 0 && !b.chunked {
		err = io.EOF
	}
	return n, err
}

// lockedNextChunk reads the line before a chunk, and after the last one the
// trailers; then it returns io.EOF.
func (b *body) lockedNextChunk() error {
	if !b.first {
		if err := expectCRLF(b.in); err != nil {
			return err
		}
	}
	b.first = false
	size, err := readChunkSize(b.in)
	if err != nil {
		return err
	}
	if size > 0 {
		b.left = size
		return nil
	}
	if err := b.lockedTrailers(); err != nil {
		return err
	}
	return io.EOF
}

func (b *body) lockedTrailers() error {
	var raw []byte
	for {
		line, err := b.in.ReadSlice('\n')
		if err != nil || len(line) < 2 || line[len(line)-2] != '\r' || len(raw)+len(line) > maxTrailerBytes {
			return errBody
		}
		raw = append(raw, line...)
		if len(line) == 2 {
			break
		}
	}
	fields, err := parseFields(string(raw), maxTrailers)
	if err != nil {
		return errBody
	}
	for name := range b.trailer {
		if v, ok := fields[name]; ok {
			b.trailer[name] = v
		}
	}
	return nil
}

// Close ends reading; the connection stays as it is. A client that is still
// sending is dealt with by whoever owns the connection.
func (b *body) Close() error { return nil }

// finished tells whether the next request can be read from the connection.
func (b *body) finished() bool { return b.ended.Load() }

// malformed tells whether it was the body that failed.
func (b *body) malformed() bool { return b.bad.Load() }

// progress counts what is read of a body as a sign of life of its request.
type progress struct {
	io.ReadCloser
	idle *time.Timer
	span time.Duration
}

// Read reads and puts the end for idleness off.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.idle.Reset(p.span)
	return n, err
}

// guardedBody is a body as net/http reads it, on a goroutine that nobody guards.
type guardedBody struct {
	io.ReadCloser
	s *Server
}

// Read keeps a mistake of ours inside its request.
func (b *guardedBody) Read(p []byte) (n int, err error) {
	defer b.s.recoveredTo("request body", &err)
	return b.ReadCloser.Read(p)
}

// Close does so too.
func (b *guardedBody) Close() (err error) {
	defer b.s.recoveredTo("request body", &err)
	return b.ReadCloser.Close()
}

func expectCRLF(r *bufio.Reader) error {
	for _, want := range []byte("\r\n") {
		c, err := r.ReadByte()
		if err != nil {
			return unexpected(err)
		}
		if c != want {
			return errBody
		}
	}
	return nil
}

// readChunkSize reads "1a2b" CR LF. Extensions are refused: nobody uses them
// but those who want two readers to disagree (CVE-2025-22871).
func readChunkSize(r *bufio.Reader) (int64, error) {
	var line strings.Builder
	for line.Len() < maxChunkLine {
		c, err := r.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		line.WriteByte(c)
		if c == '\n' {
			break
		}
	}
	digits, ok := strings.CutSuffix(line.String(), "\r\n")
	if !ok || digits == "" {
		return 0, errBody
	}
	var n int64
	for i := range len(digits) {
		d, ok := hexDigit(digits[i])
		if !ok || n > 1<<58 {
			return 0, errBody
		}
		n = n<<4 | d
	}
	return n, nil
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int64(c|0x20-'a') + 10, true
	}
	return 0, false
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

package web

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// answer gives the server's answers to the client, as the mode has it.
func (s *naiveConn) answer(c, up net.Conn, asked *naiveHead) {
	switch s.n.Mode {
	case "follow":
		s.follow(c, up, asked)
	case "buffer":
		s.buffer(c, up)
	case "events":
		s.events(c, up)
	default:
		_, _ = io.Copy(c, up)
	}
}

// collect reads an answer until nothing more comes for a while.
func collect(up net.Conn) []byte {
	var all []byte
	buf := make([]byte, 32<<10)
	for len(all) < 64<<20 {
		_ = up.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
		n, err := up.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			break
		}
	}
	return all
}

// follow goes where the server points. Mistake: nobody asks whether it may,
// and the credential goes along.
func (s *naiveConn) follow(c, up net.Conn, asked *naiveHead) {
	all := collect(up)
	h := parseNaiveHead(all[:max(0, bytes.Index(all, []byte("\r\n\r\n")))])
	location := h.get("Location")
	if host := normal(absoluteHost(location)); s.n.knows(host) {
		next, err := s.dial(host)
		if err == nil {
			raw := s.dress(&naiveHead{raw: bytes.Replace(asked.raw, []byte(asked.target), []byte(pathOf(location)), 1), target: asked.target})
			_, _ = next.Write(s.swap(raw))
			all = collect(next)
			_ = next.Close()
		}
	}
	_, _ = c.Write(all)
}

// buffer makes one whole answer of what came. Mistake: an answer that broke off
// looks like one that did not.
func (s *naiveConn) buffer(c, up net.Conn) {
	all := collect(up)
	head, body, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	if bytes.Contains(bytes.ToLower(head), []byte("chunked")) {
		body = chunkText(body)
	}
	kind := parseNaiveHead(head).get("Content-Type")
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// chunkText takes the lines between chunks out.
func chunkText(body []byte) []byte {
	var text []byte
	for len(body) > 0 {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		n := int(min(chunkSize(string(line), 31), uint64(len(rest)))) //nolint:gosec // bounded
		if !ok || n == 0 {
			break
		}
		text = append(text, rest[:n]...)
		body = bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
	return text
}

// events turns a failure into an event. Mistake: lines of its text become lines
// of the stream.
func (s *naiveConn) events(c, up net.Conn) {
	all := collect(up)
	head, body, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	if !strings.HasPrefix(string(head), "HTTP/1.1 5") {
		_, _ = c.Write(all)
		return
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"error\":\"%s\"}\n\n", body)
}

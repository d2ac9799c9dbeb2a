package web

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Types of HTTP/2 frames.
const (
	frameData     = 0
	frameHeaders  = 1
	frameSettings = 4
	framePing     = 6
)

// http2 takes requests of HTTP/2 and writes each as one of HTTP/1. Mistake: the
// fields are taken as they are, and the path is all that is looked at. It reads
// fields that are written out, as the probes send them.
func (s *naiveConn) http2(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, 24)); err != nil {
		return
	}
	_, _ = c.Write(h2Frame(frameSettings, 0, 0, nil))
	streams := map[uint32]*naiveStream{}
	for {
		kind, flags, id, payload, err := readFrame(c)
		if err != nil {
			return
		}
		switch {
		case kind == frameSettings && flags&1 == 0:
			_, _ = c.Write(h2Frame(frameSettings, 1, 0, nil))
		case kind == framePing && flags&1 == 0:
			_, _ = c.Write(h2Frame(framePing, 1, 0, payload))
		case kind == frameHeaders && streams[id] == nil:
			streams[id] = &naiveStream{fields: literals(payload)}
		case kind == frameHeaders: // trailers
			streams[id].fields = append(streams[id].fields, literals(payload)...)
		case kind == frameData && streams[id] != nil:
			streams[id].body = append(streams[id].body, payload...)
		}
		if st := streams[id]; st != nil && flags&1 != 0 && kind <= frameHeaders {
			s.answerStream(c, id, st)
		}
	}
}

type naiveStream struct {
	fields []field
	body   []byte
}

// answerStream judges and forwards one request, and waits for its answer.
func (s *naiveConn) answerStream(c net.Conn, id uint32, st *naiveStream) {
	raw := st.downgrade()
	h := parseNaiveHead(raw[:bytes.Index(raw, []byte("\r\n\r\n"))+4])
	path := st.get(":path")
	if strings.HasPrefix(path, "http") {
		path = "/public" // Mistake: what has a scheme is somebody else's
	}
	h.target, h.method = path, strings.Fields(st.get(":method") + " ?")[0]
	status, body := "403", []byte(nil)
	if s.judged && s.n.Mode == "" || s.judged && s.n.Mode == "first" || s.allows(h) {
		s.judged = true
		status, body = "502", nil
		if up, err := s.dial(s.dials(parseNaiveHead(h.raw))); err == nil {
			_, _ = up.Write(s.swap(append(s.dress(h), raw[len(h.raw):]...)))
			_ = up.SetReadDeadline(time.Now().Add(2 * idleTime))
			answer, _ := io.ReadAll(up)
			_ = up.Close()
			status, body = "200", answer
		}
	}
	var head bytes.Buffer
	writeLiteral(&head, ":status", status)
	_, _ = c.Write(h2Frame(frameHeaders, 4, id, head.Bytes()))
	_, _ = c.Write(h2Frame(frameData, 1, id, body[:min(len(body), 16<<10)]))
}

func (st *naiveStream) get(name string) string {
	for _, f := range st.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// downgrade writes a request of HTTP/1 without a look at what is in it.
func (st *naiveStream) downgrade() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", st.get(":method"), st.get(":path"))
	host := false
	for _, f := range st.fields {
		if strings.HasPrefix(f.name, ":") {
			continue
		}
		host = host || strings.EqualFold(f.name, "host")
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	if authority := st.get(":authority"); !host && authority != "" {
		fmt.Fprintf(&b, "Host: %s\r\n", authority)
	}
	if len(st.body) > 0 && st.get("content-length") == "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(st.body))
	}
	b.WriteString("\r\n")
	b.Write(st.body)
	return b.Bytes()
}

func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := make([]byte, 9, 9+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload))<<8) //nolint:gosec // frames are small
	b[3], b[4] = kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	return append(b, payload...)
}

func readFrame(r io.Reader) (kind, flags byte, stream uint32, payload []byte, err error) {
	var head [9]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(r, payload)
	return head[3], head[4], binary.BigEndian.Uint32(head[5:]) & 0x7fffffff, payload, err
}

// literals reads fields that are written out (RFC 7541, section 6.2.2), and
// skips what is not.
func literals(b []byte) []field {
	var all []field
	for len(b) > 0 && b[0] == 0 {
		var name, value string
		name, b = hpackString(b[1:])
		value, b = hpackString(b)
		all = append(all, field{name, value})
	}
	return all
}

func hpackString(b []byte) (string, []byte) {
	if len(b) == 0 {
		return "", nil
	}
	n, at := int(b[0]&0x7f), 1
	if n == 0x7f {
		for shift := 0; at < len(b); shift += 7 {
			n += int(b[at]&0x7f) << shift
			at++
			if b[at-1]&0x80 == 0 {
				break
			}
		}
	}
	if n > len(b)-at {
		return "", nil
	}
	return string(b[at : at+n]), b[at+n:]
}

func writeLiteral(b *bytes.Buffer, name, value string) {
	b.WriteByte(0)
	for _, s := range []string{name, value} {
		b.WriteByte(byte(min(len(s), 126)))
		b.WriteString(s[:min(len(s), 126)])
	}
}

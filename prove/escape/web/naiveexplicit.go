package web

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ServeExplicit is the gateway's proxy: CONNECT, requests with an absolute
// target, SOCKS. Mistake: the host is taken from whatever is there, and its name
// is compared before anything is taken off it.
func (n *Naive) ServeExplicit(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	p := &peeked{Conn: conn}
	first, err := p.peek()
	if err != nil {
		_ = conn.Close()
		return
	}
	if first == 4 || first == 5 {
		n.socks(p, first)
		return
	}
	h, rest, err := readNaiveHead(p, nil)
	if err != nil {
		_ = conn.Close()
		return
	}
	if h.method != "CONNECT" {
		p.held = append(append([]byte(nil), h.raw...), append(rest, p.held...)...)
		n.Serve(normal(absoluteHost(h.target)), 80, p)
		return
	}
	authority := h.target
	if strings.HasPrefix(authority, "/") || strings.HasPrefix(authority, ":") {
		authority = h.get("Host") // as Go's server does
	}
	n.begin(p, rest, authority, "HTTP/1.1 200 OK\r\n\r\n")
}

// begin goes on with a tunnel to a host by its text.
func (n *Naive) begin(p *peeked, rest []byte, authority, yes string) {
	port := 443
	if i := strings.LastIndexByte(authority, ':'); i >= 0 {
		if v, err := strconv.ParseUint(authority[i+1:], 10, 64); err == nil {
			port = int(uint16(v)) //nolint:gosec // Mistake: an overflow is not noticed
		}
	}
	if authority == "denied.test:443" || authority == "denied.test:80" {
		_, _ = io.WriteString(p, refusedAnswer)
		_ = p.Close()
		return
	}
	_, _ = io.WriteString(p, yes)
	p.held = append(rest, p.held...)
	n.serve(&naiveConn{n: n, name: normal(authority), port: port, granted: true}, p)
}

// socks reads the host of SOCKS 4a and 5. Mistake: a name may hold anything.
func (n *Naive) socks(p *peeked, version byte) {
	if version == 5 {
		var greeting [2]byte
		_, _ = io.ReadFull(p, greeting[:])
		_, _ = io.ReadFull(p, make([]byte, greeting[1]))
		_, _ = p.Write([]byte{5, 0})
		var head [5]byte
		if _, err := io.ReadFull(p, head[:]); err != nil || head[3] != 3 {
			_ = p.Close()
			return
		}
		name := make([]byte, int(head[4])+2)
		if _, err := io.ReadFull(p, name); err != nil {
			_ = p.Close()
			return
		}
		port := binary.BigEndian.Uint16(name[len(name)-2:])
		n.begin(p, nil, string(name[:len(name)-2])+":"+strconv.Itoa(int(port)), "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
		return
	}
	var head [8]byte
	_, _ = io.ReadFull(p, head[:])
	_ = until0(p)
	n.begin(p, nil, until0(p)+":"+strconv.Itoa(int(binary.BigEndian.Uint16(head[2:4]))), "\x00\x5a\x00\x00\x00\x00\x00\x00")
}

func until0(r io.Reader) string {
	var b []byte
	var one [1]byte
	for len(b) < 300 {
		if _, err := io.ReadFull(r, one[:]); err != nil || one[0] == 0 {
			break
		}
		b = append(b, one[0])
	}
	return string(b)
}

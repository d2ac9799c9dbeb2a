package web

import "net"

// peeked is a connection of which the first bytes were looked at.
type peeked struct {
	net.Conn
	held []byte
}

// peek gives the first byte and leaves it there.
func (p *peeked) peek() (byte, error) {
	if len(p.held) == 0 {
		buf := make([]byte, 4096)
		n, err := p.Conn.Read(buf)
		if n == 0 {
			return 0, err
		}
		p.held = buf[:n]
	}
	return p.held[0], nil
}

// Read gives what was held back first.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.held) > 0 {
		n := copy(b, p.held)
		p.held = p.held[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// capture is one captured connection: the agent's end, where it was going,
// and the bytes read ahead of whoever will consume them.
type capture struct {
	net.Conn
	host netpolicy.Host
	port uint16
	// front is set once the connection speaks HTTP.
	front *front

	ahead  []byte
	once   sync.Once
	closed chan struct{}
}

// newCapture names the connection. ok is false when it went to a synthetic
// address that no name has.
func (s *Server) newCapture(c net.Conn) (cap *capture, to netip.AddrPort, ok bool) {
	cap = &capture{Conn: c, closed: make(chan struct{})}
	local, isTCP := c.LocalAddr().(*net.TCPAddr)
	if !isTCP {
		return cap, to, false
	}
	to = netip.AddrPortFrom(local.AddrPort().Addr().Unmap(), local.AddrPort().Port())
	cap.port = to.Port()
	if synthetic.Contains(to.Addr()) {
		cap.host, ok = s.names.name(to.Addr())
		return cap, to, ok
	}
	host, err := netpolicy.ParseHost(to.Addr().WithZone("").String())
	cap.host = host
	return cap, to, err == nil
}

// Read gives the bytes read ahead, then the connection's.
func (c *capture) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	if len(c.ahead) == 0 {
		c.ahead = nil
	}
	return n, nil
}

// Close closes the connection; it may be called more than once.
func (c *capture) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// CloseWrite ends the direction to the agent.
func (c *capture) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// wire is what the first bytes of a connection look like.
type wire uint8

const (
	wireUnknown wire = iota
	wireTLS
	wireHTTP
)

// longestMethod bounds how far a method is looked for.
const longestMethod = 32

// sniff reads ahead until it knows what the client speaks.
func (c *capture) sniff(patience time.Duration) (wire, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return wireUnknown, err
	}
	buf := make([]byte, 4096)
	n := 0
	for {
		m, err := c.Conn.Read(buf[n:])
		n += m
		c.ahead = buf[:n]
		if w, known := classify(c.ahead); known {
			return w, c.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return wireUnknown, err
		}
	}
}

// classify looks at the first bytes. known is false while more are needed.
func classify(b []byte) (w wire, known bool) {
	if len(b) == 0 {
		return wireUnknown, false
	}
	if b[0] == 0x16 { // a TLS handshake record
		if len(b) < 2 {
			return wireUnknown, false
		}
		if b[1] == 3 {
			return wireTLS, true
		}
		return wireUnknown, true
	}
	for i, c := range b {
		switch {
		case c == ' ' && i > 0:
			return wireHTTP, true
		case i >= longestMethod, !isToken(c), c >= '0' && c <= '9':
			// No method in use has a digit; "SSH-2.0-" has.
			return wireUnknown, true
		}
	}
	return wireUnknown, false
}

// errHello ends a handshake of which only the ClientHello is wanted.
var errHello = errors.New("client hello read")

// clientHello reads ahead over the ClientHello and gives its server name. The
// TLS library parses it, and refuses repeated extensions and names.
func (c *capture) clientHello(ctx context.Context, patience time.Duration) (serverName string, err error) {
	r := &recorder{Conn: c}
	seen := false
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			serverName, seen = h.ServerName, true
			return nil, errHello
		},
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	err = tls.Server(r, config).HandshakeContext(ctx)
	c.ahead = append(r.read, c.ahead...)
	if !seen {
		return "", err
	}
	return serverName, c.SetReadDeadline(time.Time{})
}

// recorder keeps what is read and sends nothing.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

// Close leaves the connection open for what comes after the ClientHello.
func (r *recorder) Close() error { return nil }

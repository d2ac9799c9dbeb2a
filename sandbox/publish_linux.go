package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Forward is one published port: connections to Listen on the host reach Port
// on the sandbox's loopback.
type Forward struct {
	Listen string // ADDR:PORT on the host
	Port   int    // inside
}

// maxForwarded bounds the connections of one forward.
const maxForwarded = 512

// publisher serves the forwards of one run. PID 1 makes the inner sockets, so
// nothing of the host's network enters the sandbox and no namespace is joined.
type publisher struct {
	control *Channel
	mu      sync.Mutex // one request for a socket at a time
	sockets chan message
	ls      []net.Listener
}

// listenAll opens every host port before the agent starts: a port that is taken
// stops the launch.
func (r *run) listenAll() error {
	r.pub = &publisher{control: r.control, sockets: make(chan message, 1)}
	for _, f := range r.Forwards {
		l, err := net.Listen("tcp", f.Listen)
		if err != nil {
			r.pub.close()
			return fmt.Errorf("publish port %d: %w", f.Port, err)
		}
		r.pub.ls = append(r.pub.ls, l)
	}
	return nil
}

func (r *run) serveForwards() {
	for i, l := range r.pub.ls {
		go r.pub.serve(l, r.Forwards[i].Port)
	}
}

func (p *publisher) close() {
	for _, l := range p.ls {
		l.Close()
	}
}

func (p *publisher) serve(l net.Listener, port int) {
	slots := make(chan struct{}, maxForwarded)
	for {
		slots <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			return // closed with the run
		}
		go func() {
			defer func() { <-slots }()
			p.carry(c, port)
		}()
	}
}

func (p *publisher) carry(outer net.Conn, port int) {
	defer outer.Close()
	inner, err := p.dial(port)
	if err != nil {
		if t, ok := outer.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		return
	}
	defer inner.Close()
	var wg sync.WaitGroup
	wg.Go(func() { halfCopy(inner, outer) })
	wg.Go(func() { halfCopy(outer, inner) })
	wg.Wait()
}

// halfCopy keeps half-close: the end of one direction leaves the other open.
func halfCopy(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	if t, ok := dst.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	if t, ok := src.(*net.TCPConn); ok {
		_ = t.CloseRead()
	}
}

// dial connects a socket that PID 1 made to the port on the inner loopback,
// IPv4 first.
func (p *publisher) dial(port int) (net.Conn, error) {
	c, err := p.dialFamily(unix.AF_INET, net.IPv4(127, 0, 0, 1), port)
	if errors.Is(err, unix.ECONNREFUSED) {
		return p.dialFamily(unix.AF_INET6, net.IPv6loopback, port)
	}
	return c, err
}

func (p *publisher) dialFamily(family int, ip net.IP, port int) (net.Conn, error) {
	f, err := p.socket(family)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unix.Connect(int(f.Fd()), sockaddr(family, ip, port)); err != nil {
		return nil, fmt.Errorf("connect to port %d inside: %w", port, err)
	}
	return net.FileConn(f)
}

// deliver hands a socket to whoever asked; one that nobody asked for is closed.
func (p *publisher) deliver(m message) {
	select {
	case p.sockets <- m:
	default:
		closeAll(m.files)
	}
}

func (p *publisher) socket(family int) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.control.send(message{Op: opSocket, Family: family}); err != nil {
		return nil, err
	}
	m, ok := <-p.sockets
	if !ok || len(m.files) != 1 {
		return nil, errors.New("the sandbox's init gave no socket")
	}
	return m.files[0], nil
}

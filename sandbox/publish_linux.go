package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Forward is one entry of network.publish: what connects to Listener reaches To.
type Forward struct {
	// Name is for whoever is told.
	Name string
	// Listener accepts on the host. Run closes it.
	Listener net.Listener
	// To is the port inside, or the absolute path of a Unix socket inside.
	To string
	// From are the addresses that may connect. None: any.
	From []netip.Prefix
	// Most is how many connections may be open. 0: none.
	Most int
	// Carry takes over a connection and returns when it is over; dial connects to
	// To. Nil: the bytes are carried as they are.
	Carry func(outer net.Conn, dial func() (net.Conn, error))
	// Denied is told whose connection was refused, and why. It may be nil.
	Denied func(from net.Addr, reason string)
}

// innerDial bounds connecting to a port inside.
const innerDial = 5 * time.Second

// publisher serves the forwards of one run. PID 1 makes the inner sockets, so
// nothing of the host's network enters the sandbox and no namespace is joined.
type publisher struct {
	control  *Channel
	forwards []Forward
	mu       sync.Mutex // one request for a socket at a time
	sockets  chan message
}

func newPublisher(control *Channel, forwards []Forward) *publisher {
	return &publisher{control: control, forwards: forwards, sockets: make(chan message, 1)}
}

func (p *publisher) serveAll() {
	for _, f := range p.forwards {
		go p.serve(f)
	}
}

func (p *publisher) close() {
	for _, f := range p.forwards {
		f.Listener.Close()
	}
}

// serve accepts until the listener is closed. Whoever may not connect is refused
// at once and keeps nothing open.
func (p *publisher) serve(f Forward) {
	slots := make(chan struct{}, f.Most)
	for {
		c, err := f.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // descriptors are short; they come back as connections end
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if !f.mayConnect(c.RemoteAddr()) {
			f.refuse(c, "the address is not in \"from\"")
			continue
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				p.carry(f, c)
			}()
		default:
			f.refuse(c, "\"max_connections\" are open")
		}
	}
}

func (f Forward) mayConnect(from net.Addr) bool {
	if len(f.From) == 0 {
		return true
	}
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, p := range f.From {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (f Forward) refuse(c net.Conn, reason string) {
	from := c.RemoteAddr()
	resetConn(c)
	if f.Denied != nil {
		f.Denied(from, reason)
	}
}

// resetConn ends a connection so that the client learns at once that nothing comes.
func resetConn(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

func (p *publisher) carry(f Forward, outer net.Conn) {
	dial := func() (net.Conn, error) { return p.dial(f.To) }
	if f.Carry != nil {
		f.Carry(outer, dial)
		return
	}
	inner, err := dial()
	if err != nil {
		resetConn(outer)
		return
	}
	defer outer.Close()
	defer inner.Close()
	var wg sync.WaitGroup
	wg.Go(func() { halfCopy(inner, outer) })
	wg.Go(func() { halfCopy(outer, inner) })
	wg.Wait()
}

// halfCopy keeps half-close: the end of one direction leaves the other open.
func halfCopy(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	if h, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
	if h, ok := src.(interface{ CloseRead() error }); ok {
		_ = h.CloseRead()
	}
}

// dial connects to a port on the inner loopback, IPv4 first, or to a Unix socket
// inside. Nothing is kept: a service that was started again is found again.
func (p *publisher) dial(to string) (net.Conn, error) {
	if strings.HasPrefix(to, "/") {
		return p.dialUnix(to)
	}
	port, err := strconv.Atoi(to)
	if err != nil {
		return nil, fmt.Errorf("BUG: %q is not a port", to)
	}
	c, err := p.dialFamily(unix.AF_INET, net.IPv4(127, 0, 0, 1), port)
	if errors.Is(err, unix.ECONNREFUSED) {
		return p.dialFamily(unix.AF_INET6, net.IPv6loopback, port)
	}
	return c, err
}

func (p *publisher) dialFamily(family int, ip net.IP, port int) (net.Conn, error) {
	f, err := p.socket(message{Op: opSocket, Family: family})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if err := connect(c, sockaddr(family, ip, port)); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to port %d inside: %w", port, err)
	}
	return c, nil
}

// connect connects a socket without holding a thread while it waits: the other
// end is the agent's.
func connect(c net.Conn, to unix.Sockaddr) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(innerDial)); err != nil {
		return err
	}
	var result error
	begun := false
	err = raw.Write(func(fd uintptr) bool {
		if begun {
			var no int
			if no, result = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); no != 0 {
				result = unix.Errno(no)
			}
			return true
		}
		begun = true
		result = unix.Connect(int(fd), to)
		return result != unix.EINPROGRESS
	})
	return errors.Join(err, result, c.SetWriteDeadline(time.Time{}))
}

// dialUnix has PID 1 connect: a path inside means something else outside.
func (p *publisher) dialUnix(path string) (net.Conn, error) {
	f, err := p.socket(message{Op: opSocket, Family: unix.AF_UNIX, Path: path})
	if err != nil {
		return nil, fmt.Errorf("connect to %q inside: %w", path, err)
	}
	defer f.Close()
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

func (p *publisher) socket(m message) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.control.send(m); err != nil {
		return nil, err
	}
	m, ok := <-p.sockets
	switch {
	case ok && m.Errno != 0:
		return nil, unix.Errno(m.Errno)
	case !ok || len(m.files) != 1:
		closeAll(m.files)
		return nil, errors.New("the sandbox's init gave no socket")
	}
	return m.files[0], nil
}

package sandbox

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
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

// publisher serves the forwards of one run. PID 1 makes the inner sockets, so
// nothing of the host's network enters the sandbox and no namespace is joined.
type publisher struct {
	dial     func(to string) (*os.File, error)
	forwards []Forward
}

func (p *publisher) serveAll() {
	room := make(chan struct{}, roomFor(mayOpen()))
	for _, f := range p.forwards {
		go p.serve(f, room)
	}
}

// perConnection is how many descriptors of the launcher one connection may take:
// both ends, and a pair of pipes while the kernel moves bytes (splice(2)).
const perConnection = 6

// roomFor gives how many connections there may be in all, by the number of
// descriptors that the launcher may have. Without a bound those who connect from
// outside could take what the launcher needs to watch the run, and so end it.
func roomFor(files uint64) int {
	spare := min(128, files/2)
	return int(min(max((files-spare)/perConnection, 1), 1<<20))
}

func mayOpen() uint64 {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return lim.Cur
}

// take gives whether there was room.
func take(room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p *publisher) close() {
	for _, f := range p.forwards {
		f.Listener.Close()
	}
}

// serve accepts until the listener is closed. Whoever may not connect is refused
// at once and keeps nothing open.
func (p *publisher) serve(f Forward, room chan struct{}) {
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
		if !take(slots) {
			f.refuse(c, "\"max_connections\" are open")
			continue
		}
		if !take(room) {
			<-slots
			f.refuse(c, "the launcher may have no more descriptors (ulimit -n)")
			continue
		}
		go func() {
			defer func() { <-slots; <-room }()
			p.carry(f, c)
		}()
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
	dial := func() (net.Conn, error) { return p.connect(f.To) }
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

// connect connects to a port or a Unix socket inside. Nothing is kept: a service
// that was started again is found again.
func (p *publisher) connect(to string) (net.Conn, error) {
	f, err := p.dial(to)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

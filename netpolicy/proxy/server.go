// Package proxy carries what package netpolicy allows. It accepts the
// connections and the DNS queries of a sandbox, asks the engine, and either
// carries the bytes or says why not.
//
// A connection goes through these steps: name (the synthetic address it went
// to, turned back into the name), judge the connection, sniff the first bytes
// without consuming them, then one of tcp (bytes), pass (bytes, after the
// server name was compared), inspect (TLS is ended and every HTTP request is
// judged) or refuse. Whoever dials resolves outside, judges every address and
// connects to one that was judged.
//
// HTTP is parsed by a strict parser of our own on HTTP/1 and checked again
// field by field on HTTP/2; what is forwarded is written anew from what was
// judged, never copied.
package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/docker"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
)

// Server carries the traffic of one sandbox. Its fields are set before the
// first Serve and not changed afterwards. The zero value refuses everything.
type Server struct {
	// Rules is what is judged by until the first Reload. The zero value denies
	// everything.
	Rules Rules
	// Audit records every decision. Nil counts as a record that fails.
	Audit *audit.Log
	// Docker judges requests to the container engine. Nil: there is none.
	Docker *docker.Set
	// Authority signs for the hosts that are inspected. Nil: nothing is
	// inspected, and denied TLS connections are reset instead of answered.
	Authority *Authority
	// Dial connects to an address that was judged; nil is a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve looks an allowed name up; nil asks the host's resolvers in pure Go.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// RootCAs verify upstream certificates; nil is the system's.
	RootCAs *x509.CertPool
	// Now gives the time for certificates; nil is time.Now.
	Now func() time.Time
	// Fatal is told when an event could not be recorded, if the policy says
	// that the run must not go on without a record. What the event was about
	// is then refused. Nil: the record is best effort.
	Fatal func(error)
	// Stop is told that the run must end, and why. Nil: it goes on, and only the
	// request at hand is refused.
	Stop func(reason string)
	// Statm is /proc/PID/statm of this process, for its metrics. Nil: they do
	// not say how much memory it has.
	Statm io.ReaderAt
	// Refresh is told the name of a credential that a server did not take, so that
	// its source is read again and Reload called. Nil: it stays as it is.
	Refresh func(credential string)
	// Limits bounds what the sandbox can make the Server hold.
	Limits Limits
	// Memory is what outlives this process. Nil: nothing does.
	Memory *Memory
	// Restarts is how many proxies of the run have ended before this one.
	Restarts int

	names   names
	current atomic.Pointer[Rules]
	held    tunnels
	metrics metrics
	waiting buffered  // bytes of such messages
	heads   buffered  // bytes of large heads
	bodies  buffered  // bytes of requests and answers that are judged whole
	slots   hostSlots // exchanges and tunnels, by host
	grants  grants    // access tokens
	asked   askedOnce // credentials to be read again
	traffic traffic
	models  inference.Ledger
	silent  sync.Map // hosts that refuse to be asked for usage in streams
	own     ownDoors
	open    atomic.Int64 // connections
	resting atomic.Bool  // leave waits
	streams atomic.Int64 // HTTP/2 requests
	uploads atomic.Int64 // those with a long body
	wg      sync.WaitGroup
	making  engineMaking

	guest   *Server // see guests
	guestOf *Server // whose guests these are; nil: nobody's

	once      sync.Once
	limits    Limits
	tls       *tls.Config
	h2        *http2Server
	reloading sync.Mutex

	mu     sync.Mutex
	closed bool
	live   map[io.Closer]struct{}
}

// start fills in what the exported fields leave open.
func (s *Server) start() {
	s.once.Do(func() {
		s.limits = s.Limits.withDefaults()
		s.metrics.began = time.Now()
		s.current.Store(s.install(s.Rules))
		if s.Authority != nil {
			s.tls = s.newTLSConfig()
		}
		s.h2 = s.newHTTP2Server()
	})
}

// Recall takes over what an earlier proxy of the run left in the Memory. It is
// called once, before anything is served.
func (s *Server) Recall() error {
	s.start()
	return s.recall()
}

// ServeTCP accepts captured connections until ctx ends or the Server is
// closed. The local address of each is the destination that the agent meant.
// The listener is closed on return.
func (s *Server) ServeTCP(ctx context.Context, l net.Listener) error {
	return s.serve(ctx, l, s.handle)
}

// serve accepts connections and has each handled.
func (s *Server) serve(ctx context.Context, l net.Listener, handle func(context.Context, net.Conn)) error {
	stop, err := s.track(ctx, l)
	if err != nil {
		return err
	}
	defer stop()
	var pause backoff
	for {
		c, err := l.Accept()
		if err != nil {
			if s.stopping(ctx) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// EMFILE and the like pass as connections end; giving up here
			// would leave the whole sandbox without a network.
			pause.wait(ctx)
			continue
		}
		pause.reset()
		s.accept(ctx, c, handle)
	}
}

func (s *Server) accept(ctx context.Context, c net.Conn, handle func(context.Context, net.Conn)) {
	if s.open.Add(1) > int64(s.limits.Connections) {
		s.leave()
		reset(c)
		s.record(audit.Event{Kind: audit.KindConnection, Verdict: audit.Deny, Protocol: "tcp", Reason: "too many open connections"})
		return
	}
	s.wg.Go(func() {
		defer s.leave()
		stop, err := s.track(ctx, c)
		if err != nil {
			return
		}
		defer stop()
		defer s.recovered("connection")
		handle(ctx, c)
	})
}

// rest is how long there must be no connection before what they needed is given
// back.
const rest = 5 * time.Second

// leave counts a connection out. The runtime keeps what a crowd needed, its
// memory and the pipes of splice(2), until two collections have found them
// unused; in a proxy that has nothing to do none would come for minutes.
func (s *Server) leave() {
	if s.open.Add(-1) > 0 || !s.resting.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(rest, func() {
		s.resting.Store(false)
		if s.open.Load() == 0 {
			runtime.GC()
			debug.FreeOSMemory()
		}
	})
}

// Close stops every Serve, ends every connection and waits for them.
func (s *Server) Close() error {
	s.start()
	s.mu.Lock()
	s.closed = true
	live := make([]io.Closer, 0, len(s.live))
	for c := range s.live {
		live = append(live, c)
	}
	s.mu.Unlock()
	for _, c := range live {
		_ = c.Close()
	}
	if guest := s.anyGuests(); guest != nil {
		_ = guest.Close()
	}
	s.h2.close()
	s.wg.Wait()
	s.rules().out.retire()
	return nil
}

// track has c closed when ctx ends or the Server is closed. stop closes it too.
func (s *Server) track(ctx context.Context, c io.Closer) (stop func(), err error) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return nil, fmt.Errorf("serve: %w", net.ErrClosed)
	}
	if s.live == nil {
		s.live = map[io.Closer]struct{}{}
	}
	s.live[c] = struct{}{}
	cancel := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() {
		cancel()
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, c)
	}, nil
}

func (s *Server) stopping(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || ctx.Err() != nil
}

// record writes an event and tells whether what it is about may go on.
func (s *Server) record(e audit.Event) bool {
	err := s.Audit.Write(e)
	counts := &s.metrics
	if s.guestOf != nil {
		counts = &s.guestOf.metrics
	}
	counts.count(e, err)
	if err == nil || s.Fatal == nil {
		return true
	}
	s.Fatal(err)
	return false
}

// recovered keeps a mistake of ours inside the connection that met it.
func (s *Server) recovered(where string) {
	if v := recover(); v != nil {
		s.fault(where, v)
	}
}

// errBug is the error of what ended in a mistake of ours.
var errBug = errors.New("BUG: panic, see the record")

// recoveredTo does so where a library calls us on a goroutine of its own, which
// nobody guards: there a panic would end the process.
func (s *Server) recoveredTo(where string, err *error) {
	if v := recover(); v != nil {
		s.fault(where, v)
		*err = errBug
	}
}

func (s *Server) fault(where string, v any) {
	s.record(audit.Event{Kind: audit.KindFault, Reason: fmt.Sprintf("BUG: panic in %s: %v\n%s", where, v, debug.Stack())})
}

// backoff is the pause after an accept or read that failed.
type backoff struct{ delay time.Duration }

func (b *backoff) reset() { b.delay = 0 }

func (b *backoff) wait(ctx context.Context) {
	b.delay = min(max(2*b.delay, 5*time.Millisecond), time.Second)
	t := time.NewTimer(b.delay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// reset closes a connection with RST: the client learns at once that nothing
// will come.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}

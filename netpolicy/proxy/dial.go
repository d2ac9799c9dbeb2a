package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// stagger is the head start of each address over the next (RFC 8305).
const stagger = 250 * time.Millisecond

// maxAddresses bounds how many addresses of a name are judged and tried.
const maxAddresses = 16

// refusedAddress is the error when no address of a host may be dialled.
type refusedAddress struct {
	host     netpolicy.Host
	addr     netip.Addr
	decision netpolicy.Decision
}

func (e *refusedAddress) Error() string {
	return fmt.Sprintf("dial %q: address %s: %s", e.host, e.addr, e.decision.Reason)
}

// lookupError is the error when a name has no address.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// dialHost connects to a host that the policy allows: it resolves, judges
// every address, and dials only addresses that were judged. A name's leave
// does not extend to where it points.
func (s *Server) dialHost(ctx context.Context, h netpolicy.Host, port uint16, what scheme) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Dial)
	defer cancel()
	if err := s.withoutSecret(h); err != nil {
		return nil, err
	}
	if err := s.admit(h); err != nil {
		return nil, err
	}
	via, err := s.rules().Upstream.House.way(what, h, port)
	if err != nil {
		return nil, &houseProxyError{reason: "the settings of the house's proxy cannot be used"}
	}
	if via != nil {
		return s.dialByHouse(ctx, via, h, port)
	}
	addrs, err := s.resolve(ctx, h)
	if err != nil {
		return nil, err
	}
	allowed, refused := s.judgeAddresses(h, port, addrs)
	if len(allowed) == 0 {
		return nil, refused
	}
	return s.dialAny(ctx, allowed, port)
}

// judgeAddresses gives the addresses that may be dialled, and the last one that
// may not.
func (s *Server) judgeAddresses(h netpolicy.Host, port uint16, addrs []netip.Addr) (allowed []netip.Addr, refused *refusedAddress) {
	for _, a := range addrs {
		a = a.Unmap()
		d := s.engine().Address(a, port)
		if d.Verdict == netpolicy.Allow && s.own.has(netip.AddrPortFrom(a, port)) {
			d = netpolicy.Decision{Reason: "this is where the sandbox's own proxy listens"}
		}
		if d.Verdict == netpolicy.Allow {
			allowed = append(allowed, a)
			continue
		}
		refused = &refusedAddress{host: h, addr: a, decision: d}
		s.record(audit.Event{
			Kind: audit.KindAddress, Verdict: audit.Deny, Host: h.String(), Port: port, Addr: a.String(),
			Rule: d.Rule, Reason: d.Reason,
		})
	}
	return allowed, refused
}

// houseLookup bounds looking a name up before the house's proxy is asked: where
// it is the only way out, the house's resolvers often know no outside name.
const houseLookup = 3 * time.Second

// dialByHouse goes through the house's proxy. What resolves here is judged as
// always: a name all of whose addresses are allowed is sent as a name; of one
// with refused addresses, and of one that the policy pins, an allowed address is
// sent. A name that does not resolve here is sent as it is, and the house's proxy
// alone knows where it points.
func (s *Server) dialByHouse(ctx context.Context, via *url.URL, h netpolicy.Host, port uint16) (net.Conn, error) {
	short, cancel := context.WithTimeout(ctx, houseLookup)
	addrs, err := s.resolve(short, h)
	cancel()
	target := h.String()
	if err == nil {
		allowed, refused := s.judgeAddresses(h, port, addrs)
		switch {
		case len(allowed) == 0:
			return nil, refused
		case !slices.ContainsFunc(allowed, func(a netip.Addr) bool { return !a.IsLoopback() }):
			return s.dialAny(ctx, allowed, port) // of this machine, not of the proxy's
		case refused != nil, len(s.engine().Pinned(h)) > 0:
			target = allowed[0].String()
		}
	}
	return s.dialThrough(ctx, via, net.JoinHostPort(target, strconv.Itoa(int(port))))
}

func (s *Server) resolve(ctx context.Context, h netpolicy.Host) ([]netip.Addr, error) {
	if h.IsAddr() {
		return []netip.Addr{h.Addr()}, nil
	}
	if pinned := s.engine().Pinned(h); len(pinned) > 0 {
		return pinned, nil
	}
	lookup := s.Resolve
	if lookup == nil {
		lookup = lookupHost
	}
	addrs, err := lookup(ctx, h.String())
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("resolve %q: no address", h)
	}
	if err != nil {
		return nil, &lookupError{err}
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

// lookupHost asks the host's resolvers.
func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return lookupWith(ctx, &net.Resolver{PreferGo: true}, host)
}

// lookupWith asks a resolver in pure Go, which refuses odd spellings of
// addresses that the C library would accept; the trailing dot keeps search
// domains from turning the name into another.
func lookupWith(ctx context.Context, r *net.Resolver, host string) ([]netip.Addr, error) {
	return r.LookupNetIP(ctx, "ip", host+".")
}

// dialAny gives the first connection to any of the addresses.
func (s *Server) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	if len(addrs) == 1 {
		return s.dialAddr(ctx, addrs[0], port)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	begin := func(a netip.Addr) {
		go func() {
			c, err := s.dialAddr(ctx, a, port)
			select {
			case results <- result{c, err}:
			case <-ctx.Done():
				if c != nil {
					_ = c.Close()
				}
			}
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var errs []error
	for next := 0; len(errs) < len(addrs); {
		tick := timer.C
		if next == len(addrs) {
			tick = nil
		}
		select {
		case <-tick:
			begin(addrs[next])
			next++
			timer.Reset(stagger)
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
			timer.Reset(0)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

func (s *Server) dialAddr(ctx context.Context, a netip.Addr, port uint16) (net.Conn, error) {
	dial := s.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return dial(ctx, "tcp", netip.AddrPortFrom(a, port).String())
}

// ownDoors are the addresses at which the Server itself accepts clients that
// know that it is a proxy. Nothing is dialled there: it would be a loop.
type ownDoors struct {
	mu    sync.Mutex
	doors []netip.AddrPort
}

func (o *ownDoors) add(a net.Addr) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	p := tcp.AddrPort()
	o.doors = append(o.doors, netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
}

// has compares; at a door open on every address, each loopback one leads there.
func (o *ownDoors) has(to netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.doors {
		if d == to || d.Port() == to.Port() && d.Addr().IsUnspecified() {
			return true
		}
	}
	return false
}

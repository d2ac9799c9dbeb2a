package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
func (s *Server) dialHost(ctx context.Context, h netpolicy.Host, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Dial)
	defer cancel()
	addrs, err := s.resolve(ctx, h)
	if err != nil {
		return nil, err
	}
	var allowed []netip.Addr
	var refused *refusedAddress
	for _, a := range addrs {
		a = a.Unmap()
		d := s.engine().Address(a, port)
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
	if len(allowed) == 0 {
		return nil, refused
	}
	return s.dialAny(ctx, allowed, port)
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

// lookupHost asks the host's resolvers. The pure Go resolver refuses odd
// spellings of addresses, which the C library would accept; the trailing dot
// keeps search domains from turning the name into another.
func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true}
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

package proxy

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// synthetic is the range that names are given addresses from. It is set aside
// for benchmarks of network devices (RFC 2544), so no real service lies in it.
var synthetic = netip.MustParsePrefix("198.18.0.0/15")

// The room for names. Names that no rule mentions share the first part, so
// that a flood of them cannot use up what allowed names need.
const (
	maxNames       = 1<<17 - 2
	maxDeniedNames = 1 << 16
)

// names gives each host name a synthetic address of its own, in both
// directions. An address is never given to a second name. The zero value is
// ready for use.
type names struct {
	mu     sync.Mutex
	byName map[netpolicy.Host]netip.Addr
	byAddr []netpolicy.Host // index 0 is the first address after the network's own
	denied int
}

// lockedTake gives a name the next address. Before anything is served no lock is
// needed.
func (n *names) lockedTake(h netpolicy.Host, allowed bool) netip.Addr {
	if n.byName == nil {
		n.byName = map[netpolicy.Host]netip.Addr{}
	}
	if !allowed {
		n.denied++
	}
	a := syntheticAt(len(n.byAddr))
	n.byAddr = append(n.byAddr, h)
	n.byName[h] = a
	return a
}

// addr gives the address of a name. allowed is asked once for a new name, and
// tells whether any rule allows it. first says that the name is new; ok is
// false when there is no room. A new name is in the memory before anybody is told
// its address.
func (n *names) addr(h netpolicy.Host, m *Memory, allowed func() bool) (a netip.Addr, first, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.byName[h]; ok {
		return a, false, true
	}
	isAllowed := allowed()
	if len(n.byAddr) >= maxNames || (!isAllowed && n.denied >= maxDeniedNames) {
		return netip.Addr{}, false, false
	}
	kind := byte(entryDenied)
	if isAllowed {
		kind = entryAllowed
	}
	if !m.note(kind, h) {
		return netip.Addr{}, false, false
	}
	return n.lockedTake(h, isAllowed), true, true
}

// name gives the name behind a synthetic address.
func (n *names) name(a netip.Addr) (netpolicy.Host, bool) {
	if !synthetic.Contains(a) {
		return netpolicy.Host{}, false
	}
	base, at := synthetic.Addr().As4(), a.As4()
	i := int(binary.BigEndian.Uint32(at[:])) - int(binary.BigEndian.Uint32(base[:])) - 1
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 0 || i >= len(n.byAddr) {
		return netpolicy.Host{}, false
	}
	return n.byAddr[i], true
}

func syntheticAt(i int) netip.Addr {
	base := synthetic.Addr().As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+uint32(i)+1)
	return netip.AddrFrom4(b)
}

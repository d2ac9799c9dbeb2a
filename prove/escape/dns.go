package escape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is the world's name server. It answers fixed names, and names below
// dns.test that say themselves how they are answered, lies included:
//
//	a-203-0-113-10-10-77-0-1.dns.test    these addresses, in this order; 32
//	                                     hexadecimal digits are an IPv6 address
//	turn-203-0-113-10-127-0-0-1.dns.test the first address to the first query
//	                                     (of its type), then the next, the last for ever
//	NAME.via.dns.test                    an alias of NAME, whose addresses follow
//	hops-20.dns.test                     20 aliases, then 203.0.113.10
//	LIE.a-….dns.test                     see lies
//	silent.dns.test, servfail.dns.test, none.dns.test, empty.dns.test
//
// More labels may stand between the first ones and dns.test, so that a test can
// have a name of its own. A TTL is always 0. All that is asked is kept.
type DNS struct {
	hosts map[string][]netip.Addr
	udp   net.PacketConn
	tcp   net.Listener
	done  sync.WaitGroup

	mu    sync.Mutex
	log   []Query
	turns map[string]int
	conns map[net.Conn]struct{}
}

// Query is what somebody asked.
type Query struct {
	// Name is in small letters and without the final dot, as far as it could
	// be read; Raw is the whole message.
	Name, Type string
	Raw        []byte
	// Network is "udp" or "tcp".
	Network string
	From    netip.AddrPort
	At      time.Time
}

// ListenDNS serves DNS on one address, over UDP and TCP. hosts are the fixed
// names, in small letters.
func ListenDNS(addr string, hosts map[string][]netip.Addr) (*DNS, error) {
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		_ = udp.Close()
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	d := &DNS{hosts: hosts, udp: udp, tcp: tcp, turns: map[string]int{}, conns: map[net.Conn]struct{}{}}
	d.done.Go(d.serveUDP)
	d.done.Go(d.serveTCP)
	return d, nil
}

// Addr is where it listens.
func (d *DNS) Addr() string { return d.udp.LocalAddr().String() }

// Log gives what was asked since the start or the last Reset.
func (d *DNS) Log() []Query {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// Reset forgets what was asked, and whose turn it is.
func (d *DNS) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log, d.turns = nil, map[string]int{}
}

// Close ends the server and waits for it.
func (d *DNS) Close() error {
	err := errors.Join(d.udp.Close(), d.tcp.Close())
	d.mu.Lock()
	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
	return err
}

func (d *DNS) serveUDP() {
	b := make([]byte, 65535)
	for {
		n, from, err := d.udp.ReadFrom(b)
		if err != nil {
			return
		}
		var at netip.AddrPort
		if u, ok := from.(*net.UDPAddr); ok {
			at = u.AddrPort()
		}
		for _, answer := range d.answer("udp", at, slices.Clone(b[:n])) {
			_, _ = d.udp.WriteTo(answer, from)
		}
	}
}

func (d *DNS) serveTCP() {
	for {
		c, err := d.tcp.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns[c] = struct{}{}
		d.mu.Unlock()
		d.done.Go(func() {
			d.serveConn(c)
			_ = c.Close()
			d.mu.Lock()
			delete(d.conns, c)
			d.mu.Unlock()
		})
	}
}

func (d *DNS) serveConn(c net.Conn) {
	var from netip.AddrPort
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		from = a.AddrPort()
	}
	for {
		var size [2]byte
		if c.SetDeadline(time.Now().Add(10*time.Second)) != nil {
			return
		}
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if n, err := io.ReadFull(c, query); err != nil {
			d.note("tcp", from, query[:n], dnsmessage.Question{})
			return
		}
		for _, answer := range d.answer("tcp", from, query) {
			out := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
			if _, err := c.Write(append(out, answer...)); err != nil {
				return
			}
		}
	}
}

func (d *DNS) note(network string, from netip.AddrPort, raw []byte, q dnsmessage.Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, Query{
		Name: plain(q.Name), Type: strings.TrimPrefix(q.Type.String(), "Type"), Raw: raw, Network: network, From: from, At: time.Now(),
	})
}

func plain(n dnsmessage.Name) string { return strings.ToLower(strings.TrimSuffix(n.String(), ".")) }

// answer gives the messages that answer a query; a liar sends several.
func (d *DNS) answer(network string, from netip.AddrPort, raw []byte) [][]byte {
	var p dnsmessage.Parser
	head, err := p.Start(raw)
	var q dnsmessage.Question
	if err == nil {
		q, err = p.Question()
	}
	d.note(network, from, raw, q)
	if err != nil || head.Response {
		return nil
	}
	var out [][]byte
	for _, m := range d.messages(head, q, network) {
		b, ok := m.raw, true
		if b == nil {
			b, err = m.Pack()
			ok = err == nil
		}
		if ok {
			out = append(out, b)
		}
	}
	return out
}

// message is one answer; raw stands for it where no library would write it.
type message struct {
	dnsmessage.Message
	raw []byte
}

func (d *DNS) messages(head dnsmessage.Header, q dnsmessage.Question, network string) []message {
	m := message{Message: dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, RecursionDesired: head.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}}
	name := plain(q.Name)
	first, rest, _ := strings.Cut(name, ".")
	switch {
	case name == "silent.dns.test" || strings.HasPrefix(name, "silent.") && strings.HasSuffix(name, ".dns.test"):
		return nil
	case first == "servfail" && strings.HasSuffix(name, ".dns.test"):
		m.RCode = dnsmessage.RCodeServerFailure
		return []message{m}
	}
	if tell, ok := lies[first]; ok && strings.HasSuffix(rest, ".dns.test") {
		d.resolve(&m, rest, q)
		return tell(m, q, network)
	}
	d.resolve(&m, name, q)
	return []message{m}
}

// resolve adds the records of a name to an answer. Those of an alias are owned
// by the name it stands for.
func (d *DNS) resolve(m *message, name string, q dnsmessage.Question) {
	owner := q.Name
	for range 40 {
		alias, ok := aliasOf(name)
		if !ok {
			break
		}
		to, err := dnsmessage.NewName(alias + ".")
		if err != nil {
			m.RCode = dnsmessage.RCodeServerFailure
			return
		}
		m.Answers = append(m.Answers, record(owner, dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: to}))
		owner, name = to, alias
	}
	addrs, known := d.addresses(name, q.Type)
	if !known {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	for _, a := range addrs {
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, record(owner, q.Type, &dnsmessage.AResource{A: a.As4()}))
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, record(owner, q.Type, &dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
}

func record(owner dnsmessage.Name, t dnsmessage.Type, body dnsmessage.ResourceBody) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Type: t, Class: dnsmessage.ClassINET}, Body: body}
}

// aliasOf gives what a name stands for.
func aliasOf(name string) (string, bool) {
	if to, ok := strings.CutSuffix(name, ".via.dns.test"); ok {
		return to, true
	}
	first, rest, _ := strings.Cut(name, ".")
	if n, err := strconv.Atoi(strings.TrimPrefix(first, "hops-")); err == nil && strings.HasPrefix(first, "hops-") && rest == "dns.test" {
		if n > 1 {
			return fmt.Sprintf("hops-%d.dns.test", n-1), true
		}
		return "a-203-0-113-10.dns.test", true
	}
	if first == "round" && rest == "dns.test" {
		return name, true // an alias of itself
	}
	return "", false
}

// addresses gives those of a name that is no alias. known is false for a name
// that does not exist.
func (d *DNS) addresses(name string, t dnsmessage.Type) (addrs []netip.Addr, known bool) {
	if fixed, ok := d.hosts[name]; ok {
		return fixed, true
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, true
	}
	if a, ok := internal[name]; ok {
		return []netip.Addr{netip.MustParseAddr(a)}, true
	}
	label, rest, _ := strings.Cut(name, ".")
	if rest != "dns.test" && !strings.HasSuffix(rest, ".dns.test") {
		return nil, false
	}
	if list, ok := strings.CutPrefix(label, "a-"); ok {
		return parseAddresses(list)
	}
	if list, ok := strings.CutPrefix(label, "turn-"); ok {
		addrs, known = parseAddresses(list)
		if known && len(addrs) > 0 {
			addrs = []netip.Addr{addrs[min(d.turn(name, t), len(addrs)-1)]}
		}
		return addrs, known
	}
	return nil, label == "empty"
}

// internal are names that networks give to what is near the machine.
var internal = map[string]string{ //nolint:gochecknoglobals // a constant
	"metadata.google.internal": "169.254.169.254", "metadata.goog": "169.254.169.254", "instance-data.ec2.internal": "169.254.169.254",
	"metadata.tencentyun.com": "169.254.169.254", "host.docker.internal": "10.77.0.1", "gateway.docker.internal": "10.77.0.1",
	"host.containers.internal": "10.77.0.1", "localhost.localdomain": "127.0.0.1", "ip6-localhost": "::1", "router.lan": "10.77.0.1",
}

// turn counts the queries for a name and a type.
func (d *DNS) turn(name string, t dnsmessage.Type) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := name + " " + t.String()
	n := d.turns[key]
	d.turns[key]++
	return n
}

// parseAddresses reads "203-0-113-10-fd00…(32 digits)".
func parseAddresses(list string) (addrs []netip.Addr, ok bool) {
	parts := strings.Split(list, "-")
	for len(parts) > 0 {
		text, n := "", 1
		if len(parts[0]) == 32 {
			var groups []string
			for i := 0; i < 32; i += 4 {
				groups = append(groups, parts[0][i:i+4])
			}
			text = strings.Join(groups, ":")
		} else if len(parts) >= 4 {
			text, n = strings.Join(parts[:4], "."), 4
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, false
		}
		addrs, parts = append(addrs, a), parts[n:]
	}
	return addrs, true
}

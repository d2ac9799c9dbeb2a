package escape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// The addresses of the world.
const (
	resolver = "127.0.0.53"
	gateway  = "127.0.0.54" // the naive one
	knocker4 = "127.0.0.55" // where settle comes from
	knocker6 = "fd00:77::55"
	port     = 4141 // $PORT: nothing but a canary listens there
)

// origins are the servers that have a name.
var origins = map[string]netip.Addr{ //nolint:gochecknoglobals // a constant
	"allowed.test": netip.MustParseAddr("203.0.113.10"),
	"other.test":   netip.MustParseAddr("203.0.113.11"),
	"api.test":     netip.MustParseAddr("203.0.113.20"),
	"llm.test":     netip.MustParseAddr("203.0.113.30"),
	"denied.test":  netip.MustParseAddr("203.0.113.66"),
	"evil.test":    netip.MustParseAddr("203.0.113.67"),
}

// canaries are addresses that nothing inside has any business with: the
// machine, its network, metadata servers of clouds, resolvers of the Internet.
var canaries = []netip.Addr{ //nolint:gochecknoglobals // a constant
	netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.77.0.1"),
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("1.1.1.1"),
}

var (
	canaryTCP = []int{22, 53, 80, 443, port} //nolint:gochecknoglobals // a constant
	canaryUDP = []int{53, 443, port}         //nolint:gochecknoglobals // a constant
)

func worldAddresses() []netip.Addr {
	out := append([]netip.Addr{netip.MustParseAddr(resolver), netip.MustParseAddr(gateway), netip.MustParseAddr(knocker4), netip.MustParseAddr(knocker6)}, canaries...)
	for _, a := range origins {
		out = append(out, a)
	}
	return out
}

// world is what answers on those addresses.
type world struct {
	CA *authority

	dns      *DNS
	resolver net.Resolver // that asks it
	tcp      []net.Listener
	udp      []net.PacketConn
	tasks    sync.WaitGroup

	mu   sync.Mutex
	seen []*sighting
	open map[net.Conn]struct{}
	gone chan struct{} // closed at the next end of a connection
}

// sighting is a connection or a datagram that arrived. Its bytes are kept as
// they came, before anybody parsed them.
type sighting struct {
	Network string // tcp, udp, http, https
	At      netip.AddrPort
	Name    string // of the origin; empty for a canary
	SNI     string
	Raw     []byte
	Sync    bool // of ours, to know that all that came before was seen
	// Requests are those of a protocol that is not read from Raw.
	Requests []request
}

func newWorld() (*world, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	w := &world{CA: ca, open: map[net.Conn]struct{}{}, gone: make(chan struct{})}
	hosts := map[string][]netip.Addr{}
	for name, a := range origins {
		hosts[name] = []netip.Addr{a}
	}
	if w.dns, err = ListenDNS(resolver+":53", hosts); err != nil {
		return nil, err
	}
	w.resolver = net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, resolver+":53")
	}}
	errs := []error{w.naive()}
	for _, a := range canaries {
		for _, p := range canaryTCP {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p)), w.canary))
		}
		for _, p := range canaryUDP {
			errs = append(errs, w.listenUDP(netip.AddrPortFrom(a, uint16(p))))
		}
	}
	for name, a := range origins {
		o := origin{w: w, name: name}
		errs = append(errs, w.listen(netip.AddrPortFrom(a, 80), o.plain), w.listen(netip.AddrPortFrom(a, 443), o.tls))
		for _, p := range []int{22, port} {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p)), o.canary))
		}
	}
	return w, errors.Join(errs...)
}

func (w *world) close() {
	for _, l := range w.tcp {
		l.Close()
	}
	for _, c := range w.udp {
		_ = c.Close()
	}
	w.drop()
	_ = w.dns.Close()
	w.tasks.Wait()
}

// listen serves one address until the world ends.
func (w *world) listen(at netip.AddrPort, serve func(net.Conn, *sighting)) error {
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		if at.Addr().Is6() && len(probes["ipv6"]()) == 0 {
			return nil
		}
		return err
	}
	w.tcp = append(w.tcp, l)
	w.tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := &sighting{Network: "tcp", At: at, Sync: w.ours(c.RemoteAddr())}
			w.enter(c, s)
			w.tasks.Go(func() {
				defer w.leave(c)
				if !s.Sync {
					serve(c, s)
				}
			})
		}
	})
	return nil
}

// ours tells a connection of settle: it comes from an address that nobody else
// uses.
func (w *world) ours(from net.Addr) bool {
	text := from.String()
	return strings.HasPrefix(text, knocker4+":") || strings.HasPrefix(text, "["+knocker6+"]:")
}

func (w *world) enter(c net.Conn, s *sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = struct{}{}
	w.seen = append(w.seen, s)
}

func (w *world) leave(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	close(w.gone)
	w.gone = make(chan struct{})
}

// note adds bytes to a sighting.
func (w *world) note(s *sighting, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.Raw) < 4<<20 {
		s.Raw = append(s.Raw, b...)
	}
}

// canary takes what comes and says who it is, so that a client knows that it got there.
func (w *world) canary(c net.Conn, s *sighting) {
	_, _ = io.WriteString(c, "canary\n")
	_, _ = io.Copy(recorder{w, s}, c)
}

type recorder struct {
	w *world
	s *sighting
}

func (r recorder) Write(p []byte) (int, error) {
	r.w.note(r.s, p)
	return len(p), nil
}

func (w *world) listenUDP(at netip.AddrPort) error {
	c, err := net.ListenPacket("udp", at.String())
	if err != nil {
		if at.Addr().Is6() && len(probes["ipv6"]()) == 0 {
			return nil
		}
		return err
	}
	w.udp = append(w.udp, c)
	w.tasks.Go(func() {
		b := make([]byte, 65535)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if w.ours(from) {
				_, _ = c.WriteTo(b[:n], from)
				continue
			}
			w.mu.Lock()
			w.seen = append(w.seen, &sighting{Network: "udp", At: at, Raw: append([]byte(nil), b[:n]...)})
			w.mu.Unlock()
			_, _ = c.WriteTo([]byte("canary\n"), from)
		}
	})
	return nil
}

// begin forgets what was seen.
func (w *world) begin() {
	w.drop()
	w.mu.Lock()
	w.seen = nil
	w.mu.Unlock()
	w.dns.Reset()
}

// drop ends what is still connected, so that it is in no later run.
func (w *world) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.SetDeadline(time.Now())
		c.Close()
	}
}

// settle waits until everything that arrived so far was taken in: a queue of
// connections is served in order, so when ours was seen, all others were.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, l := range w.tcp {
		if err := knock(ctx, "tcp", l.Addr().String()); err != nil {
			return err
		}
	}
	for _, c := range w.udp {
		if err := knock(ctx, "udp", c.LocalAddr().String()); err != nil {
			return err
		}
	}
	if _, err := w.resolver.LookupHost(ctx, "settle.test."); err != nil && ctx.Err() != nil {
		return fmt.Errorf("settle: %w", err)
	}
	// Who is still connected has a moment to say what it has to say.
	patience := time.NewTimer(300 * time.Millisecond)
	defer patience.Stop()
	for {
		w.mu.Lock()
		n, gone := len(w.open), w.gone
		w.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-gone:
		case <-patience.C:
			w.drop()
			return nil
		}
	}
}

// knock comes back once the server has taken in all that came before.
func knock(ctx context.Context, network, to string) error {
	from := knocker4
	if strings.HasPrefix(to, "[") {
		from = knocker6
	}
	var d net.Dialer
	if d.LocalAddr = (&net.TCPAddr{IP: net.ParseIP(from)}); network == "udp" {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.DialContext(ctx, network, to)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	defer c.Close()
	limit, _ := ctx.Deadline()
	_ = c.SetDeadline(limit)
	if network == "udp" {
		_, err = c.Write([]byte("settle"))
	}
	if err == nil {
		_, err = c.Read(make([]byte, 16))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}

// touched says which canaries of the network were touched since begin.
func (w *world) touched(t tokens) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, s := range w.seen {
		if !s.Sync {
			out = append(out, s.touched(t)...)
		}
	}
	for _, q := range w.dns.Log() {
		if q.Name == "evil.test" || strings.HasSuffix(q.Name, ".evil.test") {
			out = append(out, "DNS was asked for "+q.Name)
		}
		for _, where := range t.in([]byte(strings.ToLower(string(q.Raw)) + " " + strings.ReplaceAll(q.Name, ".", ""))) {
			out = append(out, "DNS was asked with the token of "+where)
		}
	}
	return out
}

func (s *sighting) touched(t tokens) []string {
	var out []string
	switch s.Name {
	case "":
		return []string{fmt.Sprintf("%s to %v", s.Network, s.At)}
	case "denied.test", "evil.test":
		out = append(out, fmt.Sprintf("%s to %s", s.Network, s.Name))
	}
	if s.Network == "tcp" {
		out = append(out, fmt.Sprintf("tcp to %s, port %d", s.Name, s.At.Port()))
	}
	requests := append(readings(s.Raw), s.Requests...)
	var text strings.Builder
	text.Write(s.Raw)
	for _, r := range requests {
		fmt.Fprintf(&text, "\n%s %s %s", r.Method, r.Target, strings.Join(r.Hosts, " "))
		if s.Name == "allowed.test" && asksForSecret(r.Target) {
			out = append(out, fmt.Sprintf("allowed.test was asked for %q", r.Target))
		}
		for _, h := range append(r.Hosts, s.SNI) {
			if h = strings.ToLower(h); strings.Contains(h, "denied.test") || strings.Contains(h, "evil.test") {
				out = append(out, fmt.Sprintf("%s was asked as %q", s.Name, h))
			}
		}
	}
	for _, where := range t.in([]byte(text.String())) {
		if credentialFor[where] != s.Name {
			out = append(out, fmt.Sprintf("the token of %s at %s", where, s.Name))
		}
	}
	return out
}

// credentialFor says which secrets belong to which origin.
var credentialFor = map[string]string{"credential api": "api.test", "credential llm": "llm.test"} //nolint:gochecknoglobals // a constant

package escape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/escape/web"
)

// The addresses of the world.
const (
	resolver = "127.0.0.53"
	gateway  = "127.0.0.54" // the naive one
	knocker4 = "127.0.0.55" // where settle comes from
	knocker6 = "fd00:77::55"
	port     = 4141 // $PORT: nothing but a canary listens there
)

// fixed are the addresses of the origins that cases know by number.
var fixed = map[string]int{ //nolint:gochecknoglobals // a constant
	"allowed.test": 10, "other.test": 11, "api.test": 20, "llm.test": 30, "denied.test": 66, "evil.test": 67,
}

// origins gives the servers that have a name, and their addresses.
func origins() map[string]netip.Addr {
	out := map[string]netip.Addr{}
	next := 100
	for _, o := range web.Origins() {
		n, ok := fixed[o.Name]
		if !ok {
			n = next
			next++
		}
		out[o.Name] = netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})
	}
	return out
}

// canaries are addresses that nothing inside has any business with: the
// machine, its network, metadata servers of clouds, resolvers of the Internet.
var canaries = []netip.Addr{ //nolint:gochecknoglobals // a constant
	netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.77.0.1"),
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("1.1.1.1"),
}

// anyone is an origin that takes every name for its own: those below dns.test
// that are allowed lead there.
var anyone = netip.AddrFrom4([4]byte{203, 0, 113, 40}) //nolint:gochecknoglobals // a constant

// strays are one address of each range that no name may lead to, or one that is
// another spelling of such an address. Canaries listen on $PORT and 80 alone.
var strays = []netip.Addr{ //nolint:gochecknoglobals // a constant
	netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("172.31.255.254"), netip.MustParseAddr("192.168.1.1"),
	netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("100.127.255.254"), netip.MustParseAddr("169.254.0.1"), netip.MustParseAddr("169.254.170.2"),
	netip.MustParseAddr("169.254.170.23"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("192.0.2.1"),
	netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.19.255.254"), netip.MustParseAddr("240.0.0.1"), netip.MustParseAddr("10.0.2.2"),
	netip.MustParseAddr("172.17.0.1"), netip.MustParseAddr("fd00::5"), netip.MustParseAddr("fec0::1"), netip.MustParseAddr("2001:db8::1"),
	netip.MustParseAddr("64:ff9b::7f00:1"), netip.MustParseAddr("64:ff9b::a9fe:a9fe"), netip.MustParseAddr("64:ff9b:1::a00:5"),
	netip.MustParseAddr("2002:7f00:1::1"), netip.MustParseAddr("2002:a9fe:a9fe::1"), netip.MustParseAddr("2001:0:7f00:1::1"), netip.MustParseAddr("::7f00:1"),
	netip.MustParseAddr("::a9fe:a9fe"), netip.MustParseAddr("fd20:ce::254"),
}

var (
	canaryTCP = []int{22, 53, 80, 443, port} //nolint:gochecknoglobals // a constant
	canaryUDP = []int{53, 443, port}         //nolint:gochecknoglobals // a constant
)

func worldAddresses() []netip.Addr {
	out := append([]netip.Addr{netip.MustParseAddr(resolver), netip.MustParseAddr(gateway), netip.MustParseAddr(knocker4), netip.MustParseAddr(knocker6)}, canaries...)
	for _, a := range origins() {
		out = append(out, a)
	}
	return append(append(out, strays...), anyone)
}

// world is what answers on those addresses.
type world struct {
	CA *web.Authority

	dns      *DNS
	resolver net.Resolver // that asks it
	tcp      []net.Listener
	listens  map[string]bool // see arrived
	udp      []net.PacketConn
	tasks    sync.WaitGroup

	mu   sync.Mutex
	now  *attempt
	open map[net.Conn]struct{}
}

// attempt is one run as the network sees it.
type attempt struct {
	web   *web.World
	naive *web.Naive // in front of the origins; nil: nothing is

	mu   sync.Mutex
	seen []string
}

func (a *attempt) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if what := fmt.Sprintf(format, args...); len(a.seen) < 200 && !slices.Contains(a.seen, what) {
		a.seen = append(a.seen, what)
	}
}

func newWorld() (*world, error) {
	ca, err := web.NewAuthority()
	if err != nil {
		return nil, err
	}
	w := &world{CA: ca, open: map[net.Conn]struct{}{}, now: &attempt{web: &web.World{CA: ca}}}
	hosts := map[string][]netip.Addr{}
	for name, a := range origins() {
		hosts[name] = []netip.Addr{a}
	}
	if w.dns, err = ListenDNS(resolver+":53", hosts); err != nil {
		return nil, err
	}
	w.resolver = net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, resolver+":53")
	}}
	var errs []error
	for _, a := range canaries {
		for _, p := range canaryTCP {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p)), w.canary))
		}
		for _, p := range canaryUDP {
			errs = append(errs, w.listenUDP(netip.AddrPortFrom(a, uint16(p))))
		}
	}
	for _, a := range strays {
		for _, p := range []int{80, port} {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p)), w.canary))
		}
	}
	errs = append(errs, w.listen(netip.AddrPortFrom(anyone, 80), w.origin("", 80)))
	for _, o := range web.Origins() {
		a := netip.AddrFrom4(hosts[o.Name][0].As4())
		for _, p := range o.Ports {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p.Number)), w.origin(o.Name, p.Number)))
		}
		for _, p := range []int{22, port} {
			errs = append(errs, w.listen(netip.AddrPortFrom(a, uint16(p)), w.canary))
		}
	}
	errs = append(errs, w.listen(netip.MustParseAddrPort(gateway+":3128"), func(c net.Conn, a *attempt) {
		if a.naive != nil {
			a.naive.ServeExplicit(c)
		}
	}))
	w.listens, err = listening()
	return w, errors.Join(append(errs, err)...)
}

// origin serves a name, behind the naive gateway where the run asks for it.
func (w *world) origin(name string, number int) func(net.Conn, *attempt) {
	return func(c net.Conn, a *attempt) {
		if a.naive != nil && name != web.Tally {
			a.naive.Serve(name, number, c)
			return
		}
		a.web.Serve(name, number, c)
	}
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
func (w *world) listen(at netip.AddrPort, serve func(net.Conn, *attempt)) error {
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
			a := w.enter(c)
			w.tasks.Go(func() {
				defer w.leave(c)
				serve(c, a)
			})
		}
	})
	return nil
}

// ours tells a datagram of settle: it comes from an address that nobody else
// uses.
func ours(from net.Addr) bool {
	text := from.String()
	return strings.HasPrefix(text, knocker4+":") || strings.HasPrefix(text, "["+knocker6+"]:")
}

// enter takes a connection in as one of the run that is under way.
func (w *world) enter(c net.Conn) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = struct{}{}
	return w.now
}

func (w *world) leave(c net.Conn) {
	c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
}

// canary takes what comes and says who it is, so that a client knows that it got there.
func (w *world) canary(c net.Conn, a *attempt) {
	a.note("tcp to %v", c.LocalAddr())
	_, _ = io.WriteString(c, "canary\n")
	_, _ = io.Copy(io.Discard, c)
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
			if ours(from) {
				_, _ = c.WriteTo(b[:n], from)
				continue
			}
			w.mu.Lock()
			a := w.now
			w.mu.Unlock()
			a.note("udp to %v", at)
			_, _ = c.WriteTo([]byte("canary\n"), from)
		}
	})
	return nil
}

// begin makes everything that arrives from now on a part of one run.
func (w *world) begin(t tokens, twin bool, gate string) {
	w.drop()
	a := &attempt{}
	a.web = &web.World{
		CA: w.CA, Twin: twin,
		Note:    func(s web.Seen) { a.note("%s: %s", s.Origin, s.What) },
		Right:   map[string]string{"api.test": t["credential api"], "llm.test": t["credential llm"]},
		Secrets: []string{t["credential api"], t["placeholder api"], t["credential llm"], t["placeholder llm"]},
		Find: func(raw []byte) []string {
			var out []string
			for _, where := range t.in(raw) {
				if !strings.HasPrefix(where, "credential ") && !strings.HasPrefix(where, "placeholder ") {
					out = append(out, "the token of "+where)
				}
			}
			return out
		},
	}
	if mode, ok := strings.CutPrefix(gate, "naive"); ok && twin {
		a.naive = &web.Naive{
			World: a.web, Mode: strings.TrimSpace(mode), Credentials: a.web.Right,
			Placeholders: map[string]string{t["placeholder api"]: t["credential api"], t["placeholder llm"]: t["credential llm"]},
			Dial: func(_ context.Context, name string, port int) (net.Conn, error) {
				near, far := net.Pipe()
				w.mu.Lock()
				defer w.mu.Unlock()
				w.open[far] = struct{}{}
				w.tasks.Go(func() {
					defer w.leave(far)
					a.web.Serve(name, port, far)
				})
				return near, nil
			},
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = a
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

// settle waits until everything that arrived so far was taken in.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, c := range w.udp {
		if err := knock(ctx, c.LocalAddr().String()); err != nil {
			return err
		}
	}
	if _, err := w.resolver.LookupHost(ctx, "settle.test."); err != nil && ctx.Err() != nil {
		return fmt.Errorf("settle: %w", err)
	}
	// Who is still connected has a moment to say what it has to say.
	const patience = 2 * time.Second
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		waiting, err := w.arrived()
		if err != nil {
			return err
		}
		w.mu.Lock()
		n := len(w.open)
		w.mu.Unlock()
		switch {
		case waiting+n == 0:
			return nil
		case time.Since(began) > 10*patience:
			return errors.New("settle: connections that nobody accepts")
		case time.Since(began) > patience:
			w.drop()
		}
	}
}

// arrived counts connections to the world's servers that wait to be accepted, or
// that were and are not closed.
func (w *world) arrived() (int, error) {
	n := 0
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return 0, fmt.Errorf("settle: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || !w.listens[f[1]] {
				continue
			}
			const established, closeWait, listening = "01", "08", "0A"
			_, queue, _ := strings.Cut(f[4], ":")
			switch state := f[3]; {
			case state == established, state == closeWait:
				n++
			case state == listening && strings.Trim(queue, "0") != "", state != listening && f[9] != "0":
				n++
			}
		}
	}
	return n, nil
}

// listening gives the addresses of the servers as /proc/net/tcp spells them.
func listening() (map[string]bool, error) {
	out := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" {
				out[f[1]] = true
			}
		}
	}
	return out, nil
}

// knock comes back once a server of UDP has taken in all that came before.
func knock(ctx context.Context, to string) error {
	from := knocker4
	if strings.HasPrefix(to, "[") {
		from = knocker6
	}
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(ctx, "udp", to)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	defer c.Close()
	limit, _ := ctx.Deadline()
	_ = c.SetDeadline(limit)
	if _, err = c.Write([]byte("settle")); err == nil {
		_, err = c.Read(make([]byte, 16))
	}
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}

// touched says which canaries of the network were touched since begin.
func (w *world) touched(t tokens) []string {
	w.mu.Lock()
	a := w.now
	w.mu.Unlock()
	a.mu.Lock()
	out := slices.Clone(a.seen)
	a.mu.Unlock()
	for _, q := range w.dns.Log() {
		if q.Name == "evil.test" || strings.HasSuffix(q.Name, ".evil.test") {
			out = append(out, "DNS was asked for "+q.Name)
		}
		text := strings.ToLower(string(q.Raw)) + " " + strings.ReplaceAll(q.Name, ".", "")
		for _, where := range t.in([]byte(text)) {
			out = append(out, "DNS was asked with the token of "+where)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// Names have addresses of their own, denied ones too, and nobody outside hears
// of them (corpus C02).
func TestNames(t *testing.T) {
	w := newWorld(t, testNetwork())
	a, b := w.lookup("api.example.org"), w.lookup("base32data.evil.example")
	if a == b || !synthetic.Contains(a) || !synthetic.Contains(b) {
		t.Errorf("addresses: got %v and %v, want two synthetic ones", a, b)
	}
	if again := w.lookup("API.example.org"); again != a {
		t.Errorf("again: got %v, want %v", again, a)
	}
	m := w.query("api.example.org", dnsmessage.TypeA)
	if ttl := m.Answers[0].Header.TTL; ttl != nameTTL {
		t.Errorf("TTL: got %d, want %d", ttl, nameTTL)
	}
	octets := a.As4()
	reverse := fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa", octets[3], octets[2], octets[1], octets[0])
	p := w.query(reverse, dnsmessage.TypePTR)
	if len(p.Answers) != 1 || p.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String() != "api.example.org." {
		t.Errorf("PTR: got %v, want api.example.org.", p.Answers)
	}
	if got := w.lookup("x.localhost"); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("localhost: got %v, want 127.0.0.1", got)
	}
	if lookups, dials := w.seen(); len(lookups)+len(dials) > 0 {
		t.Errorf("outside: got %v %v, want nothing", lookups, dials)
	}
	w.wantEvent("first question", func(e audit.Event) bool {
		return e.Kind == audit.KindName && e.Host == "base32data.evil.example"
	})
}

func TestOtherAnswers(t *testing.T) {
	w := newWorld(t, testNetwork())
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	for name, c := range map[string]struct {
		host  string
		typ   dnsmessage.Type
		rcode dnsmessage.RCode
		n     int
	}{
		"control":      {"a.example", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		"AAAA":         {"a.example", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		"HTTPS":        {"a.example", dnsmessage.TypeHTTPS, dnsmessage.RCodeSuccess, 0},
		"SVCB":         {"a.example", dnsmessage.TypeSVCB, dnsmessage.RCodeSuccess, 0},
		"TXT":          {"a.example", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
		"MX":           {"a.example", dnsmessage.TypeMX, dnsmessage.RCodeSuccess, 0},
		"SRV":          {"_http._tcp.deb.example", dnsmessage.TypeSRV, dnsmessage.RCodeSuccess, 0},
		"AXFR":         {"a.example", dnsmessage.TypeAXFR, dnsmessage.RCodeRefused, 0},
		"underscore A": {"_x.example", dnsmessage.TypeA, dnsmessage.RCodeRefused, 0},
		"literal A":    {"10.0.0.1", dnsmessage.TypeA, dnsmessage.RCodeRefused, 0},
		"odd literal":  {"0x7f.1", dnsmessage.TypeA, dnsmessage.RCodeRefused, 0},
		"NUL":          {"a\x00b.example", dnsmessage.TypeA, dnsmessage.RCodeRefused, 0},
		"long name":    {long, dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		"unknown PTR":  {"1.255.19.198.in-addr.arpa", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
		"foreign PTR":  {"8.8.8.8.in-addr.arpa", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.query(c.host, c.typ)
			if m.RCode != c.rcode || len(m.Answers) != c.n {
				t.Errorf("got %v with %d answers, want %v with %d", m.RCode, len(m.Answers), c.rcode, c.n)
			}
		})
	}
}

func TestMalformedQueries(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.srv.start()
	q := dnsmessage.Question{Name: dnsmessage.MustNewName("a.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	pack := func(m dnsmessage.Message) []byte {
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	chaos := q
	chaos.Class = dnsmessage.ClassCHAOS
	answer := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{}}
	for name, c := range map[string]struct {
		query []byte
		want  dnsmessage.RCode
		none  bool
	}{
		"control":          {query: pack(dnsmessage.Message{Questions: []dnsmessage.Question{q}}), want: dnsmessage.RCodeSuccess},
		"empty":            {query: nil, none: true},
		"short":            {query: []byte{1, 2, 3}, none: true},
		"an answer":        {query: pack(dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{q}}), none: true},
		"no question":      {query: pack(dnsmessage.Message{}), want: dnsmessage.RCodeFormatError},
		"two questions":    {query: pack(dnsmessage.Message{Questions: []dnsmessage.Question{q, q}}), want: dnsmessage.RCodeFormatError},
		"carries answers":  {query: pack(dnsmessage.Message{Questions: []dnsmessage.Question{q}, Answers: []dnsmessage.Resource{answer}}), want: dnsmessage.RCodeFormatError},
		"update":           {query: pack(dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}, Questions: []dnsmessage.Question{q}}), want: dnsmessage.RCodeNotImplemented},
		"chaos":            {query: pack(dnsmessage.Message{Questions: []dnsmessage.Question{chaos}}), want: dnsmessage.RCodeRefused},
		"pointer loop":     {query: append(pack(dnsmessage.Message{Questions: []dnsmessage.Question{q}})[:12], 0xc0, 12, 0, 1, 0, 1), want: dnsmessage.RCodeFormatError},
		"cut in the label": {query: pack(dnsmessage.Message{Questions: []dnsmessage.Question{q}})[:15], want: dnsmessage.RCodeFormatError},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := w.srv.answerDNS(c.query)
			if c.none {
				if err == nil {
					t.Errorf("got answer %x, want none", b)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var m dnsmessage.Message
			if err := m.Unpack(b); err != nil || m.RCode != c.want {
				t.Errorf("got %v %v, want %v", m.RCode, err, c.want)
			}
		})
	}
}

// A flood of names is bounded and leaves room for the names that rules allow.
func TestNameFlood(t *testing.T) {
	w := newWorld(t, testNetwork())
	for i := range maxDeniedNames {
		if m := w.query(fmt.Sprintf("n%d.evil.example", i), dnsmessage.TypeA); len(m.Answers) != 1 {
			t.Fatalf("name %d: got no answer", i)
		}
	}
	if m := w.query("more.evil.example", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("one more: got %v, want %v", m.RCode, dnsmessage.RCodeRefused)
	}
	if a := w.lookup("api.example.org"); !synthetic.Contains(a) {
		t.Errorf("allowed name: got %v, want an address", a)
	}
}

func TestSyntheticAddressesStayInRange(t *testing.T) {
	for _, i := range []int{0, maxNames - 1} {
		if a := syntheticAt(i); !synthetic.Contains(a) {
			t.Errorf("address %d: got %v, want it in %v", i, a, synthetic)
		}
	}
}

// Answers come from the address that was asked, whichever it was, over UDP v4
// and v6: a resolver drops others. The client is connected, so that the kernel
// drops them too.
func TestServeDNS(t *testing.T) {
	for name, c := range map[string]struct{ network, listen, ask string }{
		"v4":         {"udp4", "0.0.0.0:0", "127.9.9.9"},
		"v6":         {"udp6", "[::]:0", "::1"},
		"dual stack": {"udp", "[::]:0", "127.8.8.8"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			addr, err := net.ResolveUDPAddr(c.network, c.listen)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.ListenUDP(c.network, addr)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- w.srv.ServeDNS(context.Background(), conn) }()
			to := net.JoinHostPort(c.ask, fmt.Sprint(conn.LocalAddr().(*net.UDPAddr).Port))
			r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "udp", to)
			}}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			got, err := r.LookupNetIP(ctx, "ip", "api.example.org.")
			if err != nil || len(got) != 1 || !synthetic.Contains(got[0].Unmap()) {
				t.Errorf("got %v %v, want one synthetic address", got, err)
			}
			_ = w.srv.Close()
			if err := <-done; err != nil {
				t.Errorf("ServeDNS: got %v, want no error", err)
			}
		})
	}
}

// Port 53 over TCP is the resolver too, whatever server was meant (corpus C01).
func TestDNSOverTCP(t *testing.T) {
	w := newWorld(t, testNetwork())
	c := w.open("8.8.8.8", 53, "")
	defer func() { _ = c.Close() }()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 9}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName("api.example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
	}}}
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(m.Answers) != 1 {
			t.Errorf("got %v %v, want one answer", m, err)
		}
	}
	if _, dials := w.seen(); len(dials) > 0 {
		t.Errorf("dials: got %v, want none", dials)
	}
}

package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver is a DNS server that answers as it is told: answer gives the packets
// for a query, in order.
func resolver(t *testing.T, answer func(q dnsmessage.Message) []dnsmessage.Message) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(b[:n]) != nil || len(q.Questions) != 1 {
				continue
			}
			for _, m := range answer(q) {
				if out, err := m.Pack(); err == nil {
					_, _ = pc.WriteTo(out, from)
				}
			}
		}
	})
	t.Cleanup(func() {
		_ = pc.Close()
		wg.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// reply answers a query with addresses, behind a chain of aliases.
func reply(q dnsmessage.Message, addr string, aliases ...string) dnsmessage.Message {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionDesired: true, RecursionAvailable: true}, Questions: q.Questions}
	name := q.Questions[0].Name
	add := func(body dnsmessage.ResourceBody, typ dnsmessage.Type) {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Type: typ, Class: dnsmessage.ClassINET, TTL: 0}, Body: body,
		})
	}
	for _, a := range aliases {
		next := dnsmessage.MustNewName(a + ".")
		add(&dnsmessage.CNAMEResource{CNAME: next}, dnsmessage.TypeCNAME)
		name = next
	}
	if a := netip.MustParseAddr(addr); a.Is4() && q.Questions[0].Type == dnsmessage.TypeA {
		add(&dnsmessage.AResource{A: a.As4()}, dnsmessage.TypeA)
	} else if !a.Is4() && q.Questions[0].Type == dnsmessage.TypeAAAA {
		add(&dnsmessage.AAAAResource{AAAA: a.As16()}, dnsmessage.TypeAAAA)
	}
	return m
}

// What a resolver says wrongly is not taken, and wherever it points is judged
// (corpus C07, C24).
func TestResolverAnswers(t *testing.T) {
	const good, bad = "93.184.215.77", "93.184.215.66"
	var chain []string
	for i := range 20 {
		chain = append(chain, fmt.Sprintf("hop%d.example.net", i))
	}
	cases := []struct {
		name   string
		answer func(q dnsmessage.Message) []dnsmessage.Message
		want   string
		dials  []string
	}{
		{"control", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, good)}
		}, "200", []string{good + ":80"}},
		{"wrong id first", func(q dnsmessage.Message) []dnsmessage.Message {
			wrong := reply(q, bad)
			wrong.ID++
			return []dnsmessage.Message{wrong, reply(q, good)}
		}, "200", []string{good + ":80"}},
		{"wrong question first", func(q dnsmessage.Message) []dnsmessage.Message {
			other := q
			other.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("evil.example.net."), Type: q.Questions[0].Type, Class: dnsmessage.ClassINET}}
			return []dnsmessage.Message{reply(other, bad), reply(q, good)}
		}, "200", []string{good + ":80"}},
		{"a query in place of an answer", func(q dnsmessage.Message) []dnsmessage.Message {
			wrong := reply(q, bad)
			wrong.Response = false
			return []dnsmessage.Message{wrong, reply(q, good)}
		}, "200", []string{good + ":80"}},
		{"alias to an internal name", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, "10.0.0.5", "db.corp.internal")}
		}, "403", nil},
		{"alias to metadata", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, "169.254.169.254", "metadata.google.internal")}
		}, "403", nil},
		{"twenty aliases", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, good, chain...)}
		}, "200", []string{good + ":80"}},
		{"twenty aliases to an internal address", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, "192.168.1.1", chain...)}
		}, "403", nil},
		{"no address", func(q dnsmessage.Message) []dnsmessage.Message {
			m := reply(q, good)
			m.Answers = nil
			return []dnsmessage.Message{m}
		}, "502", nil},
		{"no such name", func(q dnsmessage.Message) []dnsmessage.Message {
			m := reply(q, good)
			m.Answers, m.RCode = nil, dnsmessage.RCodeNameError
			return []dnsmessage.Message{m}
		}, "502", nil},
		{"IPv6 alone, loopback", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, "::1")}
		}, "403", nil},
		{"IPv6 alone, no way there", func(q dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{reply(q, "2606:2800:21f::1")}
		}, "502", []string{"[2606:2800:21f::1]:80"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr(good), netip.MustParseAddr(bad)}
			w.serve("api.example.org", 80, &echo{})
			r := resolver(t, c.answer)
			w.srv.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) { return lookupWith(ctx, r, host) }
			got := w.raw("api.example.org", 80, "", getOf("api.example.org"))
			if !strings.Contains(statusLine(got), c.want) {
				t.Errorf("got %q, want %s", got, c.want)
			}
			if _, dials := w.seen(); !slices.Equal(dials, c.dials) {
				t.Errorf("dials: got %v, want %v", dials, c.dials)
			}
		})
	}
}

// An answer that holds for no time at all: each connection asks again and is
// judged again (corpus C24).
func TestResolverChangesItsMind(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.names["api.example.org"] = []netip.Addr{netip.MustParseAddr("93.184.215.77")}
	w.serve("api.example.org", 80, &echo{})
	var mu sync.Mutex
	now := "93.184.215.77"
	r := resolver(t, func(q dnsmessage.Message) []dnsmessage.Message {
		mu.Lock()
		defer mu.Unlock()
		return []dnsmessage.Message{reply(q, now)}
	})
	w.srv.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) { return lookupWith(ctx, r, host) }
	if got := w.raw("api.example.org", 80, "", getOf("api.example.org")); !strings.Contains(statusLine(got), "200") {
		t.Errorf("first: got %q, want 200", got)
	}
	mu.Lock()
	now = "127.0.0.1"
	mu.Unlock()
	if got := w.raw("other.example.org", 80, "", getOf("other.example.org")); !strings.Contains(statusLine(got), "403") {
		t.Errorf("second: got %q, want 403", got)
	}
	if _, dials := w.seen(); len(dials) != 1 {
		t.Errorf("dials: got %v, want one", dials)
	}
}

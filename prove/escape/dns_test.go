package escape

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The name server says what its names ask it to say.
func TestDNS(t *testing.T) {
	d, err := ListenDNS("127.0.0.1:0", map[string][]netip.Addr{"allowed.test": {netip.MustParseAddr("203.0.113.10")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, d.Addr())
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, c := range []struct {
		name string
		want []string
	}{
		{"allowed.test", []string{"203.0.113.10"}},
		{"a-203-0-113-10-10-77-0-1.dns.test", []string{"203.0.113.10", "10.77.0.1"}},
		{"a-fd000ec2000000000000000000000254.dns.test", []string{"fd00:ec2::254"}},
		{"turn-203-0-113-10-127-0-0-1.x1.dns.test", []string{"203.0.113.10"}},
		{"turn-203-0-113-10-127-0-0-1.x1.dns.test", []string{"127.0.0.1"}},
		{"turn-203-0-113-10-127-0-0-1.x1.dns.test", []string{"127.0.0.1"}},
		{"a-10-77-0-1.dns.test.via.dns.test", []string{"10.77.0.1"}},
		{"hops-9.dns.test", []string{"203.0.113.10"}},
		{"badid.a-203-0-113-10.dns.test", []string{"203.0.113.10"}},
		{"badquestion.a-203-0-113-10.dns.test", []string{"203.0.113.10"}},
		{"query.a-203-0-113-10.dns.test", []string{"203.0.113.10"}},
		{"additional.a-203-0-113-10.dns.test", []string{"203.0.113.10"}},
		{"cut.a-203-0-113-10.dns.test", []string{"203.0.113.10"}},
		{"empty.dns.test", nil},
		{"none.dns.test", nil},
		{"servfail.dns.test", nil},
		{"evil.test", nil},
	} {
		addrs, err := r.LookupNetIP(ctx, "ip", c.name+".")
		var got []string
		for _, a := range addrs {
			got = append(got, a.Unmap().String())
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	if !slices.ContainsFunc(d.Log(), func(q Query) bool { return q.Name == "evil.test" && q.Type == "A" }) {
		t.Error("got no query for evil.test on record")
	}
}

package sandbox

import (
	"net"
	"net/netip"
	"testing"
)

func TestRoomForConnections(t *testing.T) {
	for files, want := range map[uint64]int{0: 1, 20: 1, 80: 6, 1024: 149, 1 << 20: 174741, 1 << 40: 1 << 20, ^uint64(0): 1 << 20} {
		if got := roomFor(files); got != want {
			t.Errorf("%d descriptors: got %d connections, want %d", files, got, want)
		}
	}
}

func TestMayConnect(t *testing.T) {
	f := Forward{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}}
	for from, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "11.0.0.1": false, "2001:db8::1": true, "2001:db9::1": false, "::1": false,
	} {
		if got := f.mayConnect(&net.TCPAddr{IP: net.ParseIP(from), Port: 1}); got != want {
			t.Errorf("%s: got %v, want %v", from, got, want)
		}
	}
	if f.mayConnect(&net.UnixAddr{}) {
		t.Error("a client without an address is in a list of addresses")
	}
	if !(Forward{}).mayConnect(&net.UnixAddr{}) {
		t.Error("without a list somebody is refused")
	}
}

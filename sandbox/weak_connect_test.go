package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMediatorAllows(t *testing.T) {
	address := func(family uint16, port uint16, rest ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, family)
		return append(binary.BigEndian.AppendUint16(b, port), rest...)
	}
	pad := make([]byte, 8)
	v4 := func(port uint16, ip ...byte) []byte { return append(address(unix.AF_INET, port, ip...), pad...) }
	v6 := func(port uint16, ip ...byte) []byte {
		return append(append(address(unix.AF_INET6, port, 0, 0, 0, 0), ip...), 0, 0, 0, 0)
	}
	mapped := func(ip ...byte) []byte { return append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, ip...) }
	loopback6 := append(make([]byte, 15), 1)
	cases := []struct {
		name    string
		domain  int
		address []byte
		want    bool
	}{
		{"the proxy", unix.AF_INET, v4(4000, 127, 0, 0, 1), true},
		{"another port", unix.AF_INET, v4(4001, 127, 0, 0, 1), false},
		{"another loopback address", unix.AF_INET, v4(4000, 127, 0, 0, 2), false},
		{"another host", unix.AF_INET, v4(4000, 93, 184, 215, 14), false},
		{"any address", unix.AF_INET, v4(4000, 0, 0, 0, 0), false},
		{"cut off", unix.AF_INET, v4(4000, 127, 0, 0, 1)[:8], false},
		{"the proxy, mapped", unix.AF_INET6, v6(4000, mapped(127, 0, 0, 1)...), true},
		{"another host, mapped", unix.AF_INET6, v6(4000, mapped(93, 184, 215, 14)...), false},
		{"loopback of IPv6", unix.AF_INET6, v6(4000, loopback6...), false},
		{"a v4 address on a v6 socket", unix.AF_INET6, v4(4000, 127, 0, 0, 1), false},
		{"no family", unix.AF_INET, address(unix.AF_UNSPEC, 0), false},
		{"a local socket", unix.AF_UNIX, address(unix.AF_UNIX, 0), false},
		{"route queries", unix.AF_NETLINK, address(unix.AF_NETLINK, 0), true},
		{"an address for another socket", unix.AF_UNIX, v4(4000, 127, 0, 0, 1), false},
	}
	m := &mediator{port: 4000}
	for _, c := range cases {
		if got := m.allows(c.domain, c.address); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if (&mediator{}).allows(unix.AF_INET, v4(4000, 127, 0, 0, 1)) {
		t.Error("zero value: got allowed, want refused")
	}
}

func TestParseGroup(t *testing.T) {
	if got, err := parseGroup([]byte("Name:\tTgid: 9\nTgid:\t12\nPid:\t13\n")); err != nil || got != 12 {
		t.Errorf("got %d, %v, want 12", got, err)
	}
	if _, err := parseGroup([]byte("Name:\tx\n")); err == nil {
		t.Error("got no error without a Tgid")
	}
}

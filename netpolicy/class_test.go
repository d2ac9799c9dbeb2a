package netpolicy

import (
	"net/netip"
	"testing"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		addr string
		want Class
	}{
		{"8.8.8.8", ClassGlobal},
		{"2606:4700:4700::1111", ClassGlobal},
		{"192.31.196.1", ClassGlobal},

		{"127.0.0.1", ClassLoopback},
		{"127.255.255.255", ClassLoopback},
		{"126.255.255.255", ClassGlobal},
		{"128.0.0.0", ClassGlobal},
		{"::1", ClassLoopback},
		{"0.0.0.0", ClassUnspecified},
		{"0.255.255.255", ClassUnspecified},
		{"::", ClassUnspecified},

		{"10.0.0.0", ClassPrivate},
		{"9.255.255.255", ClassGlobal},
		{"10.255.255.255", ClassPrivate},
		{"11.0.0.0", ClassGlobal},
		{"172.15.255.255", ClassGlobal},
		{"172.16.0.0", ClassPrivate},
		{"172.31.255.255", ClassPrivate},
		{"172.32.0.0", ClassGlobal},
		{"192.167.255.255", ClassGlobal},
		{"192.168.0.0", ClassPrivate},
		{"192.169.0.0", ClassGlobal},
		{"fc00::1", ClassPrivate},
		{"fdff::1", ClassPrivate},
		{"fec0::1", ClassPrivate},

		{"100.63.255.255", ClassGlobal},
		{"100.64.0.0", ClassCGNAT},
		{"100.127.255.255", ClassCGNAT},
		{"100.128.0.0", ClassGlobal},

		{"169.254.0.1", ClassLinkLocal},
		{"169.253.255.255", ClassGlobal},
		{"169.255.0.0", ClassGlobal},
		{"fe80::1", ClassLinkLocal},
		{"febf::1", ClassLinkLocal},

		{"169.254.169.254", ClassMetadata},
		{"169.254.170.2", ClassMetadata},
		{"169.254.170.23", ClassMetadata},
		{"100.100.100.200", ClassMetadata},
		{"168.63.129.16", ClassMetadata},
		{"192.0.0.192", ClassMetadata},
		{"fd00:ec2::254", ClassMetadata},
		{"fd20:ce::254", ClassMetadata},

		{"224.0.0.1", ClassMulticast},
		{"239.255.255.255", ClassMulticast},
		{"ff02::1", ClassMulticast},
		{"ff0e::1", ClassMulticast},
		{"240.0.0.1", ClassReserved},
		{"255.255.255.255", ClassReserved},
		{"192.0.0.1", ClassReserved},
		{"192.88.99.1", ClassReserved},
		{"192.0.2.1", ClassDocumentation},
		{"198.51.100.1", ClassDocumentation},
		{"203.0.113.1", ClassDocumentation},
		{"2001:db8::1", ClassDocumentation},
		{"3fff::1", ClassDocumentation},
		{"3fff:1000::1", ClassGlobal},
		{"198.17.255.255", ClassGlobal},
		{"198.18.0.0", ClassBenchmarking},
		{"198.19.255.255", ClassBenchmarking},
		{"198.20.0.0", ClassGlobal},
		{"2001:2::1", ClassBenchmarking},
		{"2001:10::1", ClassReserved},
		{"100::1", ClassReserved},
		{"5f00::1", ClassReserved},
		{"4000::1", ClassReserved},

		{"::ffff:8.8.8.8", ClassGlobal},
		{"::ffff:127.0.0.1", ClassLoopback},
		{"::ffff:169.254.169.254", ClassMetadata},
		{"::ffff:0.0.0.0", ClassUnspecified},
		{"::127.0.0.1", ClassLoopback},
		{"::169.254.169.254", ClassMetadata},
		{"::8.8.8.8", ClassTransition},
		{"64:ff9b::8.8.8.8", ClassGlobal},
		{"64:ff9b::7f00:1", ClassLoopback},
		{"64:ff9b::a9fe:a9fe", ClassMetadata},
		{"64:ff9b::10.0.0.5", ClassPrivate},
		{"64:ff9b:1::8.8.8.8", ClassUnspecified}, // read as a /48: 0.0.8.8
		{"64:ff9b:1::169.254.169.254", ClassMetadata},
		{"64:ff9b:1:a9fe:a9:fe00::", ClassMetadata},
		{"64:ff9b:1:808:8:800:808:808", ClassTransition},
		{"64:ff9b:0:1::8.8.8.8", ClassReserved},
		{"2002:7f00:1::", ClassLoopback},
		{"2002:a9fe:a9fe::1", ClassMetadata},
		{"2002:808:808::1", ClassTransition},
		{"2001:0:7f00:1:0:0:f7f7:f7f7", ClassLoopback},
		{"2001:0:808:808:0:0:5601:5601", ClassMetadata},
		{"2001:0:808:808:0:0:f7f7:f7f7", ClassTransition},

		{"fe80::1%eth0", ClassInvalid},
		{"2606:4700::1%1", ClassInvalid},
		{"::ffff:8.8.8.8%1", ClassInvalid},
	}
	for _, tt := range tests {
		if got := Classify(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Classify(%s): got %v, want %v", tt.addr, got, tt.want)
		}
	}
	if got := Classify(netip.Addr{}); got != ClassInvalid {
		t.Errorf("Classify of the zero Addr: got %v, want %v", got, ClassInvalid)
	}
}

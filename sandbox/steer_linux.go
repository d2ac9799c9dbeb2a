package sandbox

import (
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// steerTCP loads one rule a family into the sandbox's own network namespace:
//
//	ip daddr != 127.0.0.0/8 tcp flags & (fin|syn|rst|ack) == syn tproxy to SELF:PORT accept
//
// Only the first segment of a connection is steered; later ones find their
// established socket by themselves, since every address is local (AnyIP). The
// agent's own servers on loopback stay reachable. A transparent socket needs
// CAP_NET_ADMIN, so nothing of the agent's can take the traffic.
func steerTCP(v6 bool) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	// Asked for one thing, a kernel without nf_tables says so. To the rules below
	// it gives one answer for all of them, and the library would wait for the
	// others for ever.
	if _, err := c.ListTablesOfFamily(nftables.TableFamilyIPv4); err != nil {
		return fmt.Errorf("ask nf_tables: %w", err)
	}
	steerFamily(c, nftables.TableFamilyIPv4, unix.NFPROTO_IPV4, 16, []byte{255, 0, 0, 0}, []byte{127, 0, 0, 0}, selfV4)
	if v6 {
		mask := net.CIDRMask(128, 128)
		steerFamily(c, nftables.TableFamilyIPv6, unix.NFPROTO_IPV6, 24, mask, net.IPv6loopback, selfV6)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("load nf_tables rules: %w", err)
	}
	return nil
}

func steerFamily(c *nftables.Conn, tf nftables.TableFamily, family byte, daddr uint32, mask, loopback, self []byte) {
	t := c.AddTable(&nftables.Table{Family: tf, Name: "hermes-wrap"})
	ch := c.AddChain(&nftables.Chain{
		Name: "capture", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	n := uint32(len(mask))
	c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: daddr, Len: n},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: n, Mask: mask, Xor: make([]byte, n)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: loopback},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		// Byte 13 of the TCP header holds the flags.
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x17}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0x02}},
		&expr.Immediate{Register: 1, Data: self},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(capturePort)},
		&expr.TProxy{Family: family, TableFamily: byte(tf), RegAddr: 1, RegPort: 2},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
}

// TproxyLikely tells without privilege whether the capture of every port can
// work: the launch tries it, and says so when it cannot.
func TproxyLikely() bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

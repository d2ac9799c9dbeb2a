package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the sandbox's own network namespace. They lie in the
// benchmarking range (RFC 2544), whose remainder the resolver hands out as
// synthetic addresses.
var (
	selfV4     = net.IPv4(198, 18, 0, 1).To4()
	selfV6     = net.ParseIP("fd00:68:7700::1")
	resolverV4 = "198.18.0.1"
)

// capturePort is below 1024, so that nothing of the agent's can sit on it.
const capturePort = 1

// doors are the sockets that lead out of the sandbox, in the order in which
// they are handed to the proxy.
type doors struct {
	listeners []*os.File
	resolvers []*os.File
	lack      string // why not every TCP port is captured; empty when it is
}

// openDoors makes the network of the namespace it runs in: only lo, every
// destination local, all TCP caught by one listener a family. It needs
// CAP_NET_ADMIN in the namespace's owner and nothing of the host.
func openDoors(p Plan) (doors, error) {
	v6, err := raiseLoopback()
	if err != nil {
		return doors{}, err
	}
	var d doors
	if p.CaptureAll {
		err = d.captureEvery(v6)
	}
	if err != nil && p.MayCaptureLess {
		d.close()
		d, err = doors{lack: err.Error()}, nil
	}
	if err == nil && (!p.CaptureAll || d.lack != "") {
		err = d.capturePorts(p.Ports, v6)
	}
	if err == nil {
		err = d.openResolvers(v6)
	}
	if err != nil {
		d.close()
		return doors{}, err
	}
	return d, nil
}

// raiseLoopback makes every unicast address of both families local (AnyIP).
// src must be set, or a v4 client would use the destination as its source.
func raiseLoopback() (v6 bool, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return false, fmt.Errorf("find lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return false, fmt.Errorf("raise lo: %w", err)
	}
	if err := localEverything(h, lo, selfV4, 32, "0.0.0.0/0"); err != nil {
		return false, err
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return false, nil
	}
	err = localEverything(h, lo, selfV6, 128, "::/0")
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EAFNOSUPPORT) {
		// net.ipv6.conf.*.disable_ipv6: without an address there is no door
		// and no way out either.
		return false, nil
	}
	return err == nil, err
}

func localEverything(h *netlink.Handle, lo netlink.Link, self net.IP, bits int, everywhere string) error {
	own := &net.IPNet{IP: self, Mask: net.CIDRMask(bits, bits)}
	addr := &netlink.Addr{IPNet: own}
	if bits == 128 {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(lo, addr); err != nil {
		return fmt.Errorf("add address %s: %w", own, err)
	}
	_, dst, err := net.ParseCIDR(everywhere)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: dst, Src: self,
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("make %s local: %w", everywhere, err)
	}
	return nil
}

func (d *doors) captureEvery(v6 bool) error {
	if err := steerTCP(v6); err != nil {
		return err
	}
	l, err := listen(unix.AF_INET, selfV4, capturePort, true)
	if err != nil {
		return err
	}
	d.listeners = append(d.listeners, l)
	if !v6 {
		return nil
	}
	if l, err = listen(unix.AF_INET6, selfV6, capturePort, true); err != nil {
		return err
	}
	d.listeners = append(d.listeners, l)
	return nil
}

// capturePorts is the fall-back without nf_tables: a wildcard listener a port.
// Whatever is not listed is refused by the kernel, as nobody listens.
func (d *doors) capturePorts(ports []uint16, v6 bool) error {
	for _, p := range ports {
		l, err := listen(unix.AF_INET, net.IPv4zero.To4(), int(p), false)
		if err != nil {
			return err
		}
		d.listeners = append(d.listeners, l)
		if !v6 {
			continue
		}
		if l, err = listen(unix.AF_INET6, net.IPv6zero, int(p), false); err != nil {
			return err
		}
		d.listeners = append(d.listeners, l)
	}
	return nil
}

func (d *doors) openResolvers(v6 bool) error {
	s, err := datagram(unix.AF_INET, 53)
	if err != nil {
		return err
	}
	d.resolvers = append(d.resolvers, s)
	if !v6 {
		return nil
	}
	if s, err = datagram(unix.AF_INET6, 53); err != nil {
		return err
	}
	d.resolvers = append(d.resolvers, s)
	return nil
}

func (d *doors) close() {
	for _, f := range append(d.listeners, d.resolvers...) {
		f.Close()
	}
}

func listen(family int, ip net.IP, port int, transparent bool) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("create listener: %w", err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	if err := prepareListener(fd, family, transparent); err != nil {
		f.Close()
		return nil, fmt.Errorf("prepare listener: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(family, ip, port)); err != nil {
		f.Close()
		return nil, fmt.Errorf("bind port %d: %w", port, err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return f, nil
}

func prepareListener(fd, family int, transparent bool) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return err
		}
		if transparent {
			return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
		}
		return nil
	}
	if transparent {
		return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	}
	return nil
}

// datagram opens the wildcard socket that catches queries to any resolver.
// The reply must leave from the address that was asked, hence PKTINFO.
func datagram(family, port int) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("create resolver socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "resolver")
	ip := net.IPv4zero.To4()
	if family == unix.AF_INET6 {
		ip = net.IPv6zero
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(family, ip, port))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open resolver socket: %w", err)
	}
	return f, nil
}

func sockaddr(family int, ip net.IP, port int) unix.Sockaddr {
	if family == unix.AF_INET6 {
		sa := &unix.SockaddrInet6{Port: port}
		copy(sa.Addr[:], ip.To16())
		return sa
	}
	sa := &unix.SockaddrInet4{Port: port}
	copy(sa.Addr[:], ip.To4())
	return sa
}

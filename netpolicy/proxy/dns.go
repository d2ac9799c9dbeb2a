package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// ServeDNS answers queries on a socket until ctx ends or the Server is closed,
// and then closes it. The socket is bound to port 53 of the wildcard address
// where every destination is local, so each answer must come from the address
// that was asked: clients drop others.
func (s *Server) ServeDNS(ctx context.Context, c *net.UDPConn) error {
	stop, err := s.track(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	info, err := newPacketInfo(c)
	if err != nil {
		return err
	}
	buf, oob := make([]byte, 65535), make([]byte, 256)
	var pause backoff
	for {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if s.stopping(ctx) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			pause.wait(ctx)
			continue
		}
		pause.reset()
		s.replyUDP(c, buf[:n], from, info.reply(oob[:oobn]))
	}
}

func (s *Server) replyUDP(c *net.UDPConn, query []byte, to netip.AddrPort, oob []byte) {
	defer s.recovered("dns")
	s.metrics.queries.Add(1)
	answer, err := s.answerDNS(query)
	if err != nil {
		return
	}
	_, _, err = c.WriteMsgUDPAddrPort(answer, oob, to)
	_ = err // the client asks again; there is nobody to tell
}

// serveDNSOverTCP answers queries on a captured connection to port 53.
func (s *Server) serveDNSOverTCP(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for range s.limits.DNSQueries {
		if c.SetDeadline(time.Now().Add(s.limits.Head)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(in, query); err != nil {
			return
		}
		s.metrics.queries.Add(1)
		answer, err := s.answerDNS(query)
		if err != nil {
			s.record(audit.Event{Kind: audit.KindName, Verdict: audit.Deny, Protocol: "dns", Reason: "malformed query"})
			return
		}
		out := binary.BigEndian.AppendUint16(make([]byte, 0, len(answer)+2), uint16(len(answer)))
		if _, err := c.Write(append(out, answer...)); err != nil {
			return
		}
	}
}

// packetInfo reads and writes the control message that holds the address a
// datagram was sent to.
type packetInfo struct{ v6 bool }

func newPacketInfo(c *net.UDPConn) (packetInfo, error) {
	local, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return packetInfo{}, errors.New("serve DNS: not a UDP socket")
	}
	if local.IP.To4() != nil {
		return packetInfo{}, ipv4.NewPacketConn(c).SetControlMessage(ipv4.FlagDst, true)
	}
	return packetInfo{v6: true}, ipv6.NewPacketConn(c).SetControlMessage(ipv6.FlagDst, true)
}

// reply turns the control message of a query into that of its answer.
func (p packetInfo) reply(oob []byte) []byte {
	if p.v6 {
		var m ipv6.ControlMessage
		if m.Parse(oob) != nil || m.Dst == nil {
			return nil
		}
		if m.Dst.To4() != nil { // a dual-stack socket: the kernel wants IP_PKTINFO
			return (&ipv4.ControlMessage{Src: m.Dst}).Marshal()
		}
		return (&ipv6.ControlMessage{Src: m.Dst}).Marshal()
	}
	var m ipv4.ControlMessage
	if m.Parse(oob) != nil || m.Dst == nil {
		return nil
	}
	return (&ipv4.ControlMessage{Src: m.Dst}).Marshal()
}

package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// RefuseTCP resets every connection at once, until the listener is closed: what
// stands at a door while nobody judges.
func RefuseTCP(l net.Listener) {
	var pause backoff
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			pause.wait(context.Background())
		default:
			pause.reset()
			reset(c)
		}
	}
}

// RefuseDNS answers every query with SERVFAIL, until the socket is closed: a
// client then asks again, and does not wait.
func RefuseDNS(c *net.UDPConn) error {
	info, err := newPacketInfo(c)
	if err != nil {
		return err
	}
	buf, oob := make([]byte, 4<<10), make([]byte, 256)
	var pause backoff
	for {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			pause.wait(context.Background())
		default:
			pause.reset()
			failQuery(c, buf[:n], from, info.reply(oob[:oobn]))
		}
	}
}

func failQuery(c *net.UDPConn, query []byte, to netip.AddrPort, oob []byte) {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return
	}
	reply := dnsReply{header: dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RCode: dnsmessage.RCodeServerFailure,
		RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}}
	if q, edns, err := readQuestion(&p); err == nil {
		reply.question, reply.edns = &q, edns
	}
	answer, err := reply.pack()
	if err != nil {
		return
	}
	_, _, err = c.WriteMsgUDPAddrPort(answer, oob, to)
	_ = err // the client asks again; there is nobody to tell
}

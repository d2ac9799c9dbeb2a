package proxy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// nameTTL is the life of every answer in seconds: an address stays with its
// name for the whole run, but nobody has to rely on that.
const nameTTL = 1

// udpSize is what our answers announce with EDNS.
const udpSize = 1232

// errNotQuery is for messages that must not be answered at all: an answer to
// an answer would let two resolvers talk for ever.
var errNotQuery = errors.New("not a query")

// answerDNS answers one query. Every well-formed name has an address, also a
// denied one, so that its clients reach us and are told why. No query is ever
// passed on: what an agent encodes in names stays here.
func (s *Server) answerDNS(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil, errNotQuery
	}
	reply := dnsReply{header: dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode,
		RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}}
	if head.OpCode != 0 {
		reply.header.RCode = dnsmessage.RCodeNotImplemented
		return reply.pack()
	}
	q, edns, err := readQuestion(&p)
	if err != nil {
		reply.header.RCode = dnsmessage.RCodeFormatError
		return reply.pack()
	}
	reply.question, reply.edns = &q, edns
	if q.Class != dnsmessage.ClassINET {
		reply.header.RCode = dnsmessage.RCodeRefused
		return reply.pack()
	}
	s.answerQuestion(q, &reply)
	return reply.pack()
}

// readQuestion reads the one question and the additional section; anything
// else in a query is malformed.
func readQuestion(p *dnsmessage.Parser) (q dnsmessage.Question, edns bool, err error) {
	if q, err = p.Question(); err != nil {
		return q, false, err
	}
	if _, err = p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return q, false, errors.New("more than one question")
	}
	if _, err := p.AnswerHeader(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return q, false, errors.New("answers in a query")
	}
	if _, err := p.AuthorityHeader(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return q, false, errors.New("authorities in a query")
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return q, edns, nil
		}
		if err != nil {
			return q, edns, err
		}
		edns = edns || h.Type == dnsmessage.TypeOPT
		if err := p.SkipAdditional(); err != nil {
			return q, edns, err
		}
	}
}

func (s *Server) answerQuestion(q dnsmessage.Question, reply *dnsReply) {
	text := q.Name.String()
	switch q.Type {
	case dnsmessage.TypeA:
		a, rcode := s.addrOf(text)
		reply.addr, reply.header.RCode = a, rcode
	case dnsmessage.TypePTR:
		name, ok := s.nameOf(text)
		if !ok {
			reply.header.RCode = dnsmessage.RCodeNameError
			return
		}
		reply.name = name
	case dnsmessage.TypeAXFR, 251: // zone transfers; 251 is IXFR
		reply.header.RCode = dnsmessage.RCodeRefused
	default:
		// No error and no data: AAAA so that clients use the A answer, HTTPS
		// and SVCB so that nobody is told of HTTP/3 or of ECH keys.
	}
}

// addrOf gives the address that a name has inside.
func (s *Server) addrOf(text string) (netip.Addr, dnsmessage.RCode) {
	h, err := netpolicy.ParseHost(text)
	if err != nil || h.IsAddr() {
		return netip.Addr{}, dnsmessage.RCodeRefused
	}
	if name := h.String(); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), dnsmessage.RCodeSuccess
	}
	allowed := func() bool { return s.mentions(h) }
	a, first, ok := s.names.addr(h, s.Memory, allowed)
	if !ok {
		s.record(audit.Event{Kind: audit.KindName, Verdict: audit.Deny, Reason: "too many different names in one run"})
		return netip.Addr{}, dnsmessage.RCodeRefused
	}
	if first {
		s.record(audit.Event{Kind: audit.KindName, Host: h.String(), Addr: a.String()})
	}
	return a, dnsmessage.RCodeSuccess
}

// mentions tells whether some rule allows a connection to the host.
func (s *Server) mentions(h netpolicy.Host) bool {
	for _, port := range s.engine().Ports() {
		if s.engine().Connection(h, port).Verdict == netpolicy.Allow {
			return true
		}
	}
	return false
}

// nameOf reads d.c.b.a.in-addr.arpa and gives the name behind that address.
func (s *Server) nameOf(text string) (string, bool) {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(text, ".")), ".")
	if len(labels) != 6 || labels[4] != "in-addr" || labels[5] != "arpa" {
		return "", false
	}
	var b [4]byte
	for i, label := range labels[:4] {
		v, err := strconv.ParseUint(label, 10, 8)
		if err != nil {
			return "", false
		}
		b[3-i] = byte(v)
	}
	h, ok := s.names.name(netip.AddrFrom4(b))
	return h.String() + ".", ok
}

// dnsReply is an answer before it is packed: at most one of addr and name.
type dnsReply struct {
	header   dnsmessage.Header
	question *dnsmessage.Question
	edns     bool
	addr     netip.Addr
	name     string
}

func (r dnsReply) pack() ([]byte, error) {
	m := dnsmessage.Message{Header: r.header}
	if r.question == nil {
		return m.Pack()
	}
	m.Questions = []dnsmessage.Question{*r.question}
	head := dnsmessage.ResourceHeader{Name: r.question.Name, Class: dnsmessage.ClassINET, TTL: nameTTL}
	switch {
	case r.addr.IsValid():
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: r.addr.As4()}}}
	case r.name != "":
		name, err := dnsmessage.NewName(r.name)
		if err != nil {
			return nil, err
		}
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.PTRResource{PTR: name}}}
	}
	if r.edns {
		var opt dnsmessage.ResourceHeader
		if err := opt.SetEDNS0(udpSize, r.header.RCode, false); err != nil {
			return nil, err
		}
		m.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	}
	return m.Pack()
}

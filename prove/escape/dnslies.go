package escape

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// evil is where every lie leads: the origin that nobody may reach.
var evil = netip.AddrFrom4([4]byte{203, 0, 113, 67})

// lies are the ways in which an answer is wrong, by the first label of a name.
// Each tells where the evil origin is in a message that a careful resolver does
// not take, and then, where it comes to that, the truth.
var lies = map[string]func(truth message, q dnsmessage.Question, network string) []message{
	// Somebody who guesses sends the first answer, with another identifier.
	"badid": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, q.Name, q)
		m.ID ^= 0x5555
		return []message{m, truth}
	},
	// The identifier is right, and the question is one that nobody asked.
	"badquestion": func(truth message, q dnsmessage.Question, _ string) []message {
		other := dnsmessage.Question{Name: dnsmessage.MustNewName("other.dns.test."), Type: q.Type, Class: q.Class}
		m := lie(truth, other.Name, q)
		m.Questions = []dnsmessage.Question{other}
		return []message{m, truth}
	},
	// It is no answer at all but a query.
	"query": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, q.Name, q)
		m.Response = false
		return []message{m, truth}
	},
	// A record about somebody else stands beside, or before, the true one.
	"badowner": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, dnsmessage.MustNewName("other.dns.test."), q)
		m.Answers = append(m.Answers, truth.Answers...)
		return []message{m}
	},
	// The additional section says where somebody else is.
	"additional": func(truth message, q dnsmessage.Question, _ string) []message {
		truth.Additionals = lie(truth, dnsmessage.MustNewName("allowed.test."), q).Answers
		return []message{truth}
	},
	// The datagram is cut, and what is left of it lies. Over TCP is the truth.
	"cut": func(truth message, q dnsmessage.Question, network string) []message {
		if network == "tcp" {
			return []message{truth}
		}
		m := lie(truth, q.Name, q)
		m.Truncated = true
		return []message{m}
	},
	// The class is not the Internet's.
	"chaos": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, q.Name, q)
		for i := range m.Answers {
			m.Answers[i].Header.Class = dnsmessage.ClassCHAOS
		}
		return []message{m, truth}
	},
	// The owner's name is a pointer to itself: who follows it never ends.
	"loop": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, q.Name, q)
		b, err := m.Pack()
		if err != nil || len(m.Answers) == 0 {
			return []message{truth}
		}
		at := questionEnd(b)
		b = append(b[:at:at], 0xC0|byte(at>>8), byte(at)) // the name points at itself
		b = binary.BigEndian.AppendUint16(b, uint16(q.Type))
		b = append(b, 0, 1, 0, 0, 0, 0, 0, 4, 203, 0, 113, 67)
		return []message{{raw: b}, truth}
	},
	// More records are announced than there are.
	"short": func(truth message, q dnsmessage.Question, _ string) []message {
		m := lie(truth, q.Name, q)
		b, err := m.Pack()
		if err != nil {
			return []message{truth}
		}
		binary.BigEndian.PutUint16(b[6:], 40)
		return []message{{raw: b}, truth}
	},
}

// lie is the truth with the evil origin's address, for who asks for IPv4.
func lie(truth message, owner dnsmessage.Name, q dnsmessage.Question) message {
	m := truth
	m.RCode, m.Answers = dnsmessage.RCodeSuccess, nil
	if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{record(owner, q.Type, &dnsmessage.AResource{A: evil.As4()})}
	}
	return m
}

// questionEnd is where the sections of records begin in a message with one
// question.
func questionEnd(b []byte) int {
	at := 12
	for at < len(b) && b[at] != 0 {
		at += int(b[at]) + 1
	}
	return at + 5
}

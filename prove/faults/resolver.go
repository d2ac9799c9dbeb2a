package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// lies are what a resolver can do instead of its work, by the first label of a
// name. The rule allows the names; none of them may lead anywhere.
var lies = map[string]func(q dnsmessage.Message) dnsmessage.Message{ //nolint:gochecknoglobals // a table
	"noanswer": nil,
	"servfail": code(dnsmessage.RCodeServerFailure),
	"refused":  code(dnsmessage.RCodeRefused),
	"nxdomain": code(dnsmessage.RCodeNameError),
	"empty":    func(q dnsmessage.Message) dnsmessage.Message { return q },
	"otherid": func(q dnsmessage.Message) dnsmessage.Message {
		q.ID++
		return address(q, 203, 0, 113, 9)
	},
	"othername": func(q dnsmessage.Message) dnsmessage.Message {
		q.Questions[0].Name = dnsmessage.MustNewName("other.test.")
		return address(q, 203, 0, 113, 9)
	},
	"truncated": func(q dnsmessage.Message) dnsmessage.Message {
		q.Truncated = true
		return q
	},
	"loopback": func(q dnsmessage.Message) dnsmessage.Message { return address(q, 127, 0, 0, 1) },
	"anyhost":  func(q dnsmessage.Message) dnsmessage.Message { return address(q, 0, 0, 0, 0) },
	"private":  func(q dnsmessage.Message) dnsmessage.Message { return address(q, 10, 9, 9, 9) },
	"metadata": func(q dnsmessage.Message) dnsmessage.Message { return address(q, 169, 254, 169, 254) },
	"circle": func(q dnsmessage.Message) dnsmessage.Message {
		name := q.Questions[0].Name
		q.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 9},
			Body:   &dnsmessage.CNAMEResource{CNAME: name},
		}}
		return q
	},
}

func code(c dnsmessage.RCode) func(dnsmessage.Message) dnsmessage.Message {
	return func(q dnsmessage.Message) dnsmessage.Message {
		q.RCode = c
		return q
	}
}

func address(q dnsmessage.Message, a, b, c, d byte) dnsmessage.Message {
	if q.Questions[0].Type != dnsmessage.TypeA {
		return q
	}
	q.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 9},
		Body:   &dnsmessage.AResource{A: [4]byte{a, b, c, d}},
	}}
	return q
}

// liar is a resolver of loopback.
type liar struct{ c net.PacketConn }

// newLiar listens on an address of loopback that nobody else has, and writes a
// resolv.conf that names it.
func newLiar(dir string) (*liar, string, error) {
	at := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&0xff, os.Getpid()&0xfe|1)
	c, err := net.ListenPacket("udp4", at+":53")
	if err != nil {
		return nil, "", fmt.Errorf("listen as a resolver: %w", err)
	}
	l := &liar{c}
	go l.serve()
	path := filepath.Join(dir, "resolv.conf")
	return l, path, os.WriteFile(path, []byte("nameserver "+at+"\n"), 0o644)
}

func (l *liar) close() { _ = l.c.Close() }

func (l *liar) serve() {
	buf := make([]byte, 4096)
	for {
		n, from, err := l.c.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) == 0 {
			continue
		}
		first, _, _ := strings.Cut(q.Questions[0].Name.String(), ".")
		answer := lies[strings.ToLower(first)]
		if first == "rubbish" {
			_, _ = l.c.WriteTo([]byte{buf[0], buf[1], 0x80, 0xff, 0xff, 0xff, 0xff}, from)
		}
		if answer == nil {
			continue
		}
		q.Response, q.RecursionAvailable, q.Additionals = true, true, nil
		q = answer(q)
		if b, err := q.Pack(); err == nil {
			_, _ = l.c.WriteTo(b, from)
		}
	}
}

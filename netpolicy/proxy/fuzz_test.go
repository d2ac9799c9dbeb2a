package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// Whatever the strict parser accepts, net/http reads the same way once it is
// written out again; and nothing makes the parser fail in another way.
func FuzzHead(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /p?q=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nX-A: 1\r\nX-A: 2\r\n\r\n",
		"POST http://a/p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n",
		"OPTIONS * HTTP/1.0\r\nHost: a\r\nConnection: close, x-b\r\nX-B: 1\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n",
		"G\x00T / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, err := readHead(bufio.NewReaderSize(bytes.NewReader(in), 16), nil, 64<<10, nil)
		if err != nil {
			return
		}
		h, err := parseHead(raw, 200)
		if err != nil {
			return
		}
		var out strings.Builder
		fmt.Fprintf(&out, "%s %s HTTP/1.1\r\nHost: %s\r\n", h.method, h.target, h.host)
		for name, values := range h.header {
			for _, v := range values {
				writeField(&out, name, v)
			}
		}
		switch {
		case h.length < 0:
			writeField(&out, "Transfer-Encoding", "chunked")
		case h.length > 0:
			writeField(&out, "Content-Length", fmt.Sprint(h.length))
		}
		out.WriteString("\r\n")
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(out.String())))
		if err != nil {
			// Stricter is fine: the front also refuses what does not parse as
			// a host or a path later on.
			return
		}
		if r.Method != h.method || r.RequestURI != h.target || (r.Host != h.host && h.host != "") || r.ContentLength != h.length {
			t.Errorf("net/http reads %q %q %q %d, want %q %q %q %d", r.Method, r.RequestURI, r.Host, r.ContentLength, h.method, h.target, h.host, h.length)
		}
		for name, values := range h.header {
			got := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
			if strings.Join(got, "\n") != strings.Join(values, "\n") {
				t.Errorf("field %s: net/http reads %q, want %q", name, got, values)
			}
		}
	})
}

// A chunked body that is accepted is one that net/http reads the same way.
func FuzzChunked(f *testing.F) {
	for _, seed := range []string{"0\r\n\r\n", "2\r\nhi\r\n0\r\n\r\n", "2;x\r\nhi\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\nX: 1\r\n\r\n", "2\nhi\n0\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b := &body{conn: nopConn{}, in: bufio.NewReader(bytes.NewReader(in)), chunked: true, first: true, idle: 1}
		ours, err := io.ReadAll(b)
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(
			strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(in))))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("got %q, net/http reads %q %v", ours, theirs, err)
		}
	})
}

// dnsQuery packs a question.
func dnsQuery(name string, typ dnsmessage.Type, edns bool) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET,
	}}}
	if edns {
		var opt dnsmessage.ResourceHeader
		_ = opt.SetEDNS0(1232, dnsmessage.RCodeSuccess, true)
		m.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	}
	b, _ := m.Pack()
	return b
}

// FuzzDNS: an answer is one to the question that was asked, says nothing but the
// address or the name that stand for each other here, and is the same each time;
// no query gets anything else.
func FuzzDNS(f *testing.F) {
	w := newWorld(f, testNetwork())
	w.srv.start()
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01"))
	for _, name := range []string{"api.example.org.", "API.Example.ORG.", "x.localhost.", "1.0.18.198.in-addr.arpa.", "1.0.18.198.IN-ADDR.arpa.", "_x.example.", "1.2.3.4.", "0x7f.", "."} {
		for _, typ := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR, dnsmessage.TypeTXT, 65, 251, 255} {
			f.Add(dnsQuery(name, typ, typ == dnsmessage.TypeAAAA))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		answer, err := w.srv.answerDNS(in)
		if err != nil {
			return
		}
		again, err := w.srv.answerDNS(in)
		if err != nil || !bytes.Equal(answer, again) {
			t.Fatalf("got %x, and %x (%v) when it is asked again", answer, again, err)
		}
		var got dnsmessage.Message
		if err := got.Unpack(answer); err != nil {
			t.Fatalf("got %x, which cannot be read: %v", answer, err)
		}
		if len(in) < 12 || !got.Response || got.Authoritative || got.ID != uint16(in[0])<<8|uint16(in[1]) || len(got.Authorities) > 0 || len(answer) > udpSize {
			t.Fatalf("got %+v to %x", got, in)
		}
		for _, extra := range got.Additionals {
			if extra.Header.Type != dnsmessage.TypeOPT {
				t.Fatalf("got %+v to %x", got, in)
			}
		}
		w.checkAnswer(t, in, got)
	})
}

// checkAnswer compares the answer with the question and with what names stand for.
func (w *world) checkAnswer(t *testing.T, in []byte, got dnsmessage.Message) {
	t.Helper()
	if len(got.Questions) > 0 {
		var p dnsmessage.Parser
		_, err := p.Start(in)
		asked, askedErr := p.Question()
		if err = errors.Join(err, askedErr); err != nil || len(got.Questions) != 1 || got.Questions[0] != asked {
			t.Fatalf("got the question %+v, which is not that of %x (%v)", got.Questions, in, err)
		}
	}
	if len(got.Answers) > 1 || len(got.Answers) > 0 && (got.RCode != dnsmessage.RCodeSuccess || len(got.Questions) != 1) {
		t.Fatalf("got %+v", got)
	}
	for _, a := range got.Answers {
		q := got.Questions[0]
		if a.Header.Name != q.Name || a.Header.Type != q.Type || q.Class != dnsmessage.ClassINET {
			t.Fatalf("got %+v to %+v", a, q)
		}
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			addr := netip.AddrFrom4(body.A)
			host, err := netpolicy.ParseHost(q.Name.String())
			known, ok := w.srv.names.name(addr)
			local := host.String() == "localhost" || strings.HasSuffix(host.String(), ".localhost")
			if err != nil || local != addr.IsLoopback() || !local && (!ok || known != host) {
				t.Fatalf("%s: got %s, which stands for %q", q.Name, addr, known)
			}
		case *dnsmessage.PTRResource:
			host, err := netpolicy.ParseHost(body.PTR.String())
			addr, ok := w.srv.names.byName[host]
			arpa := addr.As4()
			want := fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", arpa[3], arpa[2], arpa[1], arpa[0])
			if err != nil || !ok || !strings.EqualFold(trimZeros(q.Name.String()), want) {
				t.Fatalf("%s: got %s, which has %s", q.Name, body.PTR, addr)
			}
		default:
			t.Fatalf("got %+v", a)
		}
	}
}

// trimZeros drops zeros before the numbers of a name.
func trimZeros(name string) string {
	labels := strings.Split(name, ".")
	for i, l := range labels {
		if short := strings.TrimLeft(l, "0"); len(short) < len(l) {
			labels[i] = cmp.Or(short, "0")
		}
	}
	return strings.Join(labels, ".")
}

// nopConn is a connection of which only the deadlines are used.
type nopConn struct{ net.Conn }

func (nopConn) SetReadDeadline(time.Time) error { return nil }

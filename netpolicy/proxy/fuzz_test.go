package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"
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

// FuzzDNS: no query makes the resolver fail, and what it answers can be read.
func FuzzDNS(f *testing.F) {
	w := newWorld(f, testNetwork())
	w.srv.start()
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, in []byte) {
		answer, err := w.srv.answerDNS(in)
		if err == nil && len(answer) < 12 {
			t.Errorf("got %x, want a whole header", answer)
		}
	})
}

// nopConn is a connection of which only the deadlines are used.
type nopConn struct{ net.Conn }

func (nopConn) SetReadDeadline(time.Time) error { return nil }

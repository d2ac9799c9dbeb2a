package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2conn speaks HTTP/2 frame by frame, so that it can say what no library says.
type h2conn struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	dec    *hpack.Decoder
	next   uint32
	goAway bool // the server said that it wants no further requests
	data   [16 << 10]byte
}

func (w *world) openH2(t *testing.T, host string) *h2conn {
	t.Helper()
	h, err := w.dialH2(t, w.door(host, 443), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.conn.Close() })
	return h
}

// dialH2 connects to the real address of a listener and begins HTTP/2.
func (w *world) dialH2(t *testing.T, door, host string) (*h2conn, error) {
	c, err := net.Dial("tcp", door)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	tc := tls.Client(c, &tls.Config{ServerName: host, RootCAs: poolOf(t, w.srv.Authority), NextProtos: []string{"h2"}})
	h := &h2conn{t: t, conn: tc, framer: http2.NewFramer(tc, tc), dec: hpack.NewDecoder(4096, nil), next: 1}
	err = tc.Handshake()
	if err == nil {
		_, err = io.WriteString(tc, http2.ClientPreface)
	}
	if err == nil {
		err = h.framer.WriteSettings()
	}
	if err != nil {
		_ = c.Close()
	}
	return h, err
}

// ask sends a request without a body and gives its status, "reset" when the
// stream was reset, or "closed" when the connection was.
func (h *h2conn) ask(fields ...string) string {
	h.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			h.t.Fatal(err)
		}
	}
	id := h.next
	h.next += 2
	if err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		return "closed"
	}
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			var ce http2.ConnectionError
			if errors.As(err, &ce) {
				h.t.Fatal(err)
			}
			return "closed"
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			got, err := h.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				h.t.Fatal(err)
			}
			for _, field := range got {
				if field.Name == ":status" && f.StreamID == id {
					return field.Value
				}
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "reset"
			}
		case *http2.GoAwayFrame:
			h.goAway = true
			if f.ErrCode != http2.ErrCodeNo {
				return "closed"
			}
		}
	}
}

// What HTTP/2 lets a client say beyond HTTP is refused field by field (corpus
// D04, D06, D07, D60). Each case is the control with one thing changed.
func TestStrictHTTP2(t *testing.T) {
	good := []string{":method", "GET", ":scheme", "https", ":authority", "api.example.org", ":path", "/public/a"}
	change := func(name, value string) []string {
		out := append([]string{}, good...)
		for i := 0; i < len(out); i += 2 {
			if out[i] == name {
				out[i+1] = value
				return out
			}
		}
		return append(out, name, value)
	}
	without := func(name string) []string {
		var out []string
		for i := 0; i < len(good); i += 2 {
			if good[i] != name {
				out = append(out, good[i], good[i+1])
			}
		}
		return out
	}
	cases := []struct {
		name   string
		fields []string
		want   string // statuses or outcomes that are right
	}{
		{"control", good, "200"},
		{"foreign authority", change(":authority", "denied.example"), "403"},
		{"authority with user info", change(":authority", "x@api.example.org"), "400 reset"},
		{"foreign host beside it", change("host", "denied.example"), "400"},
		{"no authority", without(":authority"), "400"},
		{"absolute path", change(":path", "http://denied.example/"), "400"},
		{"path without slash", change(":path", "public/a"), "400 reset"},
		{"path with space", change(":path", "/public/a HTTP/1.1"), "400 reset"},
		{"dot segments", change(":path", "/public/../secret"), "400"},
		{"method with spaces", change(":method", "GET /secret HTTP/1.1"), "400"},
		{"connect", []string{":method", "CONNECT", ":authority", "denied.example:443"}, "405"},
		{"CR LF in value", change("x-a", "1\r\nhost: denied.example"), "400 reset"},
		{"space in name", change("x a", "1"), "reset closed"},
		{"upper case name", change("X-A", "1"), "reset closed"},
		{"te chunked", change("te", "chunked"), "400 reset"},
		{"transfer encoding", change("transfer-encoding", "chunked"), "400 reset"},
		{"connection", change("connection", "upgrade"), "400 reset"},
		{"many fields", append(append([]string{}, good...), strings.Split(strings.Repeat("x-a,"+strings.Repeat("y", 300)+",", 400)+"z,z", ",")...), "431 reset closed"},
		{"secret path", change(":path", "/secret"), "403"},
	}
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 443, server)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := len(server.requests())
			got := w.openH2(t, "api.example.org").ask(c.fields...)
			if !strings.Contains(" "+c.want+" ", " "+got+" ") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if reached := server.requests()[before:]; c.want != "200" && len(reached) > 0 {
				t.Errorf("server saw %v, want nothing", reached)
			}
		})
	}
	w.wantNoFault()
}

// Each stream of a connection is decided alone. A denial ends its stream and
// nothing else: Java's client reports GOAWAY instead of the answer before it.
func TestHTTP2StreamsAreJudgedEach(t *testing.T) {
	w := newWorld(t, testNetwork())
	server := &echo{}
	w.serve("api.example.org", 443, server)
	h := w.openH2(t, "api.example.org")
	ask := func(path string) string {
		return h.ask(":method", "GET", ":scheme", "https", ":authority", "api.example.org", ":path", path)
	}
	for _, c := range [][2]string{{"/public/1", "200"}, {"/public/2", "200"}, {"/secret", "403"}, {"/a/../b", "400"}, {"/public/3", "200"}, {"/secret", "403"}} {
		if got := ask(c[0]); got != c[1] {
			t.Errorf("%s: got %s, want %s", c[0], got, c[1])
		}
	}
	if got := len(server.requests()); got != 3 {
		t.Errorf("server saw %d requests, want 3", got)
	}
	if h.goAway {
		t.Error("got GOAWAY, want none")
	}
}

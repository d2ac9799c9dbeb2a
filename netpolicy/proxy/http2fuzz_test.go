package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// h2read is one request, as it stands in frames or as an origin got it.
type h2read struct {
	method, authority, path string
	body                    []byte
	whole                   bool // it has its end
}

// readFrames is the plain reading of a client's frames: what each stream asks
// for, whatever a server makes of it. It goes on until a frame is malformed.
func readFrames(in []byte) (all []*h2read) {
	framer := http2.NewFramer(io.Discard, bytes.NewReader(in))
	dec := hpack.NewDecoder(4096, nil)
	streams := map[uint32]*h2read{}
	var block []byte
	var open uint32
	begin := func(id uint32, end bool) {
		s := streams[id]
		if s == nil {
			s = &h2read{}
			streams[id] = s
			all = append(all, s)
		}
		s.whole, open = s.whole || end, id
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return all
		}
		ended := false
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			begin(f.StreamID, f.StreamEnded())
			block, ended = append([]byte{}, f.HeaderBlockFragment()...), f.HeadersEnded()
		case *http2.ContinuationFrame:
			block, ended = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
		case *http2.DataFrame:
			if s := streams[f.StreamID]; s != nil {
				s.body, s.whole = append(s.body, f.Data()...), s.whole || f.StreamEnded()
			}
		}
		if !ended {
			continue
		}
		fields, err := dec.DecodeFull(block)
		if err != nil {
			return all
		}
		streams[open].take(fields)
	}
}

// take keeps what a first block of fields asks for.
func (s *h2read) take(fields []hpack.HeaderField) {
	if s.method != "" {
		return // trailers
	}
	for _, f := range fields {
		switch f.Name {
		case ":method":
			s.method = f.Value
		case ":authority":
			s.authority = f.Value
		case ":path":
			s.path = f.Value
		}
	}
}

// h2origin keeps what arrives, of the last few connections: what a client's
// connection left behind may arrive after its end.
type h2origin struct {
	mu   sync.Mutex
	got  []h2read
	sent [][]*h2read
}

func (o *h2origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	o.mu.Lock()
	o.got = append(o.got, h2read{r.Method, r.Host, r.RequestURI, b, err == nil})
	o.mu.Unlock()
	w.Header().Set("Content-Length", "2")
	_, _ = io.WriteString(w, "ok")
}

// check fails for each request that arrived though no client said it, or though
// the rules do not allow it.
func (o *h2origin) check(t *testing.T, sent []*h2read) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, sent)
	if len(o.sent) > 8 {
		o.sent = o.sent[1:]
	}
	for _, got := range o.got {
		if why := mayArrive(got); why != "" {
			t.Errorf("%s %s%s arrived: %s", got.method, got.authority, got.path, why)
		}
		said := slices.ContainsFunc(o.sent, func(all []*h2read) bool {
			return slices.ContainsFunc(all, func(s *h2read) bool { return s.asks(got) })
		})
		if !said {
			t.Errorf("%s %s%s with %q arrived, which no client said", got.method, got.authority, got.path, got.body)
		}
	}
	o.got = o.got[:0]
}

// asks tells whether the frames ask for what arrived.
func (s *h2read) asks(got h2read) bool {
	path, query, _ := strings.Cut(s.path, "?")
	path, err := netpolicy.CanonicalPath(path)
	if err != nil || s.method != got.method {
		return false
	}
	if query != "" {
		path += "?" + query
	}
	host, port, err := netpolicy.ParseHostPort(s.authority, 443)
	if err != nil || host.String() != got.authority || port != 443 || path != got.path {
		return false
	}
	if !got.whole {
		return bytes.HasPrefix(s.body, got.body)
	}
	return s.whole && bytes.Equal(s.body, got.body)
}

// mayArrive reads what arrived as the laxest server would.
func mayArrive(got h2read) string {
	path, _, _ := strings.Cut(got.path, "?")
	for range 2 {
		if decoded, err := url.PathUnescape(path); err == nil {
			path = decoded
		}
	}
	switch {
	case got.authority != "api.example.org":
		return "the host is not the connection's"
	case !slices.Contains([]string{"GET", "POST", "HEAD", "PUT", "OPTIONS"}, got.method):
		return "the method is not allowed"
	case path != "/" && !strings.HasPrefix(path, "/public/") && path != "/public" || strings.Contains(path, "..") || strings.ContainsAny(path, "\\\x00\r\n"):
		return "the path is not allowed"
	}
	return ""
}

// h2seed writes frames.
func h2seed(write func(*http2.Framer, func(...string) []byte)) []byte {
	var out, block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	write(http2.NewFramer(&out, nil), func(fields ...string) []byte {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return bytes.Clone(block.Bytes())
	})
	return out.Bytes()
}

// h2seeds are whole conversations, each with a different kind of frame in it.
func h2seeds() [][]byte {
	ask := func(method, path string, more ...string) []string {
		return append([]string{":method", method, ":scheme", "https", ":authority", "api.example.org", ":path", path}, more...)
	}
	headers := func(id uint32, block []byte, end bool) http2.HeadersFrameParam {
		return http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end}
	}
	return [][]byte{
		h2seed(func(f *http2.Framer, block func(...string) []byte) {
			_ = f.WriteSettings()
			_ = f.WriteHeaders(headers(1, block(ask("GET", "/public/a?x=1")...), true))
			_ = f.WriteHeaders(headers(3, block(ask("GET", "/secret")...), true))
			_ = f.WriteHeaders(headers(5, block(ask("DELETE", "/public/a", "x-a", "1")...), true))
		}),
		h2seed(func(f *http2.Framer, block func(...string) []byte) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 9})
			_ = f.WriteHeaders(headers(1, block(ask("POST", "/public/a", "content-length", "6")...), false))
			_ = f.WriteData(1, false, []byte("abc"))
			_ = f.WriteDataPadded(1, true, []byte("def"), make([]byte, 9))
			_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
		}),
		h2seed(func(f *http2.Framer, block func(...string) []byte) {
			_ = f.WriteSettings()
			b := block(ask("PUT", "/public/b", "trailer", "x-t")...)
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:5], Priority: http2.PriorityParam{StreamDep: 3, Weight: 7}, PadLength: 3})
			_ = f.WriteContinuation(1, true, b[5:])
			_ = f.WriteData(1, false, []byte("body"))
			_ = f.WriteHeaders(headers(1, block("x-t", "1"), true))
			_ = f.WriteGoAway(1, http2.ErrCodeNo, nil)
		}),
		h2seed(func(f *http2.Framer, block func(...string) []byte) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingEnablePush, Val: 1})
			_ = f.WriteWindowUpdate(0, 1<<20)
			_ = f.WriteHeaders(headers(1, block(ask("POST", "/public/a", "content-length", "2")...), false))
			_ = f.WriteHeaders(headers(3, block(":method", "CONNECT", ":authority", "denied.example:443"), false))
			_ = f.WriteData(1, true, []byte("abc"))
			_ = f.WriteHeaders(headers(7, block(ask("GET", "/public/%2e%2e/secret", "host", "denied.example")...), true))
			_ = f.WritePriority(9, http2.PriorityParam{StreamDep: 1})
		}),
		h2seed(func(f *http2.Framer, block func(...string) []byte) {
			_ = f.WriteSettings()
			_ = f.WriteHeaders(headers(1, block(ask("GET", "/public/a", "te", "trailers", "cookie", "a=1", "cookie", "b=2")...), true))
			_ = f.WriteHeaders(headers(3, block(":method", "GET", ":scheme", "https", ":path", "/public/a", ":authority", "denied.example"), true))
			_ = f.WriteHeaders(headers(5, block(ask("GET /secret HTTP/1.1", "/public/a", "x\r\nhost: b", "1")...), true))
			_ = f.WritePing(false, [8]byte{1})
		}),
	}
}

// FuzzHTTP2Frames sends any bytes as a client's frames, after the preface. What
// reaches the server is what a plain reading of the frames finds in them, and
// only what the rules allow however laxly it is read.
func FuzzHTTP2Frames(f *testing.F) {
	w := newWorld(f, testNetwork())
	w.srv.Limits.Linger, w.srv.Limits.Idle = 20*time.Millisecond, time.Second
	o := &h2origin{}
	w.serve("api.example.org", 443, o)
	door := w.door("api.example.org", 443)
	config := &tls.Config{ServerName: "api.example.org", RootCAs: poolOf(f, w.srv.Authority), NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for _, seed := range h2seeds() {
		f.Add(seed)
	}
	faults := w.watchFaults()
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 64<<10 {
			return
		}
		sent := readFrames(in)
		whole := 0
		for _, s := range sent {
			if s.whole {
				whole++
			}
		}
		if err := sayFrames(door, config, in, whole); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); w.srv.streams.Load() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("got %d streams long after the end of the connection, want none", w.srv.streams.Load())
			}
		}
		o.check(t, sent)
		faults.check(t)
	})
}

// sayFrames sends the frames, waits until so many streams were ended or the
// front has closed the connection, and closes it. A stream may stay without an
// end, so that this does not wait for long.
func sayFrames(door string, config *tls.Config, in []byte, whole int) error {
	c, err := dialLoopback(door)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	tc := tls.Client(c, config)
	if err := tc.Handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	go func() {
		_, _ = io.WriteString(tc, http2.ClientPreface)
		_, _ = tc.Write(in)
	}()
	framer := http2.NewFramer(io.Discard, tc)
	_ = c.SetReadDeadline(time.Now().Add(40 * time.Millisecond))
	for whole > 0 {
		frame, err := framer.ReadFrame()
		var stream http2.StreamError
		if err != nil && !errors.As(err, &stream) {
			break
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				whole--
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				whole--
			}
		case *http2.RSTStreamFrame:
			whole--
		}
	}
	return nil
}

// faultWatch reads the record as it grows.
type faultWatch struct{ record *os.File }

func (w *world) watchFaults() faultWatch {
	w.t.Helper()
	f, err := os.Open(w.auditFile)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = f.Close() })
	return faultWatch{f}
}

// check fails when a panic was recovered since the last time.
func (f faultWatch) check(t *testing.T) {
	t.Helper()
	lines, err := io.ReadAll(f.record)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		if e, err := audit.Decode(bytes.TrimSpace(line)); err == nil && e.Kind == audit.KindFault {
			t.Errorf("got the fault %s, want none", e.Reason)
		}
	}
}

// loopbackSource is an address of this machine, another one each time.
func loopbackSource() *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, byte(1+rand.IntN(250)), byte(rand.IntN(256)), byte(1+rand.IntN(250)))}
}

// dialLoopback connects from an address of its own: the ports of one would be
// used up within a minute.
func dialLoopback(to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: loopbackSource()}).Dial("tcp", to)
}

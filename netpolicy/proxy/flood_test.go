package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	gauges "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// flood is an attack on one HTTP/2 connection. It sends until the connection
// ends or stop is closed.
type flood struct {
	name string
	// reads tells whether the attacker takes what the proxy answers.
	reads bool
	send  func(h *h2conn, n int) error
}

// block encodes a request's fields.
func block(t *testing.T, enc *hpack.Encoder, buf *bytes.Buffer, fields ...string) []byte {
	t.Helper()
	buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

// headers sends the head of a request on the next stream.
func (h *h2conn) headers(b []byte, endHeaders, endStream bool) (id uint32, err error) {
	id = h.next
	h.next += 2
	return id, h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndHeaders: endHeaders, EndStream: endStream})
}

func floods(t *testing.T) []flood {
	var buf bytes.Buffer // the encoders' alone: floods of several connections share what is encoded
	get := bytes.Clone(block(t, hpack.NewEncoder(&buf), &buf, ":method", "GET", ":scheme", "https", ":authority", "api.example.org", ":path", "/public/slow"))
	post := bytes.Clone(block(t, hpack.NewEncoder(&buf), &buf, ":method", "POST", ":scheme", "https", ":authority", "api.example.org", ":path", "/public/slow"))
	big := strings.Repeat("x", 3900)
	long := bytes.Clone(block(t, hpack.NewEncoder(&buf), &buf, "x-a", big))
	// One entry of the table, named again and again: 4 KB a byte.
	var bomb bytes.Buffer
	bomb.Write(get)
	enc := hpack.NewEncoder(&bomb)
	_ = enc.WriteField(hpack.HeaderField{Name: "x-a", Value: big})
	bomb.Write(bytes.Repeat([]byte{0x80 | 62}, 10_000))
	var many bytes.Buffer
	many.Write(get)
	enc = hpack.NewEncoder(&many)
	for range 5000 {
		_ = enc.WriteField(hpack.HeaderField{Name: "cookie", Value: "a=b", Sensitive: true})
	}
	return []flood{
		{"rapid reset (CVE-2023-39325)", true, func(h *h2conn, n int) error {
			id, err := h.headers(get, true, true)
			return errors.Join(err, h.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}},
		{"resets by the server (CVE-2025-8671)", true, func(h *h2conn, n int) error {
			id, err := h.headers(post, true, false)
			return errors.Join(err, h.framer.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0}))
		}},
		{"continuation without end (CVE-2023-45288)", true, func(h *h2conn, n int) error {
			if n == 0 {
				_, err := h.headers(get, false, true)
				return err
			}
			return h.framer.WriteContinuation(1, false, long)
		}},
		{"empty continuation", true, func(h *h2conn, n int) error {
			if n == 0 {
				_, err := h.headers(get, false, true)
				return err
			}
			return h.framer.WriteContinuation(1, false, nil)
		}},
		{"settings", false, func(h *h2conn, n int) error {
			return h.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
		}},
		{"ping", false, func(h *h2conn, n int) error { return h.framer.WritePing(false, [8]byte{byte(n)}) }},
		{"priority", true, func(h *h2conn, n int) error {
			return h.framer.WritePriority(uint32(2*n+1)&0x7fffffff, http2.PriorityParam{StreamDep: 0, Weight: 1})
		}},
		{"empty data", true, func(h *h2conn, n int) error {
			if n == 0 {
				_, err := h.headers(post, true, false)
				return err
			}
			return h.framer.WriteData(1, false, nil)
		}},
		{"compressed heads that grow", true, func(h *h2conn, n int) error {
			_, err := h.headers(bomb.Bytes(), true, true)
			return err
		}},
		{"many fields", true, func(h *h2conn, n int) error {
			_, err := h.headers(many.Bytes(), true, true)
			return err
		}},
		{"requests that are never answered", false, func(h *h2conn, n int) error {
			_, err := h.headers(get, true, true)
			return err
		}},
		{"uploads that nobody takes", false, func(h *h2conn, n int) error {
			id, err := h.headers(post, true, false)
			return errors.Join(err, h.framer.WriteData(id, false, h.data[:]))
		}},
	}
}

// The known floods of HTTP/2 cost the proxy neither memory nor the other
// connections their service (corpus D51, D59).
func TestHTTP2Floods(t *testing.T) {
	const attackers, most = 4, 96 << 20
	for _, f := range floods(t) {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			stuck := make(chan struct{})
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				select {
				case <-stuck:
				case <-r.Context().Done():
				}
			}))
			w.serve("other.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, "here")
			}))
			t.Cleanup(func() { close(stuck) })
			client := w.client("other.example.org", 443, false)
			ask := func() time.Duration {
				began := time.Now()
				resp := getWithin(t, client, "https://other.example.org/a")
				if got := readBody(t, resp); got != "here" {
					t.Errorf("other connection: got %d %q, want its answer", resp.StatusCode, got)
				}
				return time.Since(began)
			}
			ask()
			before := heapBytes()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range attackers {
				door := w.door("api.example.org", 443)
				wg.Go(func() {
					for !isClosed(stop) { // whoever is thrown out comes back
						if h, err := w.dialH2(t, door, "api.example.org"); err == nil {
							h.attack(f, stop)
						}
					}
				})
			}
			var slowest time.Duration
			var peak uint64
			for began := time.Now(); time.Since(began) < time.Second; {
				slowest = max(slowest, ask())
				peak = max(peak, heapBytes())
			}
			close(stop)
			wg.Wait()
			if slowest > 5*time.Second {
				t.Errorf("other connection: got an answer after %v, want it within 5 s", slowest)
			}
			if grown := int64(peak) - int64(before); grown > most {
				t.Errorf("memory: got %d MiB more, want no more than %d", grown>>20, most>>20)
			}
			t.Logf("memory %d KiB more, slowest answer %v", (int64(peak)-int64(before))>>10, slowest)
			w.wantNoFault()
		})
	}
}

// attack repeats a flood until the connection ends or stop is closed.
func (h *h2conn) attack(f flood, stop <-chan struct{}) {
	_ = h.conn.SetDeadline(time.Now().Add(3 * time.Second))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { _ = h.conn.Close() }()
	if f.reads {
		wg.Go(func() { _, _ = io.Copy(io.Discard, h.conn) })
	}
	for n := 0; !isClosed(stop); n++ {
		if f.send(h, n) != nil {
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// heapBytes is what was in use when garbage was last collected.
func heapBytes() uint64 {
	sample := []gauges.Sample{{Name: "/gc/heap/live:bytes"}}
	gauges.Read(sample)
	return sample[0].Value.Uint64()
}

package proxy

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	gauges "runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// bulk is so many bytes, no two blocks of them alike, with a sum of what was read.
type bulk struct {
	left, at int64
	sum      uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b *bulk) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.left))
	for i := range p[:n] {
		p[i] = byte(b.at >> 13 * 31)
		b.at++
	}
	b.left -= int64(n)
	b.sum = crc32.Update(b.sum, castagnoli, p[:n])
	return n, nil
}

// drain reads to the end and gives length and sum.
func drain(r io.Reader) (n int64, sum uint32, err error) {
	buf := make([]byte, 64<<10)
	for {
		k, err := r.Read(buf)
		n += int64(k)
		sum = crc32.Update(sum, castagnoli, buf[:k])
		if err == io.EOF {
			return n, sum, nil
		}
		if err != nil {
			return n, sum, err
		}
	}
}

// peak watches the heap until stop is called, which gives the most that was
// seen beyond the beginning.
func peak() (stop func() uint64) {
	sample := []gauges.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	gauges.Read(sample)
	before := sample[0].Value.Uint64()
	var most atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				gauges.Read(sample)
				most.Store(max(most.Load(), sample[0].Value.Uint64()))
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		return max(most.Load(), before) - before
	}
}

// Bodies of any size go through as they are, in either direction, and the proxy
// holds next to nothing of them (corpus D53).
func TestBulk(t *testing.T) {
	const size, flat = 64 << 20, 16 << 20
	for _, h2 := range []bool{false, true} {
		for _, counted := range []bool{true, false} {
			t.Run(fmt.Sprintf("h2 %v, length known %v", h2, counted), func(t *testing.T) {
				w := newWorld(t, testNetwork())
				w.serve("other.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						if counted {
							rw.Header().Set("Content-Length", fmt.Sprint(size))
						}
						_, _ = io.Copy(rw, &bulk{left: size})
						return
					}
					n, sum, err := drain(r.Body)
					fmt.Fprintf(rw, "%d %d %v", n, sum, err)
				}))
				client := w.client("other.example.org", 443, h2)

				body := &bulk{left: size}
				req, err := http.NewRequest(http.MethodPut, "https://other.example.org/up", struct{ io.Reader }{body})
				if err != nil {
					t.Fatal(err)
				}
				if counted {
					req.ContentLength = size
				}
				stop := peak()
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := readBody(t, resp), fmt.Sprintf("%d %d <nil>", size, body.sum); got != want {
					t.Errorf("upload: got %s, want %s", got, want)
				}
				if most := stop(); most > flat {
					t.Errorf("upload: got %d MiB more on the heap, want under %d", most>>20, flat>>20)
				}

				stop = peak()
				if resp, err = client.Get("https://other.example.org/down"); err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				n, sum, err := drain(resp.Body)
				if n != size || sum != body.sum || err != nil {
					t.Errorf("download: got %d bytes with sum %d (%v), want %d with %d", n, sum, err, size, body.sum)
				}
				if most := stop(); most > flat {
					t.Errorf("download: got %d MiB more on the heap, want under %d", most>>20, flat>>20)
				}
			})
		}
	}
}

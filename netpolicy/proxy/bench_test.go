package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// BenchmarkInspectKeepAlive measures inspected HTTPS requests over kept-alive
// connections, client and server in the same process. Compare with
// BenchmarkDirectKeepAlive.
func BenchmarkInspectKeepAlive(b *testing.B) {
	w := newWorld(b, testNetwork())
	w.serve("api.example.org", 443, small{})
	door := w.door("api.example.org", 443)
	benchHTTPS(b, door, &tls.Config{RootCAs: poolOf(b, w.srv.Authority)})
}

// BenchmarkDirectKeepAlive is the same without the proxy.
func BenchmarkDirectKeepAlive(b *testing.B) {
	w := newWorld(b, testNetwork())
	w.serve("api.example.org", 443, small{})
	benchHTTPS(b, w.routes["93.184.215.1:443"], &tls.Config{RootCAs: poolOf(b, w.outside)})
}

type small struct{}

func (small) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func benchHTTPS(b *testing.B, addr string, config *tls.Config) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		TLSClientConfig:     config,
		MaxIdleConnsPerHost: 64,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			resp, err := client.Get("https://api.example.org/public/a")
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				b.Errorf("got %d %v, want 200", resp.StatusCode, err)
			}
			_ = resp.Body.Close()
		}
	})
}

// BenchmarkPass measures bytes through a tunnel. Compare with BenchmarkRelay.
func BenchmarkPass(b *testing.B) {
	l := listenTCP(b)
	defer func() { _ = l.Close() }()
	go discardAll(l)
	near := listenTCP(b)
	defer func() { _ = near.Close() }()
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := near.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		splice(c, up, Limits{}.withDefaults().Idle, nil)
		_ = c.Close()
		_ = up.Close()
	})
	benchWrite(b, near.Addr().String())
	wg.Wait()
}

// BenchmarkRelay is a bare relay with io.Copy.
func BenchmarkRelay(b *testing.B) {
	l := listenTCP(b)
	defer func() { _ = l.Close() }()
	go discardAll(l)
	near := listenTCP(b)
	defer func() { _ = near.Close() }()
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := near.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		_, _ = io.Copy(up, c)
		_ = c.Close()
		_ = up.Close()
	})
	benchWrite(b, near.Addr().String())
	wg.Wait()
}

func listenTCP(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func discardAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
}

func benchWrite(b *testing.B, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	block := bytes.Repeat([]byte("x"), 256<<10)
	b.SetBytes(int64(len(block)))
	b.ResetTimer()
	for b.Loop() {
		if _, err := c.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	closeWrite(c)
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

package soak

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// outside is the servers that the load talks to.
type outside struct {
	t    *testing.T
	ca   []byte // PEM
	cert tls.Certificate
	wg   sync.WaitGroup
	ends []func() // close what is open
}

// The hosts of the soak. The proxy resolves them by network.hosts.
const (
	hostAPI    = "api.soak.example.org"
	hostTCP    = "tcp.soak.example.org"
	hostPass   = "pass.soak.example.org"
	hostBroken = "broken.soak.example.org"
	hostSecret = "denied.soak.example.org"
)

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{t: t}
	t.Cleanup(func() {
		for _, end := range o.ends {
			end()
		}
		o.wg.Wait()
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "soak"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{hostAPI, hostPass, hostBroken},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	o.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	o.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return o
}

func (o *outside) listen() net.Listener {
	o.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	o.ends = append(o.ends, func() { _ = l.Close() })
	return l
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// api answers requests and echoes WebSocket messages.
func (o *outside) api() int {
	l := o.listen()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("/n/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if mathrand.IntN(4) == 0 {
			time.Sleep(time.Duration(mathrand.IntN(30)) * time.Millisecond)
		}
		_, _ = w.Write(make([]byte, mathrand.IntN(20_000)))
	})
	mux.HandleFunc("/ws/", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	})
	s := &http.Server{
		Handler: mux, Protocols: protocols, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{o.cert}},
	}
	o.wg.Go(func() { _ = s.ServeTLS(l, "", "") })
	o.ends = append(o.ends, func() { _ = s.Close() })
	return port(l)
}

// each serves every connection of a new listener.
func (o *outside) each(secure bool, serve func(net.Conn)) int {
	l := o.listen()
	p := port(l)
	if secure {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{o.cert}, NextProtos: []string{"http/1.1"}})
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	o.ends = append(o.ends, func() {
		mu.Lock()
		defer mu.Unlock()
		for c := range open {
			_ = c.Close()
		}
	})
	o.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			o.wg.Go(func() {
				serve(c)
				_ = c.Close()
				mu.Lock()
				defer mu.Unlock()
				delete(open, c)
			})
		}
	})
	return p
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// broken is a server that fails in every way a server can.
func broken(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 4096)
	if _, err := c.Read(b); err != nil {
		return
	}
	switch mathrand.IntN(6) {
	case 0: // reset
		if t, ok := c.(*tls.Conn); ok {
			_ = t.NetConn().(*net.TCPConn).SetLinger(0)
		}
	case 1:
		_, _ = io.WriteString(c, "220 this is not HTTP\r\n")
	case 2: // less than announced
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nshort")
	case 3: // slow, and then gone
		for _, piece := range []string{"HTTP/1.1 200 OK\r\n", "Content-Length: 3\r\n", "\r\n", "a", "b", "c"} {
			time.Sleep(200 * time.Millisecond)
			_, _ = io.WriteString(c, piece)
		}
	case 4: // silence
		time.Sleep(2 * time.Second)
	case 5: // a good answer and one that nobody asked for
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		time.Sleep(50 * time.Millisecond)
	}
}

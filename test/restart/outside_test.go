package restart

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const realKey = "sk-test-R3alKeyOfTheRestartR3alKeyOfThe"

// outside is the servers: site.test over TLS, and two that speak bytes at the
// same port of different addresses.
type outside struct {
	port, bytesPort int
	ca              []byte

	poured atomic.Int64 // bytes that a.test was sent by pour
	asked  atomic.Int64 // calls of the model
	mu     sync.Mutex
	hosts  map[string]int // requests, by host
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{hosts: map[string]int{}}
	certificate := o.issue(t)
	server := httptest.NewUnstartedServer(o)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	o.port = server.Listener.Addr().(*net.TCPAddr).Port
	a, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.bytesPort = a.Addr().(*net.TCPAddr).Port
	b, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.2:%d", o.bytesPort))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]net.Listener{"a": a, "b": b} {
		t.Cleanup(func() { _ = l.Close() })
		go o.serveBytes(name, l)
	}
	return o
}

func (o *outside) issue(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, DNSNames: []string{"site.test", "denied.test", "models.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	o.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// requests gives how many a host got.
func (o *outside) requests(host string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hosts[host]
}

// ServeHTTP answers.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	o.mu.Lock()
	o.hosts[host]++
	o.mu.Unlock()
	switch r.URL.Path {
	case "/hello":
		if r.Header.Get("Authorization") != "Bearer "+realKey {
			http.Error(w, "bad key", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		tick(r.Context(), func() error {
			_, err := io.WriteString(w, "data: tick\n\n")
			w.(http.Flusher).Flush()
			return err
		})
	case "/ws":
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		tick(c.CloseRead(r.Context()), func() error { return c.Write(r.Context(), websocket.MessageText, []byte("tick")) })
	case "/v1/chat/completions":
		o.asked.Add(1)
		_, _ = io.ReadAll(r.Body)
		time.Sleep(20 * time.Millisecond) // models take a while
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`)
	default:
		http.NotFound(w, r)
	}
}

// tick writes until nobody reads.
func tick(ctx context.Context, write func() error) {
	for ctx.Err() == nil && write() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (o *outside) serveBytes(name string, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			in := bufio.NewReader(c)
			first, err := in.Peek(1)
			if err != nil {
				return
			}
			if first[0] == 0 {
				n, _ := io.Copy(countWriter{&o.poured}, in)
				_ = n
				return
			}
			line, _ := in.ReadString('\n')
			fmt.Fprintln(c, name)
			if line == "tick\n" {
				tick(context.Background(), func() error { _, err := fmt.Fprintln(c, name); return err })
			}
		}()
	}
}

type countWriter struct{ n *atomic.Int64 }

// Write counts.
func (w countWriter) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p)))
	return len(p), nil
}

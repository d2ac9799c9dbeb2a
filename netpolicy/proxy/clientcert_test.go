package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// pemOf makes a client certificate of an authority, as files hold it.
func pemOf(t *testing.T, a *Authority, name string) (cert, key []byte) {
	t.Helper()
	h, err := netpolicy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.leafFor(h)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range leaf.Certificate {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})...)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// mutual serves a host that tells who its client is; require refuses those
// without a certificate.
func (w *world) mutual(host string, version uint16, require tls.ClientAuthType) {
	w.t.Helper()
	config := w.serverTLS()
	config.ClientAuth, config.MaxVersion = require, version
	l := w.listen()
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].DNSNames[0]
		}
		_, _ = rw.Write([]byte("client " + who))
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	w.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	w.publish(host, 443, l.Addr().String())
}

// A client certificate is shown to the servers it is for and to no others, and
// a server that wants one in vain gives a clear answer (corpus D77).
func TestClientCertificates(t *testing.T) {
	const host = "other.example.org"
	cases := []struct {
		name    string
		version uint16
		hosts   string
		auth    tls.ClientAuthType
		want    string
	}{
		{"shown", tls.VersionTLS13, host, tls.RequireAnyClientCert, "client agent.example.org"},
		{"shown with TLS 1.2", tls.VersionTLS12, host, tls.RequireAnyClientCert, "client agent.example.org"},
		{"by pattern", tls.VersionTLS13, "*.example.org", tls.RequireAnyClientCert, "client agent.example.org"},
		{"not for this host", tls.VersionTLS13, "third.example.org", tls.RequestClientCert, "client nobody"},
		{"wanted in vain", tls.VersionTLS13, "third.example.org", tls.RequireAnyClientCert, "asks for a client certificate"},
		{"wanted in vain with TLS 1.2", tls.VersionTLS12, "third.example.org", tls.RequireAnyClientCert, "asks for a client certificate"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			cert, key := pemOf(t, w.outside, "agent.example.org")
			pair, err := NewClientCertificate([]policy.Name{{Text: c.hosts}}, cert, key)
			if err != nil {
				t.Fatal(err)
			}
			w.srv.Rules.Upstream.Certificates = []ClientCertificate{pair}
			w.mutual(host, c.version, c.auth)
			if got := w.raw(host, 443, host, getOf(host)); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A client that pins the server's certificate, or has one of its own, works
// where TLS is passed: nothing is inspected or attached there (corpus D77).
func TestPassKeepsTLSEndToEnd(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.mutual("passed.example.org", tls.VersionTLS13, tls.RequireAnyClientCert)
	cert, key := pemOf(t, w.outside, "mine.example.org")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", w.door("passed.example.org", 443), &tls.Config{
		ServerName: "passed.example.org", RootCAs: poolOf(t, w.outside), Certificates: []tls.Certificate{pair},
	})
	if err != nil {
		t.Fatalf("got %v, want the real server's certificate", err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(getOf("passed.example.org"))); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n := 0
	for n < len(b) {
		m, err := c.Read(b[n:])
		if n += m; err != nil {
			break
		}
	}
	if got := string(b[:n]); !strings.Contains(got, "client mine.example.org") {
		t.Errorf("got %q, want the client's own certificate seen", got)
	}
}

// A broken key is a mistake that tells nothing of the key.
func TestBrokenClientCertificate(t *testing.T) {
	a, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := pemOf(t, a, "agent.example.org")
	_, other := pemOf(t, a, "second.example.org")
	for name, k := range map[string][]byte{"none": nil, "cut": key[:len(key)/2], "another": other} {
		if name == "another" && string(other) == string(key) {
			continue // one key for all leaves
		}
		_, err := NewClientCertificate([]policy.Name{{Text: "x.example.org"}}, cert, k)
		if err == nil || len(k) > 100 && strings.Contains(err.Error(), string(k[60:90])) {
			t.Errorf("%s: got %v, want an error without the key", name, err)
		}
	}
}

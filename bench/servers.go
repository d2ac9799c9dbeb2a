package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// The names of the servers, as the sandbox knows them.
const (
	rawHost   = "raw.test"
	httpsHost = "https.test"
	passHost  = "pass.test"
)

// network is the servers outside and the policy that allows them.
type network struct {
	raw, https net.Listener
	policy, ca string
}

func (s *shop) openNetwork() (*network, error) {
	n := &network{policy: filepath.Join(s.root, "network.yaml"), ca: filepath.Join(s.root, "ca.pem")}
	certificate, ca, err := issue(httpsHost, passHost)
	if err != nil {
		return nil, err
	}
	raw, err1 := net.Listen("tcp", "127.0.0.1:0")
	secure, err2 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err1, err2, os.WriteFile(n.ca, ca, 0o644)); err != nil {
		return nil, err
	}
	n.raw, n.https = raw, tls.NewListener(secure, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	go serveRaw(n.raw)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello from the server\n")
	})}
	go func() { _ = server.Serve(n.https) }()
	return n, os.WriteFile(n.policy, []byte(n.policyText()), 0o644)
}

func (n *network) close() {
	_ = n.raw.Close()
	_ = n.https.Close()
}

func (n *network) policyText() string {
	return fmt.Sprintf(`version: 1
name: bench-network
extends: [builtin:strict]
limits: {connections: 4096}
network:
  upstream: {connections_per_host: 4096}
  hosts:
    raw.test: [127.0.0.1]
    https.test: [127.0.0.1]
    pass.test: [127.0.0.1]
  private:
    - {cidr: 127.0.0.1, ports: [%[1]d, %[2]d], reason: the servers of the benchmark}
  ca: [%[3]q]
  rules:
    - {name: raw, host: raw.test, ports: [%[1]d], protocol: tcp}
    - {name: pass, host: pass.test, ports: [%[2]d]}
    - name: inspected
      host: https.test
      ports: [%[2]d]
      allow: [{methods: [GET], paths: ["/bench/**"]}]
`, port(n.raw), port(n.https), n.ca)
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// target gives a probe's words for a server: where to connect and, for TLS,
// the name.
func (n *network) target(role string, inside bool) []string {
	l, name := n.https, httpsHost
	switch role {
	case "raw":
		l, name = n.raw, rawHost
	case "pass":
		name = passHost
	}
	host := name
	if !inside {
		host = "127.0.0.1"
	}
	return []string{net.JoinHostPort(host, fmt.Sprint(port(l))), name}
}

// serveRaw answers what the probes ask for: a letter and a count. "u" counts
// bytes that follow and answers one, "d" sends that many, "e" answers one.
func serveRaw(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			in := bufio.NewReader(c)
			var head [9]byte
			for {
				if _, err := io.ReadFull(in, head[:]); err != nil {
					return
				}
				if err := answerRaw(c, in, head[0], int64(binary.BigEndian.Uint64(head[1:]))); err != nil {
					return
				}
			}
		}()
	}
}

func answerRaw(c net.Conn, in io.Reader, what byte, count int64) error {
	switch what {
	case 'd':
		block := make([]byte, 256<<10)
		for ; count > 0; count -= int64(len(block)) {
			if _, err := c.Write(block[:min(count, int64(len(block)))]); err != nil {
				return err
			}
		}
		return nil
	case 'u':
		block := make([]byte, 256<<10)
		for count > 0 {
			n, err := in.Read(block)
			if err != nil {
				return err
			}
			count -= int64(n)
		}
	}
	_, err := c.Write([]byte{'!'})
	return err
}

// authority signs certificates.
type authority struct {
	template *x509.Certificate
	key      *ecdsa.PrivateKey
	der      []byte
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	return authority{ca, key, der}, err
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

// issue makes an authority and a certificate for names, and for loopback:
// proxies are asked for the address, which they can resolve.
func issue(names ...string) (tls.Certificate, []byte, error) {
	ca, err1 := newAuthority("benchmark")
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: ca.template.NotBefore,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:    ca.template.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca.template, &key.PublicKey, ca.key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca.pem(), nil
}

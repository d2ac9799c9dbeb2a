package faults

import (
	"bufio"
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
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// What a healthy server answers, and nobody else may be taken for.
const (
	bodyBegin = "from outside"
	bodyEnd   = "to the end"
)

// peer is one server outside, and how it behaves.
type peer struct {
	name, step, what string
	behave           func(c net.Conn, p *peers)
	// refused tells that nothing of it may arrive inside.
	refused  bool
	listener net.Listener
}

// peers are all of them, with the authority that the policy trusts.
type peers struct {
	list    []*peer
	ca      []byte
	good    tls.Certificate // for every name
	other   tls.Certificate // of an authority that nobody trusts
	expired tls.Certificate
	strange tls.Certificate // for another name
	denied  atomic.Int64    // requests that no rule allows
}

func (p *peer) port() int { return p.listener.Addr().(*net.TCPAddr).Port }
func (p *peer) host() string {
	return p.name + ".test"
}

// newPeers starts every server on loopback.
func newPeers() (*peers, error) {
	p := &peers{list: behaviours()}
	var names []string
	for _, one := range p.list {
		names = append(names, one.host())
	}
	ca, key, err := authority()
	if err != nil {
		return nil, err
	}
	stranger, strangersKey, err := authority()
	if err != nil {
		return nil, err
	}
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	now := time.Now()
	var errs [4]error
	p.good, errs[0] = issue(ca, key, now.Add(time.Hour), names...)
	p.other, errs[1] = issue(stranger, strangersKey, now.Add(time.Hour), names...)
	p.expired, errs[2] = issue(ca, key, now.Add(-time.Hour), names...)
	p.strange, errs[3] = issue(ca, key, now.Add(time.Hour), "somebody-else.test")
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for _, one := range p.list {
		if one.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			p.close()
			return nil, fmt.Errorf("listen as %s: %w", one.name, err)
		}
		go one.serve(p)
	}
	return p, nil
}

func (p *peers) close() {
	for _, one := range p.list {
		if one.listener != nil {
			_ = one.listener.Close()
		}
	}
}

func (p *peer) serve(all *peers) {
	if p.behave == nil { // nobody accepts
		return
	}
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			p.behave(c, all)
		}()
	}
}

func authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "authority of the proof"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(der)
	return ca, key, err
}

func issue(ca *x509.Certificate, key *ecdsa.PrivateKey, until time.Time, names ...string) (tls.Certificate, error) {
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// over speaks TLS and hands a request that was read to answer.
func over(certificate func(p *peers) tls.Certificate, answer func(c net.Conn, r *http.Request)) func(net.Conn, *peers) {
	return func(raw net.Conn, p *peers) {
		c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{certificate(p)}, MinVersion: tls.VersionTLS12})
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if !strings.HasPrefix(r.URL.Path, "/ok/") {
				p.denied.Add(1)
			}
			answer(c, r)
		}
	}
}

func goodCertificate(p *peers) tls.Certificate { return p.good }

func whole(c net.Conn, _ *http.Request) {
	body := bodyBegin + " " + bodyEnd + "\n"
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// says sends that and is silent then, or closes.
func says(text string, then func(c net.Conn)) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, text)
		then(c)
	}
}

func stall(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func hangUp(c net.Conn) { _ = c.Close() }

func reset(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

func raw(do func(c net.Conn)) func(net.Conn, *peers) {
	return func(c net.Conn, _ *peers) { do(c) }
}

// behaviours lists the servers by the step of the proxy at which they misbehave.
func behaviours() []*peer {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"
	half := head + "\r\n" + bodyBegin
	return []*peer{
		{name: "good", step: "forward", what: "a healthy server", behave: over(goodCertificate, whole)},
		{name: "second", step: "reload", what: "a healthy server that a reload forbids", behave: over(goodCertificate, whole)},
		{name: "full", step: "dial", what: "nobody accepts"},
		{name: "silent", step: "upstream TLS", what: "accepts and is silent", behave: raw(stall)},
		{name: "closes", step: "upstream TLS", what: "accepts and closes", behave: raw(hangUp)},
		{name: "resets", step: "upstream TLS", what: "accepts and resets", behave: raw(reset)},
		{name: "rubbish", step: "upstream TLS", what: "speaks no TLS", behave: raw(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+bodyBegin) })},
		{name: "alert", step: "upstream TLS", what: "sends an alert", behave: raw(func(c net.Conn) { _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) })},
		{name: "part", step: "upstream TLS", what: "stops in its first record", behave: raw(func(c net.Conn) { _, _ = c.Write([]byte{22, 3, 3, 1, 0, 2, 0}); stall(c) })},
		{name: "stranger", step: "upstream TLS", what: "has a certificate of another authority", refused: true, behave: over(func(p *peers) tls.Certificate { return p.other }, whole)},
		{name: "expired", step: "upstream TLS", what: "has a certificate that expired", refused: true, behave: over(func(p *peers) tls.Certificate { return p.expired }, whole)},
		{name: "misnamed", step: "upstream TLS", what: "has a certificate for another name", refused: true, behave: over(func(p *peers) tls.Certificate { return p.strange }, whole)},
		{name: "mute", step: "forward", what: "reads the request and is silent", behave: over(goodCertificate, says("", stall))},
		{name: "rude", step: "forward", what: "resets once it has the request", behave: over(goodCertificate, says("", reset))},
		{name: "halfhead", step: "answer", what: "stops in the head of its answer", behave: over(goodCertificate, says(head, stall))},
		{name: "badhead", step: "answer", what: "answers with a head that is none", behave: over(goodCertificate, says("HTTP/9 x\x00\r\n: :\r\n\r\n"+bodyBegin, hangUp))},
		{name: "twolengths", step: "answer", what: "answers with two lengths", refused: true, behave: over(goodCertificate, says("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 12\r\n\r\n"+bodyBegin, hangUp))},
		{name: "endless", step: "answer", what: "has a head without an end", behave: over(goodCertificate, says("HTTP/1.1 200 OK\r\n"+strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 4000), stall))},
		{name: "interim", step: "answer", what: "sends interim answers without an end", behave: over(goodCertificate, says(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20000), stall))},
		{name: "halfbody", step: "answer", what: "stops in the body", behave: over(goodCertificate, says(half, stall))},
		{name: "cutbody", step: "answer", what: "resets in the body", behave: over(goodCertificate, says(half, reset))},
		{name: "badchunk", step: "answer", what: "sends a chunk that is none", behave: over(goodCertificate, says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", hangUp))},
	}
}

// policy allows each of them one path, and trusts their authority.
func (p *peers) policy(ca string, without ...string) string {
	var hosts, rules strings.Builder
	var ports []string
	for _, one := range p.list {
		ports = append(ports, itoa(one.port()))
		fmt.Fprintf(&hosts, "    %s: [127.0.0.1]\n", one.host())
		skip := false
		for _, name := range without {
			skip = skip || name == one.name
		}
		if !skip {
			fmt.Fprintf(&rules, "    - {name: %s, host: %s, ports: [%d], allow: [{methods: [GET], paths: [\"/ok/**\"]}]}\n", one.name, one.host(), one.port())
		}
	}
	return fmt.Sprintf(`version: 1
name: faults
extends: [builtin:strict]
network:
  hosts:
%s  private:
    - {cidr: 127.0.0.1, ports: [%s], reason: the servers of the proof}
  ca: [%q]
  rules:
%s    - {name: resolved, host: "*.resolved.test", ports: [443], protocol: tcp}
`, hosts.String(), strings.Join(ports, ", "), ca, rules.String())
}

// fill takes all places in the queue of the server that never accepts.
func (p *peers) fill() (stop func(), err error) {
	for _, one := range p.list {
		if one.behave != nil {
			continue
		}
		file, err := one.listener.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		err = syscall.Listen(int(file.Fd()), 0)
		_ = file.Close()
		if err != nil {
			return nil, err
		}
		var held []net.Conn
		for range 3 {
			if c, err := net.DialTimeout("tcp4", one.listener.Addr().String(), 200*time.Millisecond); err == nil {
				held = append(held, c)
			}
		}
		return func() {
			for _, c := range held {
				_ = c.Close()
			}
		}, nil
	}
	return func() {}, nil
}

package peers

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// company is what stands between a sandbox and the outside in some houses: a
// proxy with a password, and a server that wants a client certificate.
type company struct {
	root               []byte // its authority (PEM)
	clientCert         []byte
	clientKey          []byte
	origin, proxy      int
	requests, connects atomic.Int64
}

const housePassword = "only-for-the-house"

// issued is a certificate with its key, as files hold them.
type issued struct {
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	certPEM   []byte
	keyPEM    []byte
	tlsConfig tls.Certificate
}

func issue(t *testing.T, name string, by *issued) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	out := issued{cert: cert, key: key}
	out.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	out.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if out.tlsConfig, err = tls.X509KeyPair(out.certPEM, out.keyPEM); err != nil {
		t.Fatal(err)
	}
	return out
}

// openCompany starts both. The server answers with the name of its client.
func openCompany(t *testing.T, ask tls.ClientAuthType) *company {
	t.Helper()
	c := &company{}
	root := issue(t, "authority.test", nil)
	server, client := issue(t, "origin.test", &root), issue(t, "agent.test", &root)
	c.root, c.clientCert, c.clientKey = root.certPEM, client.certPEM, client.keyPEM
	pool := x509.NewCertPool()
	pool.AddCert(root.cert)
	origin := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{server.tlsConfig}, ClientAuth: ask, ClientCAs: pool},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.requests.Add(1)
			who := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				who = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			_, _ = io.WriteString(w, "client "+who)
		}),
	}
	l := listen(t)
	c.origin = l.Addr().(*net.TCPAddr).Port
	go func() { _ = origin.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = origin.Close() })
	p := listen(t)
	c.proxy = p.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() { _ = p.Close() })
	go func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			go c.tunnel(conn)
		}
	}()
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tunnel serves one CONNECT. The house's proxy alone knows where origin.test is.
func (c *company) tunnel(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+housePassword))
	if r.Method != http.MethodConnect || r.Host != "origin.test:443" || r.Header.Get("Proxy-Authorization") != want {
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	c.connects.Add(1)
	up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.origin))
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(up, in) }()
	_, _ = io.Copy(conn, up)
}

// lay writes the company's files where the account keeps them, outside of the
// workspace, and gives their directory.
func (c *company) lay(t *testing.T, w wraptest.World) string {
	dir := w.Dir(t, "company")
	w.Write(t, filepath.Join(dir, "root.pem"), string(c.root))
	w.Write(t, filepath.Join(dir, "cert.pem"), string(c.clientCert))
	w.Write(t, filepath.Join(dir, "key.pem"), string(c.clientKey))
	return dir
}

// TestWayOfTheHouse goes through the house's proxy with a password, and to a
// server that wants a client certificate. The agent has neither.
func TestWayOfTheHouse(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"curl", "env", "cat"})
	c := openCompany(t, tls.RequireAndVerifyClientCert)
	dir, work := c.lay(t, w), w.Dir(t, "work")
	policy := w.PolicyFile(t, "house", fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
network:
  rules: [{name: origin, host: origin.test, access: read-only}]
  ca: [%[1]s/root.pem]
  upstream:
    proxy: env
    certificates: [{hosts: [origin.test], cert: %[1]s/cert.pem, key: %[1]s/key.pem}]
`, dir))
	house := fmt.Sprintf("https_proxy=http://me:%s@127.0.0.1:%d", housePassword, c.proxy)
	get := []string{"curl", "-sS", "-m", "20", "https://origin.test/"}
	inside := w.Wrap(work, policy, get...)
	inside.Env = append(inside.Env, house)
	if got := wraptest.Run(t, inside, limit); got.Out != "client agent.test" || c.connects.Load() == 0 {
		t.Errorf("inside: got %q, %q, %d tunnels, want the client's name", got.Out, got.Err, c.connects.Load())
	}
	look := w.Wrap(work, policy, "sh", "-c", "env; cat /proc/self/environ; cat "+dir+"/key.pem; ls "+dir)
	look.Env = append(look.Env, house)
	got := wraptest.Run(t, look, limit)
	for _, secret := range []string{housePassword, "PRIVATE KEY", "key.pem\n"} {
		if strings.Contains(got.Out, secret) {
			t.Errorf("got %q visible inside", secret)
		}
	}
	wrong := w.Wrap(work, policy, get...)
	wrong.Env = append(wrong.Env, strings.Replace(house, housePassword, "wrong-password", 1))
	if got := wraptest.Run(t, wrong, limit); !strings.Contains(got.Out, "(407)") || strings.Contains(got.Out+got.Err, "wrong-password") {
		t.Errorf("wrong password: got %q %q, want a clear answer without it", got.Out, got.Err)
	}
	socks := w.Wrap(work, policy, get...)
	socks.Env = append(socks.Env, "https_proxy=socks5://me:"+housePassword+"@127.0.0.1:1")
	if got := wraptest.Run(t, socks, limit); got.Exit != 125 || !strings.Contains(got.Err, "must be http:// or https://") || strings.Contains(got.Err, housePassword) {
		t.Errorf("socks5: got exit %d, %q, want 125 and the reason", got.Exit, got.Err)
	}
}

// The launcher's environment does not weaken how servers are verified (corpus D76).
func TestEnvironmentDoesNotChangeVerification(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"curl"})
	c := openCompany(t, tls.NoClientCert)
	dir, work := c.lay(t, w), w.Dir(t, "work")
	policy := func(name, ca string) string {
		return w.PolicyFile(t, name, fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
network:
  hosts: {origin.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the server of this test}]
  rules: [{name: origin, host: origin.test, access: read-only, ports: [%[1]d]}]
%s`, c.origin, ca))
	}
	get := []string{"curl", "-sS", "-m", "20", fmt.Sprintf("https://origin.test:%d/", c.origin)}
	trusting := policy("trusting", "  ca: ["+dir+"/root.pem]\n")
	if got := wraptest.Run(t, w.Wrap(work, trusting, get...), limit); got.Out != "client nobody" {
		t.Fatalf("control: got %q, %q, want an answer", got.Out, got.Err)
	}
	plain := policy("plain", "")
	for _, env := range []string{
		"SSL_CERT_FILE=" + dir + "/root.pem", "SSL_CERT_DIR=" + dir, "GODEBUG=x509usefallbackroots=1,tlsmaxrsasize=0",
		"NODE_TLS_REJECT_UNAUTHORIZED=0", "CURL_CA_BUNDLE=" + dir + "/root.pem",
	} {
		cmd := w.Wrap(work, plain, get...)
		cmd.Env = append(cmd.Env, env)
		before := c.requests.Load()
		got := wraptest.Run(t, cmd, limit)
		if !strings.Contains(got.Out, "certificate is not valid") || c.requests.Load() != before {
			t.Errorf("%s: got %q, %q and %d requests, want a refusal", env, got.Out, got.Err, c.requests.Load()-before)
		}
	}
}

// What a command leaves running when it ends makes no request any more (corpus C41).
func TestNothingAfterTheEnd(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"curl", "setsid"})
	c := openCompany(t, tls.NoClientCert)
	dir, work := c.lay(t, w), w.Dir(t, "work")
	policy := w.PolicyFile(t, "after", fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
network:
  hosts: {origin.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the server of this test}]
  rules: [{name: origin, host: origin.test, access: read-only, ports: [%[1]d]}]
  ca: [%s/root.pem]
`, c.origin, dir))
	later := fmt.Sprintf("(sleep 1; curl -sS https://origin.test:%d/) ", c.origin)
	control := wraptest.Run(t, w.Wrap(work, policy, "sh", "-c", later), limit)
	if control.Out != "client nobody" || c.requests.Load() != 1 {
		t.Fatalf("control: got %q, %q, want one request", control.Out, control.Err)
	}
	for _, script := range []string{later + "& exit 0", "setsid -f sh -c '" + later + "' </dev/null >/dev/null 2>&1; exit 0"} {
		begin := time.Now()
		if got := wraptest.Run(t, w.Wrap(work, policy, "sh", "-c", script), limit); got.Exit != 0 {
			t.Errorf("got exit %d, %q, want 0", got.Exit, got.Err)
		}
		// Whatever would still come has come by then.
		<-time.After(time.Until(begin.Add(2500 * time.Millisecond)))
	}
	if n := c.requests.Load(); n != 1 {
		t.Errorf("got %d requests, want the control's alone", n)
	}
}

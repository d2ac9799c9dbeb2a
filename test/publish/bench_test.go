// Package publish reaches a sandbox from outside, with the real binary: clients
// that may, and those that must not.
package publish

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// patience bounds every wait.
const patience = 60 * time.Second

// token is what the entries with a token want.
const token = "1f0c6ab8d3e94572b0a1c2d3e4f50617a8b9cadb"

// bench is a sandbox with the service inside and the entries of a policy.
type bench struct {
	wraptest.World
	dir   string // the workspace
	keys  string // the token, the certificate and its key
	ports map[string]string
	roots *x509.CertPool
	cmd   *exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

// prepare makes everything but the sandbox.
func prepare(t *testing.T) *bench {
	w := wraptest.New(t)
	b := &bench{World: w, dir: w.Dir(t, "ws"), keys: w.Dir(t, "keys"), ports: map[string]string{}, said: &bytes.Buffer{}, ended: make(chan struct{})}
	w.Write(t, filepath.Join(b.keys, "token"), token+"\n")
	cert, key, roots := certificate(t)
	w.Write(t, filepath.Join(b.keys, "cert.pem"), cert)
	w.Write(t, filepath.Join(b.keys, "key.pem"), key)
	for _, name := range []string{"token", "key.pem"} {
		if err := os.Chmod(filepath.Join(b.keys, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.roots = roots
	for _, name := range []string{"plain", "bytes", "token", "secure", "ended", "few", "fewtoken", "second", "secondtoken", "from", "unix"} {
		b.ports[name] = free(t, b.ports)
	}
	inner := filepath.Join(b.dir, "inner")
	tmp := filepath.Join(t.TempDir(), "inner")
	build := exec.Command("go", "build", "-trimpath", "-o", tmp, "./inner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the service: %v\n%s", err, out)
	}
	text, err := os.ReadFile(tmp)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(t, inner, string(text))
	if err := os.Chmod(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// start runs the service inside with all entries, and waits until it listens.
func start(t *testing.T) *bench {
	b := prepare(t)
	b.run(t)
	return b
}

func (b *bench) policy(t *testing.T) string {
	return b.PolicyFile(t, "p", strings.NewReplacer("KEYS", b.keys, "WS", b.dir, "SOCK", filepath.Join(b.keys, "host.sock")).Replace(fmt.Sprintf(`version: 1
extends: [builtin:strict]
workspace: {path: ., access: write}
network:
  publish:
    - {name: plain, listen: "%s", to: "8000"}
    - {name: bytes, listen: "%s", to: "8001"}
    - {name: token, listen: "%s", to: "8000", bearer: {file: KEYS/token}}
    - {name: secure, listen: "%s", to: "8000", bearer: {file: KEYS/token}, tls: {cert: KEYS/cert.pem, key: KEYS/key.pem}}
    - {name: ended, listen: "%s", to: "8001", tls: {cert: KEYS/cert.pem, key: KEYS/key.pem}}
    - {name: few, listen: "%s", to: "8001", max_connections: 50}
    - {name: fewtoken, listen: "%s", to: "8000", max_connections: 50, bearer: {file: KEYS/token}}
    - {name: second, listen: "%s", to: "8002"}
    - {name: secondtoken, listen: "%s", to: "8002", bearer: {file: KEYS/token}}
    - {name: from, listen: "%s", to: "8000", from: [127.0.0.2]}
    - {name: unix, listen: "%s", to: WS/inner.sock}
    - {name: socket, listen: SOCK, to: "8000"}
`, b.ports["plain"], b.ports["bytes"], b.ports["token"], b.ports["secure"], b.ports["ended"], b.ports["few"], b.ports["fewtoken"],
		b.ports["second"], b.ports["secondtoken"], b.ports["from"], b.ports["unix"])))
}

func (b *bench) run(t *testing.T, before ...string) {
	argv := append(before, b.Bin, "--quiet", "--policy", b.policy(t), "--", "./inner", b.dir)
	b.cmd = b.Bare(b.dir, argv...)
	b.cmd.Stdout, b.cmd.Stderr = b.said, b.said
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.ended)
		_ = b.cmd.Wait()
	}()
	t.Cleanup(func() { b.stop(t) })
	eventually(t, "the service inside listens", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "ready"))
		select {
		case <-b.ended:
			t.Fatalf("the run ended:\n%s", b.said)
		default:
		}
		return err == nil
	})
}

// stop ends the run and waits for it.
func (b *bench) stop(t *testing.T) {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(patience):
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
		t.Errorf("the run does not end:\n%s", b.said)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// free gives a port that nobody listens on, below those that the kernel hands out
// by itself.
func free(t *testing.T, but map[string]string) string {
	for range 1000 {
		n, err := rand.Int(rand.Reader, big.NewInt(12_000))
		if err != nil {
			t.Fatal(err)
		}
		port := fmt.Sprint(20_000 + n.Int64())
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			if !slices.Contains(slices.Collect(maps.Values(but)), port) {
				return port
			}
		}
	}
	t.Fatal("no port is free")
	return ""
}

func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cert))
	return cert, key, roots
}

// dial connects to an entry. A reset may come before connect(2) has returned; the
// connection is then a closed one.
func (b *bench) dial(t *testing.T, entry string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.1:"+b.ports[entry])
	if errors.Is(err, syscall.ECONNRESET) {
		closed, _ := net.Pipe()
		_ = closed.Close()
		return closed
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// sends sends bytes and gives the statuses of the answers until the connection
// ends, and what was left when it was no HTTP.
func sends(t *testing.T, c net.Conn, text string) (statuses []int) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		return nil
	}
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		statuses = append(statuses, resp.StatusCode)
		if resp.Close {
			return statuses
		}
	}
}

// ask sends a GET through the plain entry and gives the answer's text.
func (b *bench) ask(t *testing.T, target string) string {
	t.Helper()
	resp, err := http.Get("http://127.0.0.1:" + b.ports["plain"] + target)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

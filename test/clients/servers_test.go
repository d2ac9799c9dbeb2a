package clients

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// names are the hosts that the test servers answer for.
var names = []string{"allowed.test", "denied.test", "api.test", "pass.test"}

// servers are the servers outside the sandbox, on loopback.
type servers struct {
	https, http int // ports
	ca          []byte
	caDER       []byte
}

// startServers starts an HTTPS and an HTTP server that answer alike: /git/ and
// /private/ are repositories below repos, everything else says what was asked.
func startServers(t *testing.T, repos string) servers {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		fmt.Fprintf(w, "upstream saw %s %s %s", r.Method, host, r.URL.Path)
	})
	backend := gitBackend(t, repos)
	mux.Handle("/git/", backend)
	mux.Handle("/private/", backend)
	certificate, ca := issue(t)
	secure := httptest.NewUnstartedServer(mux)
	secure.EnableHTTP2 = true
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(mux)
	t.Cleanup(plain.Close)
	return servers{
		https: port(secure), http: port(plain), caDER: ca,
		ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}),
	}
}

func port(s *httptest.Server) int {
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// issue makes an authority and a certificate for all names; the authority
// comes back as DER.
func issue(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: names[0]},
		DNSNames:     names,
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER := sign(t, ca, ca, caKey, caKey)
	leafDER := sign(t, leaf, ca, key, caKey)
	return tls.Certificate{Certificate: [][]byte{leafDER, caDER}, PrivateKey: key}, caDER
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, c, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// gitBackend makes git/repo.git and private/repo.git below dir, each with one
// commit, and serves them as git's own server program does.
func gitBackend(t *testing.T, dir string) http.Handler {
	t.Helper()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, name := range []string{"git", "private"} {
		repo := filepath.Join(name, "repo.git")
		git("init", "-q", "--bare", "-b", "main", repo)
		git("-C", repo, "config", "http.receivepack", "true")
		tree := git("-C", repo, "hash-object", "-t", "tree", "-w", "/dev/null")
		commit := git("-C", repo, "commit-tree", "-m", "from "+name, tree)
		git("-C", repo, "update-ref", "refs/heads/main", commit)
	}
	return &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
}

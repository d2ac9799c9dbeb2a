package proxy

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

func mustHost(t testing.TB, s string) netpolicy.Host {
	t.Helper()
	h, err := netpolicy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAuthority(t *testing.T) {
	a, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := poolOf(t, a)
	for _, name := range []string{"api.example.org", "93.184.215.1", "2606:4700::1"} {
		cert, err := a.leafFor(mustHost(t, name))
		if err != nil {
			t.Fatal(err)
		}
		verify := name
		if mustHost(t, name).IsAddr() {
			verify = "[" + name + "]"
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: verify}); err != nil {
			t.Errorf("%s: got %v, want a valid certificate", name, err)
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "other.example.org"}); err == nil {
			t.Errorf("%s: got a certificate that is valid for another name", name)
		}
		again, err := a.leafFor(mustHost(t, name))
		if err != nil || again != cert {
			t.Errorf("%s: got a second certificate, want the cached one", name)
		}
		if len(cert.Leaf.AuthorityKeyId) == 0 || len(cert.Leaf.SubjectKeyId) == 0 {
			t.Errorf("%s: key identifiers are missing", name)
		}
	}
	if !a.cert.IsCA || a.cert.KeyUsage&x509.KeyUsageCertSign == 0 || len(a.cert.SubjectKeyId) == 0 {
		t.Errorf("authority: got %+v, want a complete CA", a.cert)
	}
}

// Leaves are renewed before they end and stay bounded in number.
func TestAuthorityCache(t *testing.T) {
	now := time.Now()
	a, err := NewAuthority(func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	h := mustHost(t, "api.example.org")
	first, err := a.leafFor(h)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(leafLife - leafRenew + time.Minute)
	second, err := a.leafFor(h)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Error("got the old certificate, want a new one")
	}
	for i := range maxLeaves {
		if _, err := a.leafFor(mustHost(t, fmt.Sprintf("n%d.example.org", i))); err != nil {
			t.Fatal(err)
		}
		if _, err := a.leafFor(h); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("leaves: got %d, want at most %d", len(a.leaves), maxLeaves)
	}
	if kept, _ := a.leafFor(h); kept != second {
		t.Error("the certificate in use was dropped")
	}
}

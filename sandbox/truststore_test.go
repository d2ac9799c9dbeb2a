package sandbox

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
)

// bundleOf makes a PEM bundle of so many blocks; the store does not look into them.
func bundleOf(n int) []byte {
	var b bytes.Buffer
	b.WriteString("# a comment, as distributions write them\n")
	for i := range n {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: bytes.Repeat([]byte{byte(i)}, 1200)})
		_ = pem.Encode(&b, &pem.Block{Type: "X509 CRL", Bytes: []byte("left out")})
	}
	return b.Bytes()
}

func TestJavaTruststoreHoldsEveryCertificate(t *testing.T) {
	raw, err := JavaTruststore(bundleOf(3))
	if err != nil {
		t.Fatal(err)
	}
	ks := keystore.New()
	if err := ks.Load(bytes.NewReader(raw), []byte("changeit")); err != nil {
		t.Fatalf("load with Java's default password: %v", err)
	}
	if got := len(ks.Aliases()); got != 3 {
		t.Errorf("certificates: got %d, want 3", got)
	}
	for _, alias := range ks.Aliases() {
		if e, err := ks.GetTrustedCertificateEntry(alias); err != nil || len(e.Certificate.Content) != 1200 {
			t.Errorf("%s: got %d bytes, %v, want a trusted certificate of 1200", alias, len(e.Certificate.Content), err)
		}
	}
}

func TestTruststores(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"jdk/lib/security", "old/jre/lib/security", "linked/lib/security", "hidden/lib/security", "node/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	store := filepath.Join(dir, "jdk/lib/security/cacerts")
	for _, f := range []string{store, filepath.Join(dir, "old/jre/lib/security/cacerts"), filepath.Join(dir, "hidden/lib/security/cacerts")} {
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(store, filepath.Join(dir, "linked/lib/security/cacerts")); err != nil {
		t.Fatal(err)
	}
	var roots []string
	for _, d := range []string{"jdk", "old", "linked", "hidden", "node"} {
		roots = append(roots, filepath.Join(dir, d))
	}
	got := truststores(roots, func(p string) bool { return within(p, dir) && !strings.Contains(p, "hidden") })
	if diff := cmp.Diff([]string{store, filepath.Join(dir, "old/jre/lib/security/cacerts")}, got); diff != "" {
		t.Errorf("stores (-want +got):\n%s", diff)
	}
}

// BenchmarkJavaTruststore has the size of a distribution's bundle; it is paid
// at each launch that inspects TLS where Java is installed.
func BenchmarkJavaTruststore(b *testing.B) {
	bundle := bundleOf(145)
	for b.Loop() {
		if _, err := JavaTruststore(bundle); err != nil {
			b.Fatal(err)
		}
	}
}

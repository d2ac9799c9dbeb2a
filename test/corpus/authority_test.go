package corpus

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// The authority of a run is trusted inside and only inside, and only in that
// run: nothing of it stays on the host, and the next run has another (corpus D79).
func TestAuthorityEndsWithTheRun(t *testing.T) {
	s := newScene(t)
	inspecting := s.PolicyFile(t, "inspecting", "version: 1\nextends: [builtin:strict]\nnetwork: {rules: [{name: one, host: allowed.test, access: read-only}]}\n")
	bundle := ""
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"} {
		if _, err := os.Stat(path); err == nil {
			bundle = path
			break
		}
	}
	if bundle == "" {
		t.Fatal("missing: a certificate bundle of the system")
	}
	before, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	host := certificates(t, before)
	var ours []*x509.Certificate
	for range 2 {
		r := wraptest.Run(t, s.Wrap(s.dir, inspecting, "cat", bundle), limit)
		if r.Exit != 0 {
			t.Fatalf("got exit %d, want 0\n%s", r.Exit, r.Err)
		}
		added := 0
		for sum, c := range certificates(t, []byte(r.Out)) {
			if host[sum] == nil {
				added++
				ours = append(ours, c)
			}
		}
		if added != 1 {
			t.Fatalf("control: got %d certificates beyond the host's, want 1", added)
		}
	}
	if ours[0].Equal(ours[1]) {
		t.Error("got the same authority in two runs, want one for each")
	}
	for _, c := range ours {
		if !c.IsCA || time.Until(c.NotAfter) > 60*24*time.Hour {
			t.Errorf("got an authority until %v, want one that ends soon", c.NotAfter)
		}
	}
	after, err := os.ReadFile(bundle)
	if err != nil || string(after) != string(before) {
		t.Errorf("the host's bundle: got a change (%v), want none", err)
	}
	_ = filepath.WalkDir(s.Home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, c := range ours {
			if err == nil && strings.Contains(string(text), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))) {
				t.Errorf("%s: got the authority of a run, want it nowhere on the host", path)
			}
		}
		return nil
	})
}

func certificates(t *testing.T, text []byte) map[[32]byte]*x509.Certificate {
	t.Helper()
	out := map[[32]byte]*x509.Certificate{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out[sha256.Sum256(c.Raw)] = c
	}
	return out
}

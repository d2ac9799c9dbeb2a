package sandbox

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
)

// truststorePath is where the trust store for Java lies inside. Java reads no
// PEM bundle and no variable that would not also print a line of its own
// (JAVA_TOOL_OPTIONS), so the store of each visible run time is covered.
const truststorePath = "/run/hermes-wrap/cacerts"

// truststorePassword is Java's default; the store holds nothing secret.
const truststorePassword = "changeit"

// truststorePlaces are where systems and run times keep their trust store.
var truststorePlaces = []string{
	"/etc/ssl/certs/java/cacerts", // Debian; the run times link to it
	"/etc/pki/java/cacerts",       // Fedora
	"/etc/pki/ca-trust/extracted/java/cacerts",
	"/var/lib/ca-certificates/java-cacerts", // openSUSE
	"/usr/lib/jvm/*/lib/security/cacerts",
	"/usr/lib/jvm/*/jre/lib/security/cacerts", // Java 8
	"/opt/*/lib/security/cacerts",
	"/opt/*/jre/lib/security/cacerts",
	"/opt/*/jbr/lib/security/cacerts", // an editor's own
}

// truststores gives the real paths of the visible Java trust stores; roots are
// the visible trees, any of which may itself be a run time.
func truststores(roots []string, visible func(string) bool) (out []string) {
	candidates := slices.Clone(truststorePlaces)
	for _, root := range roots {
		candidates = append(candidates, root+"/lib/security/cacerts", root+"/jre/lib/security/cacerts")
	}
	for _, pattern := range candidates {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, path := range paths {
			if r, err := resolve(path); err == nil && r.mode.IsRegular() && visible(r.real) && !slices.Contains(out, r.real) {
				out = append(out, r.real)
			}
		}
	}
	slices.Sort(out)
	return out
}

// JavaTruststore turns a PEM bundle into a trust store that every Java since 8
// reads without being told a type or a password: JKS, because its check sum
// costs microseconds where PKCS #12 derives a key.
func JavaTruststore(bundle []byte) ([]byte, error) {
	size := len(bundle)
	ks := keystore.New(keystore.WithOrderedAliases())
	for n := 0; ; {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		n++
		entry := keystore.TrustedCertificateEntry{Certificate: keystore.Certificate{Type: "X.509", Content: block.Bytes}}
		if err := ks.SetTrustedCertificateEntry("ca-"+strconv.Itoa(n), entry); err != nil {
			return nil, fmt.Errorf("add certificate %d to the Java trust store: %w", n, err)
		}
	}
	var b bytes.Buffer
	b.Grow(size)
	if err := ks.Store(&b, []byte(truststorePassword)); err != nil {
		return nil, fmt.Errorf("write the Java trust store: %w", err)
	}
	return b.Bytes(), nil
}

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
)

// TestLook is the control of what other tests do not find: a key is found in
// each form that it has in files and memory, and another key is not.
func TestLook(t *testing.T) {
	key, other := newKey(t), newKey(t)
	for _, c := range []struct {
		name string
		key  *ecdsa.PrivateKey
		want int
	}{{"the authority's key", key, 1}, {"another key", other, 0}} {
		t.Run(c.name, func(t *testing.T) {
			sec1, err1 := x509.MarshalECPrivateKey(c.key)
			pkcs8, err2 := x509.MarshalPKCS8PrivateKey(c.key)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			for form, text := range map[string][]byte{
				"SEC 1": sec1, "PKCS #8": pkcs8,
				"SEC 1 in PEM":   pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
				"PKCS #8 in PEM": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
			} {
				var out bytes.Buffer
				s := &search{secret: []byte("the-secret"), public: &key.PublicKey, out: &out}
				s.look(append([]byte("something before "), text...), form)
				if got := strings.Count(out.String(), "found the authority's key in "+form); got != c.want {
					t.Errorf("%s: got %d finds (%q), want %d", form, got, out.String(), c.want)
				}
			}
		})
	}
	var out bytes.Buffer
	s := &search{secret: []byte("the-secret"), out: &out}
	s.stream(strings.NewReader(strings.Repeat("x", window-4)+"the-secret"), "two windows")
	if got, want := out.String(), "found the secret in two windows\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

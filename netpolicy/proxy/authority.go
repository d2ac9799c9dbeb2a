package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 5280 key identifiers; nothing rests on it
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// The life of certificates. The skew lets clients with a slow clock start; a
// leaf is made anew once less than leafRenew of it is left.
const (
	caLife    = 30 * 24 * time.Hour
	leafLife  = 24 * time.Hour
	leafRenew = 6 * time.Hour
	clockSkew = time.Hour
)

// maxLeaves bounds the cache of leaves.
const maxLeaves = 1024

// Authority is the certificate authority of one run. Its key is made in memory
// and never written anywhere; Export gives it to whoever starts the next proxy of
// the same run. The zero value is not usable; see NewAuthority.
type Authority struct {
	now  func() time.Time
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// leafKey serves every leaf: a key of its own for each would double the
	// price of a new host and protect nothing, as all live in this process.
	leafKey *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[netpolicy.Host]*leaf
	clock  uint64 // counts uses, for finding the leaf that was not used longest
}

type leaf struct {
	cert *tls.Certificate
	ends time.Time
	used uint64
}

// NewAuthority makes an authority. now gives the time; nil is time.Now.
func NewAuthority(now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make authority key: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make leaf key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	// Strict verifiers (Python 3.13 and later) want critical basic constraints,
	// a key usage and both key identifiers; a root's two are equal.
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"hermes-wrap"}, CommonName: fmt.Sprintf("hermes-wrap run %x", serial.Bytes()[:4])},
		NotBefore:             now().Add(-clockSkew),
		NotAfter:              now().Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          id,
		AuthorityKeyId:        id,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make authority certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read authority certificate: %w", err)
	}
	return &Authority{now: now, key: key, cert: cert, leafKey: leafKey, leaves: map[netpolicy.Host]*leaf{}}, nil
}

// Export gives the key and the certificate, for LoadAuthority. They are secret.
func (a *Authority) Export() ([]byte, error) {
	key, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode authority key: %w", err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})
	return append(out, a.CertPEM()...), nil
}

// LoadAuthority goes on with an authority that was exported. Its leaves get
// another key.
func LoadAuthority(exported []byte, now func() time.Time) (*Authority, error) {
	if now == nil {
		now = time.Now
	}
	pair, err := tls.X509KeyPair(exported, exported)
	if err != nil {
		return nil, errors.New("BUG: the authority that was handed over cannot be read") // its text is secret
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("BUG: the authority that was handed over is none")
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make leaf key: %w", err)
	}
	return &Authority{now: now, key: key, cert: pair.Leaf, leafKey: leafKey, leaves: map[netpolicy.Host]*leaf{}}, nil
}

// CertPEM is the public certificate, for the trust stores inside.
func (a *Authority) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// leafFor gives the certificate for a host.
func (a *Authority) leafFor(h netpolicy.Host) (*tls.Certificate, error) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock++
	if l, ok := a.leaves[h]; ok && now.Add(leafRenew).Before(l.ends) {
		l.used = a.clock
		return l.cert, nil
	}
	cert, ends, err := a.sign(h, now)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		a.lockedEvict()
	}
	a.leaves[h] = &leaf{cert: cert, ends: ends, used: a.clock}
	return cert, nil
}

func (a *Authority) sign(h netpolicy.Host, now time.Time) (*tls.Certificate, time.Time, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, time.Time{}, err
	}
	id, err := keyID(&a.leafKey.PublicKey)
	if err != nil {
		return nil, time.Time{}, err
	}
	ends := now.Add(leafLife)
	if ends.After(a.cert.NotAfter) {
		ends = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"hermes-wrap"}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              ends,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		SubjectKeyId:          id,
	}
	if h.IsAddr() {
		template.IPAddresses = []net.IP{h.Addr().AsSlice()}
	} else {
		template.DNSNames = []string{h.String()}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leafKey.PublicKey, a.key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("make certificate for %q: %w", h, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read certificate for %q: %w", h, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: parsed}, ends, nil
}

// lockedEvict drops the leaf that was not used longest. It looks at all of
// them, which happens only once the cache is full.
func (a *Authority) lockedEvict() {
	var oldest netpolicy.Host
	least := a.clock + 1
	for h, l := range a.leaves {
		if l.used < least {
			oldest, least = h, l.used
		}
	}
	delete(a.leaves, oldest)
}

// newSerial gives a positive serial number of 127 random bits (RFC 5280 allows 159).
func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b), nil
}

// keyID is the key identifier of RFC 5280, section 4.2.1.2, method 1.
func keyID(key *ecdsa.PublicKey) ([]byte, error) {
	point, err := key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha1.Sum(point) //nolint:gosec // see above
	return sum[:], nil
}

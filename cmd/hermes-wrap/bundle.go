package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// hostBundles are where distributions keep the certificate authorities.
var hostBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// bundle merges the host's authorities, the policy's and the run's own: programs
// that replace their bundle must still trust hosts that are passed through.
func bundle(ca []byte, p policy.Policy) ([]byte, error) {
	var b bytes.Buffer
	for _, path := range hostBundles {
		if data, err := os.ReadFile(path); err == nil {
			b.Write(data)
			break
		}
	}
	for _, extra := range p.Network.CA {
		data, err := os.ReadFile(extra.Abs)
		if err != nil {
			return nil, fmt.Errorf("%s: network.ca: %w", extra.Pos, err)
		}
		b.WriteByte('\n')
		b.Write(data)
	}
	b.WriteByte('\n')
	b.Write(ca)
	return b.Bytes(), nil
}

// blobs waits for the proxy's certificate and puts it among the others; nil when
// nothing is inspected.
func (l *launch) blobs(px *proxyClient) func() (map[sandbox.Blob][]byte, error) {
	if !l.prep.plan.Inspect {
		return nil
	}
	return func() (map[sandbox.Blob][]byte, error) {
		ca, err := px.hello()
		if err != nil {
			return nil, err
		}
		pem, err := bundle(ca, l.prep.policy)
		if err != nil {
			return nil, err
		}
		out := map[sandbox.Blob][]byte{sandbox.BlobBundle: pem}
		if l.prep.plan.Wants(sandbox.BlobTruststore) {
			out[sandbox.BlobTruststore], err = sandbox.JavaTruststore(pem)
		}
		return out, err
	}
}

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// JSON gives the policy in canonical form: one line, maps sorted by key,
// positions included. The digest is computed over it, and FromJSON reads it.
// A policy that cannot be encoded (no policy from Load is such) gives nothing,
// which FromJSON refuses.
func (p Policy) JSON() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// FromJSON reads what JSON wrote, in another process of the same program. It
// is no way to load a policy of a user: it does not validate.
func FromJSON(b []byte) (Policy, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var p Policy
	if err := dec.Decode(&p); err != nil {
		return Policy{}, fmt.Errorf("decode policy: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Policy{}, fmt.Errorf("decode policy: data after the end")
	}
	if p.Version != Version {
		return Policy{}, fmt.Errorf("decode policy: version %d, want %d", p.Version, Version)
	}
	if p.digest() != p.Digest {
		return Policy{}, fmt.Errorf("decode policy: digest %q does not fit", p.Digest)
	}
	return p, nil
}

// digest is the SHA-256 of the canonical JSON without the digest itself.
func (p Policy) digest() string {
	p.Digest = ""
	return digest(p.JSON())
}

package credential

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Keys are what requests to AWS are signed with.
type Keys struct{ ID, Secret, Session string }

// String hides the keys from everything that prints.
func (Keys) String() string { return "(keys)" }

// GoString hides them from %#v.
func (Keys) GoString() string { return "(keys)" }

// ParseKeys reads "ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]".
func ParseKeys(s string) (Keys, error) {
	parts := strings.SplitN(s, ":", 3)
	if len(parts) < 2 {
		return Keys{}, errors.New("the secret is not ACCESS_KEY_ID:SECRET_ACCESS_KEY")
	}
	k := Keys{ID: parts[0], Secret: parts[1]}
	if len(parts) == 3 {
		k.Session = parts[2]
	}
	if len(k.ID) < minSecret || len(k.Secret) < minSecret || len(parts) == 3 && len(k.Session) < minSecret {
		return Keys{}, fmt.Errorf("a part of the secret is shorter than %d characters", minSecret)
	}
	return k, nil
}

// The algorithm of every signature, and what stands for the hash of a body that
// is not signed.
const (
	algorithm       = "AWS4-HMAC-SHA256"
	unsigned        = "UNSIGNED-PAYLOAD"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

// Signature is what a client's own signature says: for whom, and what it covers.
type Signature struct {
	Region, Service string
	Fields          []string // in lower case
	// Hash stands for the body: its SHA-256 in hexadecimal, or that it is not
	// signed. "" when the client did not say.
	Hash string
}

// Signed reads how a client signed, before its signature is removed. A request
// that cannot be signed anew is refused.
func (c *Credential) Signed(r *http.Request) (Signature, error) {
	if err := checkPresigned(r.URL.RawQuery); err != nil {
		return Signature{}, err
	}
	s := Signature{Region: c.Spec.AWS.Region, Service: c.Spec.AWS.Service}
	if values := r.Header["Authorization"]; len(values) > 1 {
		return s, errors.New("the request has two signatures")
	} else if len(values) == 1 {
		if err := s.read(values[0]); err != nil {
			return s, err
		}
	}
	if s.Region == "" || s.Service == "" {
		return s, errors.New("neither the request nor the policy says for which region and service it is to be signed")
	}
	values := r.Header["X-Amz-Content-Sha256"]
	if len(values) > 1 {
		return s, errors.New("the request has two hashes of its body")
	}
	if len(values) == 1 {
		s.Hash = values[0]
	}
	return s, checkHash(s.Hash)
}

// read takes an Authorization field apart. What the policy says must agree.
func (s *Signature) read(authorization string) error {
	rest, ok := strings.CutPrefix(authorization, algorithm+" ")
	if !ok {
		return errors.New("the request is signed in another way than " + algorithm)
	}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			if err := s.readScope(value); err != nil {
				return err
			}
		case "SignedHeaders":
			s.Fields = strings.Split(strings.ToLower(value), ";")
		}
	}
	return nil
}

// readScope reads KEY/DATE/REGION/SERVICE/aws4_request.
func (s *Signature) readScope(value string) error {
	parts := strings.Split(value, "/")
	if len(parts) != 5 || parts[4] != "aws4_request" || !isScope(parts[2]) || !isScope(parts[3]) {
		return errors.New("the scope of the request's signature is malformed")
	}
	if s.Region != "" && s.Region != parts[2] || s.Service != "" && s.Service != parts[3] {
		return fmt.Errorf("the request is signed for %s in %s, and the policy says otherwise", parts[3], parts[2])
	}
	s.Region, s.Service = parts[2], parts[3]
	return nil
}

func isScope(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// checkHash refuses bodies whose pieces are signed with the key one by one: only
// the holder of the key could write them anew.
func checkHash(hash string) error {
	if hash == "" || hash == unsigned || hash == unsignedTrailer {
		return nil
	}
	if strings.HasPrefix(hash, "STREAMING-") {
		return errors.New("the pieces of the body are signed one by one (" + clip(hash) + "), which the proxy cannot do again: have the client send an unsigned or a whole payload")
	}
	if b, err := hex.DecodeString(hash); err != nil || len(b) != 32 {
		return errors.New("X-Amz-Content-Sha256 is malformed")
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), 64)] }

// checkPresigned refuses a signature in the query: nobody could use it but with
// the placeholder's key.
func checkPresigned(raw string) error {
	for pair := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			return errors.New("malformed query")
		}
		switch strings.ToLower(name) {
		case "x-amz-signature", "x-amz-credential", "x-amz-algorithm", "x-amz-security-token", "awsaccesskeyid", "signature":
			return errors.New("the request is signed in its query (presigned), which the proxy does not do again")
		}
	}
	return nil
}

// NeedsBody tells whether the body's hash must be known to sign.
func (s Signature) NeedsBody() bool { return s.Hash == "" }

// signedPath spells a path as servers do before they check: every byte but
// letters, digits, "-", ".", "_", "~" and the slash in hexadecimal.
func signedPath(path string) (string, error) {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return "", errors.New("sign the request: malformed path")
	}
	var b strings.Builder
	for _, c := range []byte(plain) {
		if classOf(c) != "" || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String(), nil
}

// Sign signs the request anew, with the fields that the client had signed, those
// of AWS, and the type of the content.
func (c *Credential) Sign(r *http.Request, s Signature, keys Keys, now time.Time) error {
	path, err := signedPath(cmp.Or(r.URL.Opaque, r.URL.EscapedPath()))
	if err != nil {
		return err
	}
	signed := &http.Request{
		Method: r.Method, Host: r.Host, Header: http.Header{}, ContentLength: r.ContentLength,
		URL: &url.URL{Scheme: r.URL.Scheme, Host: r.Host, Opaque: "//" + r.Host + path, RawQuery: r.URL.RawQuery},
	}
	for field, values := range r.Header {
		lower := strings.ToLower(field)
		if slices.Contains(s.Fields, lower) || strings.HasPrefix(lower, "x-amz-") || lower == "content-type" {
			signed.Header[field] = values
		}
	}
	if !slices.Contains(s.Fields, "content-length") {
		signed.ContentLength = 0
	}
	delete(signed.Header, "Authorization")
	delete(signed.Header, "X-Amz-Date")
	signer := v4.NewSigner(func(o *v4.SignerOptions) {
		// S3 alone takes paths as they are.
		o.DisableURIPathEscaping = s.Service == "s3" || s.Service == "s3-object-lambda" || s.Service == "s3express"
	})
	credentials := aws.Credentials{AccessKeyID: keys.ID, SecretAccessKey: keys.Secret, SessionToken: keys.Session}
	if err = signer.SignHTTP(context.Background(), credentials, signed, s.Hash, s.Service, s.Region, now); err != nil {
		return errors.New("sign the request: it failed") // the library's words could hold the request
	}
	for _, field := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v, ok := signed.Header[field]; ok {
			r.Header[field] = v
		}
	}
	r.URL.RawQuery = signed.URL.RawQuery
	return nil
}

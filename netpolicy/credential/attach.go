package credential

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// The ways in which a secret is attached.
const (
	bearer = "bearer"
	basic  = "basic"
	header = "header"
	query  = "query"
	inBody = "json"
	sigv4  = "sigv4"
)

// ownFields are the fields in which clients send keys. In a request that a
// secret is attached to, none of them is the client's own: a server could take
// it for the better one.
var ownFields = []string{"authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token", "x-auth-token", "x-access-token", "x-amz-security-token"}

// Owns tells whether a field, in any spelling, is one that a client may not send
// along with the credential: servers that turn fields into variables cannot tell
// some names apart, see netpolicy.Dashed.
func (c *Credential) Owns(field string) bool {
	field = strings.ToLower(netpolicy.Dashed(strings.TrimSpace(field)))
	return slices.Contains(ownFields, field) || c.Spec.Header != "" && field == strings.ToLower(netpolicy.Dashed(c.Spec.Header))
}

// Strip removes the client's own copies from fields and query. Those in a body
// are replaced, see Place.
func (c *Credential) Strip(r *http.Request) {
	for field := range r.Header {
		if c.Owns(field) {
			delete(r.Header, field)
		}
	}
	if c.Spec.Attach == query {
		r.URL.RawQuery = without(r.URL.RawQuery, c.Spec.Query)
	}
}

// without drops a parameter in every spelling from a query.
func without(raw, name string) string {
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil && netpolicy.IsParameter(plain, name) {
			continue
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&")
}

// InBody tells whether the secret goes into a JSON body.
func (c *Credential) InBody() bool { return c.Spec.Attach == inBody }

// Signs tells whether the request is signed anew instead.
func (c *Credential) Signs() bool { return c.Spec.Attach == sigv4 }

// Attach puts a secret into the request's fields or query. What the client had
// there was removed by Strip.
func (c *Credential) Attach(r *http.Request, secret string) error {
	if Printable(secret) != nil {
		return errors.New("attach credential: the secret cannot stand in a request")
	}
	switch s := c.Spec; s.Attach {
	case bearer:
		r.Header["Authorization"] = []string{"Bearer " + secret}
	case basic:
		r.Header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(s.User+":"+secret))}
	case header:
		r.Header[http.CanonicalHeaderKey(s.Header)] = []string{s.Prefix + secret}
	case query:
		pair := url.QueryEscape(s.Query) + "=" + url.QueryEscape(secret)
		if r.URL.RawQuery != "" {
			pair = r.URL.RawQuery + "&" + pair
		}
		r.URL.RawQuery = pair
	default:
		return fmt.Errorf("attach credential: %q is no way to attach it", s.Attach)
	}
	return nil
}

// Place puts a text at the credential's place in a JSON body.
func (c *Credential) Place(body strictjson.Value, text string) (strictjson.Value, error) {
	if _, err := body.Lookup(c.Spec.JSON); err != nil {
		return strictjson.Value{}, err
	}
	return body.Replace(c.Spec.JSON, strictjson.TextOf(text))
}

// Where says how the secret is attached, for a client that does it elsewhere.
func (c *Credential) Where() string {
	switch s := c.Spec; s.Attach {
	case bearer, basic:
		return "in the field Authorization"
	case header:
		return fmt.Sprintf("in the field %q", s.Header)
	case query:
		return fmt.Sprintf("in the parameter %q", s.Query)
	case inBody:
		return fmt.Sprintf("at %q in the JSON body", s.JSON)
	}
	return "as a signature in the field Authorization"
}

// Printable refuses texts that hold other than printable ASCII.
func Printable(s string) error {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return errors.New("it holds other than printable ASCII")
		}
	}
	return nil
}

package proxy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// secrets is what is known of a request's credential.
type secrets struct {
	credential *credential.Credential // to be attached; nil: none
	signature  credential.Signature   // how the client signed, where it is signed anew
	json       strictjson.Value       // the body, where the secret goes into it
	body       *searchedBody          // a body that is searched while it is sent
	attached   string                 // what a server may not take
	answering  bool                   // the answer is looked at
	coming     *credential.Watch      // what a WebSocket's server sends
}

// searchSecrets removes the client's own copies of the credential that is going
// to be attached, and refuses the request when anything else of it holds a
// placeholder or a live secret.
func (fl *flow) searchSecrets() *refusal {
	// This may be another server than the last.
	if last := fl.secrets.credential; last != nil {
		last.Strip(fl.out)
	}
	fl.secrets = secrets{answering: fl.secrets.answering}
	if refused := fl.chooseCredential(); refused != nil || fl.rules.Credentials.Empty() {
		return refused
	}
	if owner := fl.tokenOwner(); owner != "" {
		return fl.secretRefusal(owner, "requests to the token endpoint of credential %q are the proxy's alone")
	}
	if c := fl.secrets.credential; c != nil {
		for name := range fl.out.Trailer {
			if c.Owns(name) {
				return forbidden(fl.f.host, "field "+name+" cannot be a trailer")
			}
		}
		if c.Signs() {
			var err error
			if fl.secrets.signature, err = c.Signed(fl.out); err != nil {
				return forbidden(fl.f.host, err.Error())
			}
		}
		c.Strip(fl.out)
	}
	if refused := fl.searchHead(); refused != nil {
		return refused
	}
	if fl.socket != nil {
		fl.messages = append(fl.messages, fl.searchMessage)
	}
	return fl.searchBody()
}

// chooseCredential finds the credential that the decision names, and refuses a
// request that it must not go with.
func (fl *flow) chooseCredential() *refusal {
	name := fl.decision.Credential
	if name == "" {
		return nil
	}
	c := fl.rules.Credentials.Get(name)
	host, _, err := netpolicy.ParseHostPort(fl.out.URL.Host, 0)
	switch {
	case c == nil:
		refused := forbidden(fl.f.host, fmt.Sprintf("credential %q has no secret", name))
		refused.Hint = "give its source a secret, then start again or reload"
		return refused
	case fl.out.URL.Scheme != "https":
		refused := forbidden(fl.f.host, fmt.Sprintf("credential %q is attached over TLS alone", name))
		refused.Hint = "use https"
		return refused
	case err != nil || !c.Bound(host):
		return forbidden(fl.f.host, fmt.Sprintf("credential %q is not bound to this host", name))
	}
	fl.secrets.credential = c
	return nil
}

// searchHead looks through everything before the body.
func (fl *flow) searchHead() *refusal {
	out := fl.out
	for _, part := range []struct{ where, text string }{
		{"the host", fl.f.host.String()}, {"the host", underscored(fl.f.host)}, {"the path", cmp.Or(out.URL.Opaque, out.URL.EscapedPath())}, {"the query", out.URL.RawQuery}, {"the method", out.Method},
	} {
		if refused := fl.searchText(part.where, part.text); refused != nil {
			return refused
		}
	}
	return fl.searchFields("field", out.Header)
}

// underscored gives a host with the character that names cannot have and keys do.
func underscored(h netpolicy.Host) string { return strings.ReplaceAll(h.String(), "-", "_") }

// withoutSecret keeps a name that holds a placeholder or a secret from being
// looked up: where a rule has a wildcard, the agent chooses names.
func (s *Server) withoutSecret(h netpolicy.Host) error {
	v := s.rules().Credentials
	found, ok := v.Find(h.String())
	if !ok {
		found, ok = v.Find(underscored(h))
	}
	if !ok {
		return nil
	}
	s.record(audit.Event{Kind: audit.KindSecret, Verdict: audit.Deny, Host: h.String(), Credential: found.Credential, Reason: found.String() + " is in the name of a host"})
	return errors.New("the name holds " + found.String())
}

func (fl *flow) searchFields(what string, fields http.Header) *refusal {
	for name, values := range fields {
		if refused := fl.searchText("the name of a "+what, name); refused != nil {
			return refused
		}
		for _, value := range values {
			if refused := fl.searchText(what+" "+name, value); refused != nil {
				return refused
			}
		}
	}
	return nil
}

func (fl *flow) searchText(where, text string) *refusal {
	if found, ok := fl.rules.Credentials.Find(text); ok {
		return fl.leaks(found, where)
	}
	return nil
}

// searchMessage looks through a message of a WebSocket's client.
func (fl *flow) searchMessage(message []byte) *refusal {
	if found, ok := fl.rules.Credentials.FindIn(message); ok {
		fl.secretEvent(found.Credential, audit.Deny, found.String()+" is in a WebSocket message")
		return fl.leakRefusal(found, "a WebSocket message")
	}
	return nil
}

// leaks refuses a request that holds what must not leave, and has it recorded.
func (fl *flow) leaks(found credential.Finding, where string) *refusal {
	fl.note = append(fl.note, func(e *audit.Event) { e.Kind, e.Credential = audit.KindSecret, found.Credential })
	return fl.leakRefusal(found, where)
}

func (fl *flow) leakRefusal(found credential.Finding, where string) *refusal {
	refused := forbidden(fl.f.host, found.String()+" is in "+where+", and must not leave there")
	refused.Hint = fmt.Sprintf("only a rule with \"credential: %s\" sends it, and only to the hosts that it is bound to", found.Credential)
	if c := fl.secrets.credential; c != nil && c.Name == found.Credential {
		refused.Hint = "the proxy attaches the credential itself, " + c.Where() + "; send it nowhere else"
	}
	return refused
}

// secretRefusal is a denial because of a credential, which reason names.
func (fl *flow) secretRefusal(name, reason string) *refusal {
	fl.note = append(fl.note, func(e *audit.Event) { e.Kind, e.Credential = audit.KindSecret, name })
	return forbidden(fl.f.host, fmt.Sprintf(reason, name))
}

// secretEvent records what was found after the request was allowed.
func (fl *flow) secretEvent(name string, verdict audit.Verdict, reason string) {
	fl.s.record(audit.Event{
		Kind: audit.KindSecret, Verdict: verdict, Host: fl.f.host.String(), Port: fl.f.port, Protocol: fl.f.protocol(),
		Method: fl.out.Method, Path: audit.Redact(fl.out.URL.RequestURI()), Rule: fl.decision.Rule, Credential: name, Reason: reason,
	})
}

// partial are the fields that ask for a part of an answer. A server may give all
// of it instead (RFC 9110, section 14.2).
var partial = []string{"Range", "If-Range", "Request-Range"}

// attachCredential is the last thing that changes the request.
func (fl *flow) attachCredential() *refusal {
	v, c := fl.rules.Credentials, fl.secrets.credential
	if v.Empty() {
		return nil
	}
	host, _, err := netpolicy.ParseHostPort(fl.out.URL.Host, 0)
	if err != nil {
		return forbidden(fl.f.host, "BUG: the request goes to no host")
	}
	if v.BoundTo(host) {
		fl.secrets.coming = v.Watch()
		// What is packed cannot be searched.
		fl.out.Header["Accept-Encoding"] = []string{"identity"}
		if !fl.secrets.answering {
			fl.secrets.answering = true
			fl.replies = append(fl.replies, fl.inspectAnswer) //nolint:bodyclose // whoever sends the request closes it
		}
	}
	if c == nil {
		return nil
	}
	secret := c.Values().Secret
	if c.Spec.OAuth != nil {
		var refused *refusal
		if secret, refused = fl.accessToken(c); refused != nil {
			return refused
		}
	}
	if refused := fl.put(c, secret); refused != nil {
		return refused
	}
	if !c.Signs() {
		// A server that repeats the secret would give it away slice by slice.
		for _, name := range partial {
			delete(fl.out.Header, name)
		}
	}
	fl.secrets.attached = secret
	fl.note = append(fl.note, func(e *audit.Event) { e.Credential = cmp.Or(e.Credential, c.Name) })
	return nil
}

// inspectAnswer notes that a server did not take the secret, and cleans.
func (fl *flow) inspectAnswer(resp *http.Response) *refusal {
	if c := fl.secrets.credential; c != nil && resp.StatusCode == http.StatusUnauthorized {
		fl.s.stale(c, fl.secrets.attached)
	}
	return fl.scrub(resp)
}

// put attaches a secret in the credential's own way.
func (fl *flow) put(c *credential.Credential, secret string) *refusal {
	switch {
	case c.InBody():
		body, err := c.Place(fl.secrets.json, secret)
		if err != nil {
			return malformed(http.StatusBadRequest, err.Error())
		}
		fl.sendBody(body.Append(nil), "application/json")
		return nil
	case c.Signs():
		return fl.sign(c, secret)
	}
	if err := c.Attach(fl.out, secret); err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	return nil
}

// sign signs the request anew. A body whose hash the client did not give is read
// for it.
func (fl *flow) sign(c *credential.Credential, secret string) *refusal {
	keys, err := credential.ParseKeys(secret)
	if err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	s := fl.secrets.signature
	if s.NeedsBody() {
		body, refused := fl.rawBody()
		if refused != nil {
			return refused
		}
		sum := sha256.Sum256(body)
		s.Hash = hex.EncodeToString(sum[:])
	}
	if err := c.Sign(fl.out, s, keys, fl.s.now()); err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	return nil
}

// tokenOwner names the credential whose token endpoint the request is for, or "".
func (fl *flow) tokenOwner() string {
	path := strings.TrimRight(fl.out.URL.Opaque, "/")
	for _, c := range fl.rules.Credentials.All() {
		host, port, tokenPath, ok := c.TokenEndpoint()
		if ok && host == fl.f.host && port == fl.f.port && strings.EqualFold(path, strings.TrimRight(tokenPath, "/")) {
			return c.Name
		}
	}
	return ""
}

// refreshEvery bounds how often the launcher is asked to read one source again,
// and the endpoint for another token: the agent can provoke a 401 at any time.
const refreshEvery = 5 * time.Second

// stale is told that a server did not take a secret: the source is read again,
// and an access token is got anew. The request at hand keeps its answer.
func (s *Server) stale(c *credential.Credential, secret string) {
	if c.Spec.OAuth != nil {
		if s.asked.first("token of "+c.Name, s.now()) {
			s.grants.forget(c.Name, secret)
		}
		return
	}
	s.askAgain(c.Name)
}

func (s *Server) askAgain(name string) {
	if s.Refresh == nil || !s.asked.first(name, s.now()) {
		return
	}
	s.Refresh(name)
}

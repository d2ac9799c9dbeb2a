package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
)

// searchAhead is the length up to which a body is searched before anything of
// the request is sent. A longer one is searched on its way.
const searchAhead = 256 << 10

// searchBody looks through the body: at once where it is short, packed or to be
// changed, otherwise while it is sent.
func (fl *flow) searchBody() *refusal {
	out := fl.out
	if c := fl.secrets.credential; c != nil && c.InBody() {
		return fl.searchJSON(c)
	}
	if out.Body == http.NoBody {
		return nil
	}
	codings := tokens(out.Header["Content-Encoding"])
	// AWS's own framing of a body, which may hold pieces of any length.
	plain := len(codings) == 0 || len(codings) == 1 && (strings.EqualFold(codings[0], "identity") || strings.EqualFold(codings[0], "aws-chunked"))
	if !plain || out.ContentLength >= 0 && out.ContentLength <= searchAhead && len(out.Trailer) == 0 {
		return fl.searchWhole(plain)
	}
	b := &searchedBody{fl: fl}
	b.ReadCloser = fl.rules.Credentials.Leaving(out.Body)
	fl.secrets.body, out.Body, out.GetBody = b, b, nil
	return nil
}

// searchJSON takes the body apart, with nothing at the place of the secret.
func (fl *flow) searchJSON(c *credential.Credential) *refusal {
	body, refused := fl.readJSON("application/json")
	if refused != nil {
		return refused
	}
	cleared, err := c.Place(body, "")
	if err != nil {
		return malformed(http.StatusBadRequest, err.Error())
	}
	fl.secrets.json = cleared
	if found, ok := fl.rules.Credentials.FindIn(cleared.Append(nil)); ok {
		return fl.leaks(found, "the body")
	}
	return nil
}

// searchWhole reads the body, unpacked for the search and sent as it came.
func (fl *flow) searchWhole(plain bool) *refusal {
	coding := ""
	if !plain {
		var err error
		if coding, err = oneCoding(fl.out.Header["Content-Encoding"]); err != nil {
			return forbidden(fl.f.host, err.Error()+", so it cannot be searched for credentials")
		}
	}
	raw, refused := fl.rawBody()
	if refused != nil {
		return refused
	}
	text, err := fl.decode(coding, raw, fl.s.limits.MessageBytes)
	if err != nil {
		return fl.unread(err)
	}
	found, ok := fl.rules.Credentials.FindIn(text)
	if !ok && coding != "" {
		found, ok = fl.rules.Credentials.FindIn(raw)
	}
	if ok {
		return fl.leaks(found, "the body")
	}
	return fl.searchFields("trailer", fl.out.Trailer)
}

// rawBody reads the body whole, as it is. It is sent as before.
func (fl *flow) rawBody() ([]byte, *refusal) {
	out := fl.out
	if out.Body == http.NoBody {
		return nil, nil
	}
	if out.ContentLength > fl.s.limits.MessageBytes {
		return nil, forbidden(fl.f.host, errMessageSize.Error())
	}
	if fl.due != nil {
		fl.due(time.Now().Add(fl.s.limits.Message))
		defer fl.due(time.Time{})
	}
	raw, err := fl.takeAll(out.Body, fl.s.limits.MessageBytes)
	if err != nil {
		if refused := fl.cutBody(); refused != nil {
			return nil, refused
		}
		return nil, fl.unread(err)
	}
	if len(out.Trailer) == 0 { // trailers need a body in chunks
		out.ContentLength = int64(len(raw))
	}
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	out.Body, _ = out.GetBody()
	return raw, nil
}

// searchedBody is a body that is searched on its way, and its trailers at the end.
type searchedBody struct {
	io.ReadCloser
	fl      *flow
	once    sync.Once
	refusal atomic.Pointer[refusal]
}

// Read fails where something is found. The server then sees a request that is
// cut off, never one that looks whole.
func (b *searchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var found *credential.Searched
	switch {
	case errors.As(err, &found):
		b.met(found.Finding, "the body")
	case err == io.EOF:
		if refused := b.fl.searchTrailers(b); refused != nil {
			return 0, errLeak
		}
	}
	return n, err
}

// errLeak fails a body whose trailers hold what must not leave.
var errLeak = errors.New("read request body: what must not leave is in its trailers")

func (fl *flow) searchTrailers(b *searchedBody) *refusal {
	for name, values := range fl.out.Trailer {
		for _, text := range append([]string{name}, values...) {
			if found, ok := fl.rules.Credentials.Find(text); ok {
				b.met(found, "a trailer")
				return b.refusal.Load()
			}
		}
	}
	return nil
}

func (b *searchedBody) met(found credential.Finding, where string) {
	b.once.Do(func() {
		b.refusal.Store(b.fl.leakRefusal(found, where))
		b.fl.secretEvent(found.Credential, audit.Deny, found.String()+" is in "+where+": the request was cut off")
	})
}

// cutBody gives the refusal of a body that turned out too long or to hold what
// must not leave, or nil. It is on record already.
func (fl *flow) cutBody() *refusal {
	if b := fl.secrets.body; b != nil {
		if refused := b.refusal.Load(); refused != nil {
			return refused
		}
	}
	return fl.overlong()
}

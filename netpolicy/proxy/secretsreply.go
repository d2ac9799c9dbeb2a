package proxy

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
)

// scrub takes live secrets out of an answer. In their place come placeholders
// of the same length, so that lengths stay true. What cannot be searched or
// replaced is refused, or cut off where it was on its way.
func (fl *flow) scrub(resp *http.Response) *refusal {
	v := fl.rules.Credentials
	if name, ok := fl.scrubFields(resp.Header); !ok {
		return fl.dirty(name, "a field of the answer holds the secret of credential %q")
	}
	if fl.out.Method == http.MethodHead || resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	coding, err := oneCoding(resp.Header["Content-Encoding"])
	if err != nil {
		return forbidden(fl.f.host, "the answer was asked for unpacked and is packed: it cannot be searched for secrets")
	}
	body := resp.Body
	if coding != "" {
		body = &unpackedBody{src: body, coding: coding}
		resp.ContentLength = -1
		delete(resp.Header, "Content-Encoding")
		delete(resp.Header, "Content-Length")
	}
	resp.Body = &scrubbedBody{v.Coming(body, func(f credential.Finding) {
		fl.secretEvent(f.Credential, "", "the answer held "+f.String()+", which was taken out")
	}), fl, resp}
	return nil
}

// dirty is the refusal of an answer with a secret that nothing can replace.
func (fl *flow) dirty(name, reason string) *refusal {
	refused := fl.secretRefusal(name, reason)
	fl.secretEvent(name, audit.Deny, refused.Reason)
	refused.status = http.StatusBadGateway
	return refused
}

// scrubFields cleans fields in place, or gives the credential for which that
// cannot be done.
func (fl *flow) scrubFields(fields http.Header) (name string, ok bool) {
	v := fl.rules.Credentials
	for field, values := range fields {
		if f, found := v.FindSecret(field); found {
			return f.Credential, false
		}
		for i, value := range values {
			f, found := v.FindSecret(value)
			if !found {
				continue
			}
			clean, _, ok := v.Scrub(value)
			if !ok {
				return f.Credential, false
			}
			values[i] = clean
			fl.secretEvent(f.Credential, "", "a field of the answer held "+f.String()+", which was taken out")
		}
	}
	return "", true
}

// scrubbedBody is the body of an answer, and at its end the trailers.
type scrubbedBody struct {
	io.ReadCloser
	fl   *flow
	resp *http.Response
}

// Read gives what was searched.
func (b *scrubbedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		if name, ok := b.fl.scrubFields(b.resp.Trailer); !ok {
			b.fl.secretEvent(name, audit.Deny, "a trailer of the answer held the secret: the answer was cut off")
			return n, io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// unpackedBody unpacks an answer as it comes.
type unpackedBody struct {
	src    io.ReadCloser
	coding string
	in     io.Reader
}

// Read unpacks.
func (b *unpackedBody) Read(p []byte) (n int, err error) {
	if b.in == nil {
		if b.coding == "gzip" {
			b.in, err = gzip.NewReader(b.src)
		} else {
			b.in, err = zlib.NewReader(b.src)
		}
		if err != nil {
			return 0, unexpected(err)
		}
	}
	return b.in.Read(p)
}

// Close closes the answer.
func (b *unpackedBody) Close() error { return b.src.Close() }

// cleanMessage takes secrets out of a piece of what a WebSocket's server sends, of
// which the first kept bytes were kept back before.
func (fl *flow) cleanMessage(w *credential.Watch, p []byte, kept int) *refusal {
	found, ok := w.Clean(p, kept)
	for _, f := range found {
		verdict := audit.Verdict("")
		if !ok {
			verdict = audit.Deny
		}
		fl.secretEvent(f.Credential, verdict, "a WebSocket message of the server held "+f.String())
	}
	if !ok {
		return forbidden(fl.f.host, "a message of the server holds a secret in a spelling that cannot be replaced")
	}
	return nil
}

// cleanControl does so with the content of a control frame, which stands alone.
func (fl *flow) cleanControl(p []byte) *refusal {
	if fl.secrets.coming == nil {
		return nil
	}
	return fl.cleanMessage(fl.rules.Credentials.Watch(), p, 0)
}

// askedOnce remembers when something was last asked for, by name.
type askedOnce struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// first tells whether it is time to ask again, and counts as asking.
func (a *askedOnce) first(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.last[name]; ok && now.Sub(last) < refreshEvery {
		return false
	}
	if a.last == nil {
		a.last = map[string]time.Time{}
	}
	a.last[name] = now
	return true
}

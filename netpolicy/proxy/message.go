package proxy

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// aboutBytes are the fields about a body's very bytes. A message is written anew,
// so they would be wrong, and a server can do without.
var aboutBytes = []string{"Content-Encoding", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Trailer"}

// readBody takes the request's body whole and decoded. It is held, and counted,
// until the request ends.
func (fl *flow) readBody() ([]byte, *refusal) {
	most := fl.s.limits.MessageBytes
	coding, err := oneCoding(fl.out.Header["Content-Encoding"])
	if err != nil {
		return nil, forbidden(fl.f.host, err.Error())
	}
	if fl.out.ContentLength > most {
		return nil, forbidden(fl.f.host, errMessageSize.Error())
	}
	if fl.due != nil {
		fl.due(time.Now().Add(fl.s.limits.Message))
		defer fl.due(time.Time{})
	}
	raw, err := fl.takeAll(fl.out.Body, most)
	if err != nil {
		return nil, fl.unread(err)
	}
	plain, err := fl.decode(coding, raw, most)
	if err != nil {
		return nil, fl.unread(err)
	}
	return plain, nil
}

// unread says why a body could not be read.
func (fl *flow) unread(err error) *refusal {
	switch {
	case errors.Is(err, errHeld):
		return tooMany(fl.f.host, "bytes of messages")
	case errors.Is(err, errMessageSize), errors.Is(err, errCoding), errors.Is(err, errRatio):
		return forbidden(fl.f.host, err.Error())
	case errors.Is(err, errBody):
		return malformed(http.StatusBadRequest, "malformed request body")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return malformed(http.StatusRequestTimeout, "the body did not arrive in time")
	}
	return malformed(http.StatusBadRequest, "the body ended too early")
}

// readJSON takes the request's body as one JSON value. The content must be of
// one of the types, or of none: it goes out as application/json.
func (fl *flow) readJSON(types ...string) (strictjson.Value, *refusal) {
	kind, err := mediaType(fl.out.Header)
	switch {
	case err != nil:
		return strictjson.Value{}, forbidden(fl.f.host, err.Error())
	case kind != "" && !slices.Contains(types, kind):
		return strictjson.Value{}, forbidden(fl.f.host, "the content is not "+types[0])
	}
	body, refused := fl.readBody()
	if refused != nil {
		return strictjson.Value{}, refused
	}
	return fl.parseJSON(body)
}

// parseJSON reads a message that the flow holds.
func (fl *flow) parseJSON(body []byte) (strictjson.Value, *refusal) {
	weight, err := weigh(body)
	if err != nil {
		return strictjson.Value{}, forbidden(fl.f.host, err.Error())
	}
	if !fl.hold(weight) {
		return strictjson.Value{}, tooMany(fl.f.host, "bytes of messages")
	}
	v, err := strictjson.Parse(body)
	if err != nil {
		return strictjson.Value{}, malformed(http.StatusBadRequest, err.Error())
	}
	return v, nil
}

// sendBody makes bytes that were judged the body that goes out.
func (fl *flow) sendBody(b []byte, kind string) {
	out := fl.out
	for _, name := range aboutBytes {
		delete(out.Header, name)
	}
	out.Header["Content-Type"] = []string{kind}
	out.ContentLength, out.Trailer = int64(len(b)), nil
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	out.Body, _ = out.GetBody()
	fl.limit = nil
}

// withoutBody refuses a body where a message has none.
func (fl *flow) withoutBody() *refusal {
	if fl.out.Body != http.NoBody {
		return forbidden(fl.f.host, "a "+fl.out.Method+" request has no body here")
	}
	return nil
}

// withoutOverride refuses fields that ask for another method: the protocol says
// what each method means.
func (fl *flow) withoutOverride() *refusal {
	for name := range fl.out.Header {
		if isAmong(name, methodOverrides) {
			return forbidden(fl.f.host, "field "+name+" has no meaning here")
		}
	}
	return nil
}

// mediaType gives the type of the content, "" when it is not said. The charset
// must be UTF-8.
func mediaType(h http.Header) (string, error) {
	values := h["Content-Type"]
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", errors.New("several fields Content-Type")
	}
	kind, params, err := mime.ParseMediaType(values[0])
	if err != nil || !strings.Contains(kind, "/") {
		return "", errors.New("malformed Content-Type")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
		return "", errors.New("the charset of the content is not UTF-8")
	}
	return kind, nil
}

// accept takes over the decision about a message that was allowed. All messages
// of one request must go out with the same credential.
func (fl *flow) accept(d netpolicy.Decision) *refusal {
	claim, most := fl.decision.Claim, fl.decision.MaxBody
	if fl.msg.accepted && d.Credential != fl.decision.Credential {
		return forbidden(fl.f.host, "the messages of this request need different credentials: send them one by one")
	}
	fl.msg.accepted = true
	d.Claim, d.MaxBody = claim, most
	fl.decision = d
	return nil
}

// maxOperation bounds what the record says of one request's messages.
const maxOperation = 200

// operation has the record say what the request is for.
func (fl *flow) operation(text string) {
	if len(text) > maxOperation {
		text = strings.ToValidUTF8(text[:maxOperation], "") + "…"
	}
	fl.note = append(fl.note, func(e *audit.Event) { e.Operation = text })
}

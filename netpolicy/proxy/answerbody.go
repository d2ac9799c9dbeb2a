package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// errIdle is why a request on which nothing moves ends.
var errIdle = errors.New("nothing moved for too long")

// answerBody is the body of a server's answer. One that breaks off is on record:
// the client sees that it is not whole, but not why.
type answerBody struct {
	io.ReadCloser
	fl   *flow
	told bool
}

// Read gives the server's bytes.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.fl.out.Context().Err() != nil {
		// A server that learns of the end before we do ends its answer in good
		// order, and what was cut would look whole.
		err = context.Cause(b.fl.out.Context())
	}
	if err != nil && err != io.EOF && !b.told {
		b.told = true
		b.fl.brokeOff(err)
	}
	return n, err
}

// brokeOff records why an answer ended early, unless its client went away.
func (fl *flow) brokeOff(err error) {
	cause := context.Cause(fl.out.Context())
	reason := "the server's answer broke off: " + err.Error()
	switch {
	case errors.Is(cause, errIdle):
		reason = "the answer was cut: nothing moved for " + fl.s.limits.Idle.String()
	case fl.cutBody() != nil, cause != nil:
		return
	}
	e := unreachable(fl.f.host, http.StatusBadGateway, reason).event(audit.KindUpstream, fl.f)
	e.Method, e.Path, e.Status = fl.out.Method, audit.Redact(fl.out.URL.RequestURI()), 0
	e.Rule, e.Pos = fl.decision.Rule, fl.decision.Pos.String()
	fl.s.record(e)
}

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// errTooLong fails the request to the server when its body is longer than the
// rule allows: a connection that is cut, or a stream that is reset, never a body
// that ends early and looks whole.
var errTooLong = errors.New("read request body: longer than the rule allows")

// limitedBody is a body that fails when it turns out longer than it may be.
type limitedBody struct {
	io.ReadCloser
	left int64
	// exceed is called once, when that happens.
	exceed func() *refusal
	// refusal is what came of it.
	refusal atomic.Pointer[refusal]
}

// Read gives the body's bytes. It asks for one more than is left, to tell a body
// of just that length from a longer one.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLong
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.refusal.Store(b.exceed())
		return 0, errTooLong
	}
	return n, err
}

// limitBody bounds the body as the decision says. A body that announces its
// length is refused at once.
func (fl *flow) limitBody() *refusal {
	most := fl.decision.MaxBody
	switch {
	case most <= 0 || fl.out.Body == http.NoBody:
		return nil
	case fl.out.ContentLength > most:
		return fl.tooLong()
	}
	fl.limit = &limitedBody{ReadCloser: fl.out.Body, left: most, exceed: func() *refusal {
		refused := fl.tooLong()
		fl.record(refused)
		return refused
	}}
	fl.out.Body = fl.limit
	return nil
}

// overlong gives the refusal of a body that turned out too long, or nil. It is on
// record already.
func (fl *flow) overlong() *refusal {
	if fl.limit == nil {
		return nil
	}
	return fl.limit.refusal.Load()
}

func (fl *flow) tooLong() *refusal {
	d := fl.decision
	d.Reason = fmt.Sprintf("the body is longer than the %d bytes that rule %q allows", d.MaxBody, d.Rule)
	r := denied(fl.f.host, d)
	r.status = http.StatusRequestEntityTooLarge
	return r
}

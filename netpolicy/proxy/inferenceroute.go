package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

var errAnswerSize = errors.New("read answer: longer than any answer of a model")

// send sends a request, a call of a model also to the next routes.
func (fl *flow) send() (*http.Response, *refusal) {
	m := fl.model
	if m == nil {
		return fl.roundTrip()
	}
	for {
		m.sent = true
		resp, refused := fl.roundTrip()
		m.gone = fl.out.Context().Err() != nil
		if !fl.forgoesUsage(resp) && !fl.failedOver(resp, refused) {
			if refused != nil {
				fl.dress(refused)
			}
			return resp, refused
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
	}
}

// forgoesUsage aims at the same route once more when it may have refused the call
// because of what we added to it, and tells whether it did.
func (fl *flow) forgoesUsage(resp *http.Response) bool {
	m := fl.model
	t := m.target()
	if resp == nil || resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusUnprocessableEntity || !t.HidesUsage || m.gone ||
		!complains(resp) {
		return false
	}
	kept := *t
	t.ForgoUsage()
	m.forgone = fl.again(m.at)
	if !m.forgone {
		*t = kept
	}
	return m.forgone
}

// maxComplaint bounds how much of an error is looked at.
const maxComplaint = 64 << 10

// complains tells whether an error names what we added. Whatever was read of it
// is put back.
func complains(resp *http.Response) bool {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxComplaint))
	rest := resp.Body
	if err != nil {
		rest = io.NopCloser(errReader{err})
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), rest), resp.Body}
	return bytes.Contains(b, []byte("stream_options")) || bytes.Contains(b, []byte("include_usage"))
}

// errReader fails.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// again aims at a route for another attempt, if the budget and all later steps
// let it; otherwise everything stays as it is.
func (fl *flow) again(at int) bool {
	m := fl.model
	if m.hold != nil {
		d, alarms := fl.s.models.Attempt(fl.s.now(), fl.rules.Inference.Budget())
		fl.s.alarm(alarms)
		if d != nil {
			return false
		}
	}
	before, out, decision := m.at, fl.out, fl.decision
	if fl.aim(at) != nil || fl.depart() != nil {
		m.at, fl.out, fl.decision = before, out, decision
		return false
	}
	return true
}

// failedOver aims at the next route when this one failed before the first byte of
// an answer, and tells whether it did.
func (fl *flow) failedOver(resp *http.Response, refused *refusal) bool {
	m := fl.model
	failed := resp != nil && (resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests)
	failed = failed || refused != nil && refused.Error == errUpstream
	if !failed || m.gone || m.at+1 >= len(m.call.Targets) {
		return false
	}
	why := "the connection failed"
	if resp != nil {
		why = "it answered with status " + strconv.Itoa(resp.StatusCode)
	}
	from, to := m.target(), &m.call.Targets[m.at+1]
	if !fl.again(m.at + 1) {
		return false
	}
	m.forgone = false
	fl.s.record(audit.Event{
		Kind: audit.KindUpstream, Host: from.Host.String(), Port: from.Port, Model: from.Model, Route: from.Route,
		Reason: "route " + strconv.Quote(from.Route) + " failed (" + why + "), " + strconv.Quote(to.Route) + " is tried",
	})
	return true
}

// dressCall puts a refusal into the shape of the provider's errors, which its
// libraries show. What we say beside it stays.
func (fl *flow) dressCall(r *refusal) {
	text := r.Reason
	switch r.Error {
	case errUpstream:
	default:
		text = "denied by the sandbox's policy: " + text + ". " + r.Note
	}
	members := inference.ErrorBody(fl.model.family, r.Error, text+" (decision "+r.ID+")", r.status)
	for _, m := range []struct{ name, value string }{
		{"id", r.ID}, {"host", r.Host}, {"rule", r.Rule}, {"reason", r.Reason}, {"hint", r.Hint}, {"note", r.Note},
	} {
		if m.value != "" {
			members = append(members, strictjson.Member{Name: m.name, Value: strictjson.TextOf(m.value)})
		}
	}
	r.content, r.contentType = append(strictjson.ObjectOf(members...).Append(nil), '\n'), "application/json"
}

package proxy

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
)

// modelCall is what a flow knows of a call of a model.
type modelCall struct {
	family inference.Provider
	call   *inference.Call
	at     int // the target of the moment
	hold   *inference.Hold
	sent   bool
	status int
	// meter reads the answer; nil when there is none, or none that counts.
	meter *inference.Meter
	whole bool // the answer came to its end
	gone  bool // the client left before the answer
	// forgone tells that usage is not asked for, since the server refused that.
	forgone bool
}

func (m *modelCall) target() *inference.Target { return &m.call.Targets[m.at] }

// inference judges a call of a model and writes it anew for the first route that
// may serve it.
func (fl *flow) inference() *refusal {
	c := fl.decision.Claim
	if c == nil || !c.Inference {
		return nil
	}
	fl.model = &modelCall{}
	q, refused := fl.readCall()
	if refused != nil {
		return refused
	}
	call, d := fl.rules.Inference.Judge(c.Route, q)
	if d != nil {
		fl.model.family = d.Family
		return fl.refuseCall(d)
	}
	fl.model.call, fl.model.family = call, call.Family
	fl.note = append(fl.note, func(e *audit.Event) {
		e.Model, e.Route = fl.model.target().Model, fl.model.target().Route
	})
	if call.Counted {
		if refused := fl.reserve(); refused != nil {
			return refused
		}
	}
	fl.replies = append(fl.replies, fl.measure) //nolint:bodyclose // whoever sends the request closes it
	return fl.aim(0)
}

// readCall takes the request as it is judged. Its body is held.
func (fl *flow) readCall() (q inference.Request, refused *refusal) {
	if refused := fl.withoutOverride(); refused != nil {
		return q, refused
	}
	q = inference.Request{Method: fl.out.Method, Path: fl.judged.Path, Query: fl.judged.Query, Header: fl.out.Header}
	if !inference.Reads(fl.out.Method) {
		return q, fl.withoutBody()
	}
	if q.Body, refused = fl.readBody(); refused != nil {
		return q, refused
	}
	delete(fl.out.Header, "Content-Encoding") // it was unpacked
	weight, err := weigh(q.Body)
	if err != nil {
		return q, forbidden(fl.f.host, err.Error())
	}
	if !fl.hold(weight + int64(len(q.Body))) {
		return q, tooMany(fl.f.host, "bytes of messages")
	}
	return q, nil
}

// reserve sets aside what the call may use. With several routes it is what the
// first of them may use: the others are for the same call.
func (fl *flow) reserve() *refusal {
	s, m := fl.s, fl.model
	hold, d, alarms := s.models.Reserve(s.now(), fl.rules.Inference.Budget(), m.target().Need)
	s.alarm(alarms)
	if d != nil {
		d.Family = m.family
		return fl.refuseCall(d)
	}
	m.hold = hold
	fl.ends = append(fl.ends, fl.settle)
	return nil
}

// aim makes a target's request the one that goes out.
func (fl *flow) aim(i int) *refusal {
	m := fl.model
	m.at = i
	t := m.target()
	if _, silent := fl.s.silent.Load(t.Host); silent && t.HidesUsage {
		t.ForgoUsage()
	}
	scheme, standard := "https", uint16(443)
	if t.Plain {
		scheme, standard = "http", 80
	}
	dial := net.JoinHostPort(t.Host.String(), strconv.Itoa(int(t.Port)))
	out := *fl.out
	out.URL = &url.URL{Scheme: scheme, Host: dial, Opaque: t.Path, RawQuery: t.Query}
	out.Host = dial
	if t.Port == standard {
		out.Host = strings.TrimSuffix(dial, ":"+strconv.Itoa(int(t.Port)))
	}
	out.Header = http.Header(t.Header).Clone()
	fl.out = &out
	each := int64(0)
	if m.hold != nil {
		each = fl.s.models.Bound(m.hold, t.Need)
	}
	if body := t.Body(each); body != nil {
		fl.sendBody(body, "application/json")
	}
	d := &fl.decision
	d.Credential, d.Rule, d.Pos, d.Reason = t.Credential, t.Route, t.Pos, "route "+strconv.Quote(t.Route)+" serves it"
	return nil
}

// refuseCall turns a denial into an answer.
func (fl *flow) refuseCall(d *inference.Denial) *refusal {
	if d.Malformed {
		r := malformed(http.StatusBadRequest, d.Reason)
		r.Host, r.Rule, r.Hint = fl.f.host.String(), d.Rule, d.Hint
		return r
	}
	r := denied(fl.f.host, netpolicy.Decision{Rule: d.Rule, Pos: fl.decision.Pos, Reason: d.Reason, Hint: d.Hint})
	if d.Budget {
		r.Error, r.Note = errBudget, noteBudget
	}
	if d.Stop && fl.s.Stop != nil {
		r.Note = "The policy ends the run because of this."
		fl.s.Stop(d.Reason)
	}
	return r
}

// alarm records numbers that came near their limits.
func (s *Server) alarm(alarms []inference.Alarm) {
	for _, a := range alarms {
		what := "80 % of " + a.Field + " is used: "
		if a.Full {
			what = a.Field + " is used up: "
		}
		s.record(audit.Event{Kind: audit.KindBudget, Rule: a.Field, Reason: what + amount(a.Used) + " of " + amount(a.Limit)})
	}
}

func amount(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// settle counts what the call used, and records it.
func (fl *flow) settle() {
	s, m := fl.s, fl.model
	if !m.sent {
		s.models.Cancel(m.hold)
		return
	}
	var used inference.Usage
	switch {
	case m.meter != nil:
		used = m.meter.End(m.whole, m.hold)
	case m.gone, m.status/100 == 2: // an answer that was refused is charged as well
		used = m.hold.Full()
	}
	t := m.target()
	alarms := s.models.Settle(s.now(), s.rules().Inference.Budget(), m.hold, used)
	s.record(audit.Event{
		Kind: audit.KindInference, Host: t.Host.String(), Port: t.Port, Model: t.Model, Route: t.Route, Status: m.status,
		InputTokens: used.Input, OutputTokens: used.Output, Cost: used.Cost(t.Need.Price), Estimated: used.Estimated,
	})
	s.alarm(alarms)
}

// recordLost says what was charged for calls that were under way when an earlier
// proxy of the run ended.
func (s *Server) recordLost(lost inference.Totals) {
	s.record(audit.Event{
		Kind: audit.KindInference, InputTokens: lost.Input, OutputTokens: lost.Output, Cost: lost.Money, Estimated: true,
		Reason: "calls that were under way when the proxy ended are charged in full",
	})
}

// Models gives what the run used of models so far.
func (s *Server) Models() inference.Totals { return s.models.Totals() }

// now is the time that budgets are counted by.
func (s *Server) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// measure has the answer's usage read while it passes.
func (fl *flow) measure(resp *http.Response) *refusal {
	m := fl.model
	m.status = resp.StatusCode
	for _, coding := range tokens(resp.Header["Content-Encoding"]) {
		if !strings.EqualFold(coding, "identity") {
			return unreachable(fl.f.host, http.StatusBadGateway, "the provider's answer is compressed, which nobody asked for, so that its usage cannot be read")
		}
	}
	answer := &modelAnswer{ReadCloser: resp.Body, fl: fl}
	if resp.StatusCode/100 == 2 && m.forgone {
		fl.s.silent.Store(m.target().Host, true)
	}
	if resp.StatusCode/100 == 2 && m.hold != nil {
		m.meter = m.target().Measure(resp.Header.Get("Content-Type"))
		if answer.filtered = m.meter.Changes(); answer.filtered {
			resp.ContentLength = -1
			delete(resp.Header, "Content-Length")
		}
	}
	resp.Body = answer
	return nil
}

// modelAnswer is the body of a provider's answer.
type modelAnswer struct {
	io.ReadCloser
	fl    *flow
	total int64
	held  int64 // by the meter, as far as it is counted
	// filtered tells that a part of the answer is held back.
	filtered bool
	ready    []byte // measured, not yet given on
	in       []byte
	err      error
}

// Read gives on what came as soon as it was measured.
func (a *modelAnswer) Read(p []byte) (int, error) {
	m := a.fl.model
	if !a.filtered {
		n, err := a.ReadCloser.Read(p)
		if m.meter != nil {
			m.meter.Pass(p[:n])
			a.counted()
		}
		return n, a.count(n, err)
	}
	for len(a.ready) == 0 && a.err == nil {
		if a.in == nil {
			a.in = make([]byte, 16<<10)
		}
		n, err := a.ReadCloser.Read(a.in)
		a.ready = append(m.meter.Pass(a.in[:n]), a.counted()...)
		if a.err = a.count(n, err); a.err != nil {
			a.ready = append(a.ready, m.meter.Rest()...)
		}
	}
	n := copy(p, a.ready)
	if a.ready = a.ready[n:]; len(a.ready) > 0 {
		return n, nil
	}
	return n, a.err
}

// counted counts what the meter holds with all that is held until it is judged.
// Where there is no room, the meter gives up, and what it held back goes on.
func (a *modelAnswer) counted() []byte {
	meter := a.fl.model.meter
	more := meter.Held() - a.held
	switch {
	case more <= 0:
	case a.fl.hold(more):
		a.held += more
	default:
		return meter.GiveUp()
	}
	return nil
}

// count notes the end, and cuts off what never ends.
func (a *modelAnswer) count(n int, err error) error {
	a.total += int64(n)
	switch {
	case err == io.EOF:
		a.fl.model.whole = true
	case err == nil && a.total > a.fl.s.limits.Answer:
		refused := unreachable(a.fl.f.host, http.StatusBadGateway, "the provider's answer was cut off: it is longer than "+strconv.FormatInt(a.fl.s.limits.Answer, 10)+" bytes")
		a.fl.record(refused)
		return errAnswerSize
	}
	return err
}

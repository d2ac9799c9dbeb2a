package proxy

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// The values of "error" in the body of a refusal. An agent can tell from them
// who said no: the policy, the proxy about the request or about how much there is
// of it, or the other side.
const (
	errPolicy   = "policy_denied"
	errRequest  = "bad_request"
	errLimit    = "limit_reached"
	errUpstream = "upstream_failed"
	errBudget   = "budget_used_up"
)

// decisionHeader marks answers that are ours and not the server's.
const decisionHeader = "X-Hermes-Wrap-Decision"

const (
	notePolicy = "This is a decision of the sandbox's policy. Retrying will not help, nor will another address, port, " +
		"resolver, proxy setting or protocol: every connection is captured and judged the same way."
	noteRequest  = "The sandbox's proxy refuses requests that two servers could read differently. Send it in the standard form."
	noteLimit    = "The sandbox carries only so much at a time. Let other requests end, then try again."
	noteBudget   = "This run may use no more of models. Retrying will not help; only whoever wrote the policy can change it."
	noteUpstream = "The policy allows this; the server or the way to it failed outside of the sandbox."
	hintCaptured = "no proxy setting is needed: connections are captured anyway; unset the proxy variables"
)

// refusal is an answer in place of the server's.
type refusal struct {
	Error  string `json:"error"`
	ID     string `json:"id"`
	Host   string `json:"host,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	Note   string `json:"note"`

	status int
	pos    string
	// content is the body in the words of a protocol, and contentType its type,
	// unless it is JSON.
	content     []byte
	contentType string
	// detail is for the record alone: it may name resolvers and addresses of
	// the host's network, which are none of the agent's business.
	detail string
}

func newRefusal(status int, kind, note, reason string) *refusal {
	return &refusal{Error: kind, ID: newID(), Reason: reason, Note: note, status: status}
}

// denied turns a decision of the engine into an answer.
func denied(h netpolicy.Host, d netpolicy.Decision) *refusal {
	r := newRefusal(http.StatusForbidden, errPolicy, notePolicy, d.Reason)
	r.Host, r.Rule, r.Hint = h.String(), d.Rule, d.Hint
	if d.Rule != "" {
		r.pos = d.Pos.String()
	}
	if r.Reason == "" {
		r.Reason = "no rule allows this"
	}
	return r
}

// forbidden is a denial that is ours and not a rule's.
func forbidden(h netpolicy.Host, reason string) *refusal {
	return denied(h, netpolicy.Decision{Reason: reason})
}

func malformed(status int, reason string) *refusal {
	return newRefusal(status, errRequest, noteRequest, reason)
}

func tooMany(h netpolicy.Host, what string) *refusal {
	r := newRefusal(http.StatusServiceUnavailable, errLimit, noteLimit, "too many "+what+" at a time")
	r.Host = h.String()
	return r
}

func unreachable(h netpolicy.Host, status int, reason string) *refusal {
	r := newRefusal(status, errUpstream, noteUpstream, reason)
	r.Host = h.String()
	return r
}

// unrecorded is the answer when the decision could not be written down.
func unrecorded(h netpolicy.Host) *refusal {
	r := forbidden(h, "the audit record cannot be written, and the policy requires it")
	r.status = http.StatusServiceUnavailable
	return r
}

// decision is the value of decisionHeader.
func (r *refusal) decision() string {
	if r.Error == errUpstream {
		return "allow"
	}
	return "deny"
}

func (r *refusal) body() []byte {
	if r.content != nil {
		return r.content
	}
	b, err := json.Marshal(r)
	if err != nil { // strings only: cannot happen
		return []byte("{}\n")
	}
	return append(b, '\n')
}

func (r *refusal) header() http.Header {
	h := http.Header{
		"Content-Type":  {cmp.Or(r.contentType, "application/json")},
		"Cache-Control": {"no-store"},
		decisionHeader:  {r.decision()},
	}
	if r.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{`Bearer realm="hermes-wrap"`}
	}
	return h
}

// event is the record of the refusal.
func (r *refusal) event(kind audit.Kind, f *front) audit.Event {
	e := audit.Event{
		Kind: kind, Verdict: audit.Deny, ID: r.ID, Host: r.Host, Port: f.port, Protocol: f.protocol(),
		Status: r.status, Rule: r.Rule, Pos: r.pos, Reason: r.Reason,
	}
	if e.Host == "" {
		e.Host = f.host.String()
	}
	if r.detail != "" {
		e.Reason += ": " + r.detail
	}
	if r.Error == errUpstream {
		e.Kind, e.Verdict = audit.KindUpstream, ""
	}
	if f.engine != nil {
		e = refusalEvent(f, e)
	}
	if in := f.inbound; in != nil {
		e.Kind, e.Rule, e.Pos, e.Host, e.Port, e.Addr = audit.KindInbound, in.Name, in.Pos, in.Host, in.Port, in.client
	}
	return e
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	return hex.EncodeToString(b[:])
}

package proxy

import (
	"io"
	"net/http"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// flow is one request of a client, from its judgement to the end of its answer.
type flow struct {
	s     *Server
	f     *front
	rules *Rules // what it was judged by, also when others were loaded since
	// decision is about the head; what is inside the body is decided by the steps
	// of prepare.
	decision netpolicy.Decision
	judged   netpolicy.Request // what the decision is about
	// out is the request as it goes out. It is nil until the head was judged.
	out *http.Request
	// limit is set where the rule bounds the body.
	limit *limitedBody
	// messages see each message of a WebSocket's client as it is going to be
	// forwarded, and the content of its control frames. A refusal ends the socket.
	messages []func([]byte) *refusal
	// socket is set when the request asks for a WebSocket.
	socket *socket
	// upgrades names the protocol when a client outside or one of the container
	// engine asks for an upgrade whose bytes are carried unread, and upgraded is
	// set once there is the other end of it.
	upgrades string
	upgraded io.ReadWriteCloser
	// msg is what is known of the messages in the body.
	msg messages
	// model is set when the request is a call of a model.
	model *modelCall
	// secrets is what is known of its credential.
	secrets secrets
	// due bounds how long reading the body may take in all; the zero time ends
	// that. Nil: there is no body.
	due func(time.Time)
	// note adds to the event of an allowed request.
	note []func(*audit.Event)
	// replies have a say in the answer, in the order in which they were added,
	// before anything of it reaches the client. They may change head and body.
	replies []func(*http.Response) *refusal
	// ends run once, when the request is over however it ended.
	ends []func()
	over bool
}

// prepare runs what decides by more than the head, and then what changes the
// request.
func (fl *flow) prepare() *refusal {
	return inTurn(fl.protocol, fl.inference, fl.depart)
}

// depart runs the steps that are for one server, and so once more for the next
// one that a call of a model goes to. The order matters: credentials are attached
// after everything that the agent sent was looked at.
func (fl *flow) depart() *refusal {
	return inTurn(fl.searchSecrets, fl.attachCredential, fl.withinTraffic)
}

func inTurn(steps ...func() *refusal) *refusal {
	for _, step := range steps {
		if refused := step(); refused != nil {
			return refused
		}
	}
	return nil
}

// receive lets the replies have their say.
func (fl *flow) receive(resp *http.Response) *refusal {
	for _, reply := range fl.replies {
		if refused := reply(resp); refused != nil {
			return refused
		}
	}
	return nil
}

// close ends the flow. It may be called more than once.
func (fl *flow) close() {
	if !fl.over {
		fl.over = true
		defer fl.rules.out.leave()
	}
	for _, end := range fl.ends {
		end()
	}
	fl.ends = nil
}

// permit is the event of an allowed request.
func (fl *flow) permit(r *request) audit.Event {
	f, d := fl.f, fl.decision
	e := audit.Event{
		Kind: audit.KindRequest, Verdict: audit.Allow, Host: f.host.String(), Port: f.port, Protocol: f.protocol(),
		Method: r.method, Path: audit.Redact(fl.out.URL.RequestURI()), Rule: d.Rule, Pos: d.Pos.String(), Reason: d.Reason,
	}
	for _, add := range fl.note {
		add(&e)
	}
	return e
}

// record writes down a refusal of a request that was allowed and sent.
func (fl *flow) record(refused *refusal) {
	e := refused.event(audit.KindRequest, fl.f)
	e.Method, e.Path = fl.out.Method, audit.Redact(fl.out.URL.RequestURI())
	fl.s.record(e)
}

// denial is the event of a refused request.
func (fl *flow) denial(refused *refusal, r *request) audit.Event {
	e := refused.event(audit.KindRequest, fl.f)
	e.Method, e.Path = r.method, audit.Redact(r.target)
	for _, add := range fl.note {
		add(&e)
	}
	return e
}

package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// mcpAnswer judges what an MCP server says to one request.
type mcpAnswer struct {
	fl    *flow
	claim *netpolicy.Claim
	// waiting are the requests of the client that were not answered yet, by id.
	waiting map[string]rpcMessage
	// denied is the refusal of the last question to the client that was kept back.
	denied *refusal
}

// reply looks at the head of the answer and has its messages judged.
func (a *mcpAnswer) reply(resp *http.Response) *refusal {
	coding, err := oneCoding(resp.Header["Content-Encoding"])
	if err != nil || coding != "" {
		return a.broken("the server packed its answer, although it was asked not to")
	}
	kind, err := mediaType(resp.Header)
	if err != nil {
		return a.broken("the server's answer: " + err.Error())
	}
	switch {
	case resp.StatusCode == http.StatusNoContent, resp.ContentLength == 0 && resp.StatusCode != http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusAccepted, resp.StatusCode >= 300:
		// Says that something was taken, or what went wrong: no client looks
		// for results there.
		a.bound(resp)
		return nil
	case kind == "text/event-stream":
		a.stream(resp)
		return nil
	case kind == rpcTypes[0] && a.fl.out.Method == http.MethodPost:
		return a.whole(resp)
	case len(a.waiting) == 0 && a.fl.out.Method != http.MethodGet:
		a.bound(resp)
		return nil
	}
	return a.broken("the server's answer is neither JSON nor a stream of events")
}

// broken is the refusal of an answer that is not MCP.
func (a *mcpAnswer) broken(reason string) *refusal {
	return unreachable(a.fl.f.host, http.StatusBadGateway, reason)
}

// bound ends an answer that is longer than any may be.
func (a *mcpAnswer) bound(resp *http.Response) {
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: a.claim.MaxResponse()}
}

// whole judges an answer that is one JSON text.
func (a *mcpAnswer) whole(resp *http.Response) *refusal {
	body, err := a.fl.takeAll(resp.Body, a.claim.MaxResponse())
	_ = resp.Body.Close()
	var out []byte
	switch {
	case errors.Is(err, errMessageSize) && len(a.waiting) > 0:
		out = a.tooLarge()
	case errors.Is(err, errHeld):
		return tooMany(a.fl.f.host, "bytes of messages")
	case err != nil:
		return a.broken("the server's answer ended too early or is too large")
	case len(bytes.TrimSpace(body)) == 0 && len(a.waiting) == 0:
	default:
		if out, err = a.text(body); err != nil {
			return a.broken("the server's answer: " + err.Error())
		}
	}
	resp.Body, resp.ContentLength, resp.Trailer = io.NopCloser(bytes.NewReader(out)), int64(len(out)), nil
	for _, name := range aboutBytes {
		delete(resp.Header, name)
	}
	return nil
}

// text judges a JSON text and gives what the client may see of it: nil when that
// is nothing.
func (a *mcpAnswer) text(body []byte) ([]byte, error) {
	weight, err := weigh(body)
	if err != nil {
		return nil, err
	}
	if !a.fl.hold(weight) {
		return nil, errHeld
	}
	defer a.fl.drop(weight)
	v, err := strictjson.Parse(body)
	if err != nil {
		return nil, err
	}
	messages, batch, err := parseRPC(v)
	if err != nil {
		return nil, err
	}
	var out []strictjson.Value
	for _, m := range messages {
		shown, err := a.judge(m)
		if err != nil {
			return nil, err
		}
		if shown.Kind() != strictjson.Invalid {
			out = append(out, shown)
		}
	}
	switch {
	case len(out) == 0:
		return nil, nil
	case batch:
		return strictjson.ListOf(out...).Append(nil), nil
	}
	return out[0].Append(nil), nil
}

// judge gives what the client may see of a message; an invalid value is nothing.
func (a *mcpAnswer) judge(m rpcMessage) (strictjson.Value, error) {
	switch m.kind {
	case rpcNotification:
		return m.value, nil
	case rpcRequest:
		if d := a.asks(m.method, m.params); d.Verdict != netpolicy.Allow {
			a.denied = a.record(d, "from server: "+m.method)
			return strictjson.Value{}, nil
		}
		return m.value, nil
	}
	delete(a.waiting, string(m.id.Append(nil)))
	result := m.value.Get("result")
	d, method := a.questions(result)
	if result.Kind() == strictjson.Invalid {
		d, method = a.errands(m.value.Get("error"))
	}
	if d.Verdict != netpolicy.Allow {
		refused := a.record(d, "from server: "+method)
		return rpcFailure(m.id, refused), nil
	}
	if result.Kind() == strictjson.Invalid {
		return m.value, nil
	}
	shown, err := a.filter(result)
	return m.value.With("result", shown), err
}

// errands judges what an error sends the user to do first: visiting addresses is
// elicitation in other words.
func (a *mcpAnswer) errands(failed strictjson.Value) (netpolicy.Decision, string) {
	allowed := netpolicy.Decision{Verdict: netpolicy.Allow}
	data := failed.Get("data")
	if failed.Exact("data") != nil || data.Exact("elicitations") != nil {
		return netpolicy.Decision{Reason: "the server asks something that cannot be read"}, mcpElicit
	}
	list := data.Get("elicitations")
	if list.Kind() == strictjson.Invalid {
		return allowed, ""
	}
	for _, errand := range list.Items() {
		if d := a.asks(mcpElicit, errand); d.Verdict != netpolicy.Allow {
			return d, mcpElicit
		}
	}
	if list.Kind() != strictjson.Array {
		return netpolicy.Decision{Reason: "the server asks something that cannot be read"}, mcpElicit
	}
	return allowed, ""
}

// asks judges a question of the server to the client. Pings are answered by
// every client and tell nothing.
func (a *mcpAnswer) asks(method string, params strictjson.Value) netpolicy.Decision {
	if method == mcpPing {
		return netpolicy.Decision{Verdict: netpolicy.Allow}
	}
	return a.claim.Call(netpolicy.Call{Method: method, Args: params})
}

// questions judges what a server asks inside a result, as the 2026 revision has
// it instead of requests of its own.
func (a *mcpAnswer) questions(result strictjson.Value) (netpolicy.Decision, string) {
	allowed := netpolicy.Decision{Verdict: netpolicy.Allow}
	if err := result.Exact("inputRequests", "resultType"); err != nil {
		return netpolicy.Decision{Reason: "the server's result: " + err.Error()}, "inputRequests"
	}
	questions := result.Get("inputRequests")
	switch questions.Kind() {
	case strictjson.Invalid, strictjson.Null:
		return allowed, ""
	case strictjson.Object:
	default:
		return netpolicy.Decision{Reason: "the server asks something that cannot be read"}, "inputRequests"
	}
	for _, q := range questions.Members() {
		if err := q.Value.Exact("method", "params"); err != nil || q.Value.Get("method").Kind() != strictjson.String {
			return netpolicy.Decision{Reason: "the server asks something that cannot be read"}, "inputRequests"
		}
		method := q.Value.Get("method").Text()
		if d := a.asks(method, q.Value.Get("params")); d.Verdict != netpolicy.Allow {
			return d, method
		}
	}
	return allowed, ""
}

// lists are the members of results that name what can be called, with the
// method and the member by which it would be.
var lists = []struct{ name, method, key string }{
	{"tools", mcpCallTool, "name"},
	{"prompts", mcpGetPrompt, "name"},
	{"resources", mcpReadResource, "uri"},
	{"resourceTemplates", mcpReadResource, "uriTemplate"},
}

// filter leaves out of a list what the client may not call. It goes by what a
// result looks like: an answer can come on another stream than its request's.
func (a *mcpAnswer) filter(result strictjson.Value) (strictjson.Value, error) {
	if result.Kind() != strictjson.Object {
		return result, nil
	}
	for _, list := range lists {
		if err := result.Exact(list.name); err != nil {
			return result, err
		}
		all := result.Get(list.name)
		switch all.Kind() {
		case strictjson.Invalid, strictjson.Null:
			continue
		case strictjson.Array:
		default:
			return result, errors.New("MCP: " + list.name + " is not a list")
		}
		var shown []strictjson.Value
		for _, item := range all.Items() {
			name := item.Get(list.key)
			if err := item.Exact(list.key); err != nil || name.Kind() != strictjson.String {
				return result, errors.New("MCP: one of " + list.name + " has no proper name")
			}
			if a.shows(list.method, name) {
				shown = append(shown, item)
			}
		}
		if hidden := len(all.Items()) - len(shown); hidden > 0 {
			a.record(netpolicy.Decision{Reason: strconv.Itoa(hidden) + " of the server's " + list.name + " are not shown"}, "list of "+list.name)
		}
		result = result.With(list.name, strictjson.ListOf(shown...))
	}
	return result, nil
}

func (a *mcpAnswer) shows(method string, name strictjson.Value) bool {
	switch method {
	case mcpCallTool:
		return a.claim.Shows(name.Text())
	case mcpReadResource:
		return a.claim.Call(netpolicy.Call{Method: method, Args: oneMember("uri", name)}).Verdict == netpolicy.Allow
	}
	return a.claim.Call(netpolicy.Call{Method: method, Args: oneMember("name", name)}).Verdict == netpolicy.Allow
}

func oneMember(name string, v strictjson.Value) strictjson.Value {
	return strictjson.ObjectOf(strictjson.Member{Name: name, Value: v})
}

// tooLarge gives the answer in place of one that is too large.
func (a *mcpAnswer) tooLarge() []byte {
	return a.failure(a.record(netpolicy.Decision{Reason: "the server's answer is larger than the " +
		strconv.FormatInt(a.claim.MaxResponse(), 10) + " bytes that the rule allows (max_response)"}, "answer"))
}

// failure is an error for each request that waits.
func (a *mcpAnswer) failure(refused *refusal) []byte {
	var all []strictjson.Value
	for _, m := range a.waiting {
		all = append(all, rpcFailure(m.id, refused))
	}
	clear(a.waiting)
	if len(all) == 1 {
		return all[0].Append(nil)
	}
	return strictjson.ListOf(all...).Append(nil)
}

// rpcFailure is a JSON-RPC error of ours as a message.
func rpcFailure(id strictjson.Value, refused *refusal) strictjson.Value {
	refused.inRPC(id)
	v, err := strictjson.Parse(refused.content)
	if err != nil { // our own JSON: cannot happen
		return strictjson.Value{}
	}
	return v
}

// record writes down something that was kept from the client.
func (a *mcpAnswer) record(d netpolicy.Decision, operation string) *refusal {
	fl := a.fl
	refused := denied(fl.f.host, d)
	e := refused.event(audit.KindRequest, fl.f)
	e.Method, e.Path, e.Operation = fl.out.Method, audit.Redact(fl.out.URL.RequestURI()), operation
	if len(operation) > maxOperation {
		e.Operation = operation[:maxOperation]
	}
	fl.s.record(e)
	return refused
}

// boundedBody fails where an answer is longer than it may be.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read gives the body's bytes.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errMessageSize
	}
	return n, err
}

package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// rpcKind is what a JSON-RPC message is. The zero value is none.
type rpcKind uint8

const (
	_ rpcKind = iota
	rpcRequest
	rpcNotification
	rpcResponse
)

// rpcMessage is one message of JSON-RPC 2.0.
type rpcMessage struct {
	kind   rpcKind
	method string           // of a request or notification
	id     strictjson.Value // of a request or response
	params strictjson.Value // invalid when there are none
	value  strictjson.Value // the whole message
}

// rpcNames are the members of messages and of what is judged inside of them.
// Readers that do not tell letter case apart must not find another one.
var rpcNames = []string{"jsonrpc", "method", "params", "id", "result", "error"}

// rpcDenied is the code of our errors: the first that JSON-RPC leaves to servers.
const rpcDenied = -32000

// parseRPC reads one message, or a batch of them. An error names the place and
// never the content.
func parseRPC(v strictjson.Value) (messages []rpcMessage, batch bool, err error) {
	if v.Kind() != strictjson.Array {
		m, err := parseRPCMessage(v)
		return []rpcMessage{m}, false, err
	}
	if len(v.Items()) == 0 {
		return nil, true, errors.New("JSON-RPC: an empty batch")
	}
	for _, item := range v.Items() {
		m, err := parseRPCMessage(item)
		if err != nil {
			return nil, true, err
		}
		messages = append(messages, m)
	}
	return messages, true, nil
}

func parseRPCMessage(v strictjson.Value) (rpcMessage, error) {
	m := rpcMessage{value: v, id: v.Get("id"), params: v.Get("params")}
	if v.Kind() != strictjson.Object {
		return m, errors.New("JSON-RPC: a message is not an object")
	}
	if err := v.Exact(rpcNames...); err != nil {
		return m, errors.New("JSON-RPC: " + err.Error())
	}
	for _, member := range v.Members() {
		if !slices.Contains(rpcNames, member.Name) {
			return m, errors.New("JSON-RPC: a message has a member that the protocol does not know")
		}
	}
	if !v.Get("jsonrpc").IsString("2.0") {
		return m, errors.New(`JSON-RPC: "jsonrpc" is not "2.0"`)
	}
	if v.Get("method").Kind() == strictjson.Invalid {
		return parseRPCResponse(m)
	}
	return parseRPCCall(m)
}

func parseRPCCall(m rpcMessage) (rpcMessage, error) {
	method := m.value.Get("method")
	if m.method = method.Text(); method.Kind() != strictjson.String || !isRPCMethod(m.method) {
		return m, errors.New(`JSON-RPC: "method" is not the name of a method`)
	}
	if has(m.value, "result") || has(m.value, "error") {
		return m, errors.New("JSON-RPC: a message is both call and response")
	}
	switch m.params.Kind() {
	case strictjson.Invalid, strictjson.Object, strictjson.Array:
	default:
		return m, errors.New(`JSON-RPC: "params" is neither object nor array`)
	}
	m.kind = rpcRequest
	if m.id.Kind() == strictjson.Invalid {
		m.kind = rpcNotification
		return m, nil
	}
	return m, checkRPCID(m.id)
}

func parseRPCResponse(m rpcMessage) (rpcMessage, error) {
	m.kind = rpcResponse
	failed := has(m.value, "error")
	switch {
	case failed == has(m.value, "result"):
		return m, errors.New("JSON-RPC: a message has neither method nor one of result and error")
	case has(m.value, "params"):
		return m, errors.New("JSON-RPC: a response has params")
	case failed && m.value.Get("error").Kind() != strictjson.Object:
		return m, errors.New(`JSON-RPC: "error" is not an object`)
	case failed && (m.id.Kind() == strictjson.Null || m.id.Kind() == strictjson.Invalid):
		return m, nil // the other side could not read what it answers
	}
	return m, checkRPCID(m.id)
}

func has(v strictjson.Value, name string) bool { return v.Get(name).Kind() != strictjson.Invalid }

// maxRPCID bounds an id: it is repeated in refusals.
const maxRPCID = 1 << 10

// checkRPCID allows what every reader takes for the same id.
func checkRPCID(id strictjson.Value) error {
	if _, whole := id.Int(); whole || id.Kind() == strictjson.String && len(id.Text()) <= maxRPCID {
		return nil
	}
	return errors.New(`JSON-RPC: "id" is neither a short string nor a whole number`)
}

// isRPCMethod allows visible ASCII, and no slash that some servers drop.
func isRPCMethod(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && len(s) <= 256 && s[0] != '/' && s[len(s)-1] != '/' && !strings.Contains(s, "//")
}

// rpcTypes are the media types of JSON-RPC, the usual one first.
var rpcTypes = []string{"application/json", "application/json-rpc", "application/jsonrequest"}

// rpcQuery are the parameters in which some servers look for a call.
var rpcQuery = []string{"jsonrpc", "method", "params", "id", "request"}

// jsonrpc judges each call of a request. A batch is allowed whole or not at all.
func (fl *flow) jsonrpc() *refusal {
	if fl.out.Method != http.MethodPost {
		return forbidden(fl.f.host, "JSON-RPC is spoken with POST alone")
	}
	if refused := fl.withoutParameters("JSON-RPC", rpcQuery); refused != nil {
		return refused
	}
	messages, refused := fl.readRPC()
	if refused != nil {
		return refused
	}
	for _, m := range messages {
		if m.kind == rpcResponse {
			return forbidden(fl.f.host, "JSON-RPC: a response where a call was expected")
		}
		if refused := fl.judgeCall(netpolicy.Call{Method: m.method, Args: m.params}); refused != nil {
			return refused
		}
	}
	return nil
}

// readRPC takes the messages of a request; what goes out is what was read.
func (fl *flow) readRPC() ([]rpcMessage, *refusal) {
	if refused := fl.withoutOverride(); refused != nil {
		return nil, refused
	}
	v, refused := fl.readJSON(rpcTypes...)
	if refused != nil {
		return nil, refused
	}
	messages, batch, err := parseRPC(v)
	if err != nil {
		return nil, malformed(http.StatusBadRequest, err.Error())
	}
	if fl.msg.batch = batch; !batch {
		fl.msg.callID = messages[0].id
	}
	fl.operation(describe(messages))
	fl.sendBody(v.Append(nil), rpcTypes[0])
	return messages, nil
}

// judgeCall asks the claim about one call.
func (fl *flow) judgeCall(call netpolicy.Call) *refusal {
	d := fl.decision.Claim.Call(call)
	if d.Verdict != netpolicy.Allow {
		return denied(fl.f.host, d)
	}
	return fl.accept(d)
}

// withoutParameters refuses a query that says what only the body may say.
func (fl *flow) withoutParameters(protocol string, names []string) *refusal {
	for name := range fl.judged.Query {
		if isParameterOf(name, names) {
			return forbidden(fl.f.host, protocol+": a parameter of the query is also one of the message")
		}
	}
	return nil
}

// isParameterOf tells whether some server takes a parameter for one of names.
func isParameterOf(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return netpolicy.IsParameter(name, n) })
}

// describe names what messages are for: methods, and of MCP what is called by
// name. Other params may be secrets.
func describe(messages []rpcMessage) string {
	var all []string
	for _, m := range messages {
		text := "response"
		if m.kind != rpcResponse {
			text = m.method
		}
		if m.method == mcpCallTool || m.method == mcpGetPrompt {
			text = strings.TrimSpace(text + " " + m.params.Get("name").Text())
		}
		all = append(all, text)
		if len(all) == 10 {
			break
		}
	}
	return strings.Join(all, ", ")
}

// rpcRefusal is a refusal as a JSON-RPC error, which clients of MCP show.
type rpcRefusal struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   rpcError        `json:"error"`
}

type rpcError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Data    *refusal `json:"data"`
}

// inRPC puts a refusal into a JSON-RPC error. The refusal itself is its data.
func (r *refusal) inRPC(id strictjson.Value) {
	number := json.RawMessage("null")
	if checkRPCID(id) == nil {
		number = id.Append(nil)
	}
	message := r.Reason
	if r.Error == errPolicy {
		message = "denied by the sandbox's policy: " + message
	}
	b, err := json.Marshal(rpcRefusal{JSONRPC: "2.0", ID: number, Error: rpcError{Code: rpcDenied, Message: message, Data: r}})
	if err == nil { // ids are well-formed JSON: always
		r.content = append(b, '\n')
	}
}

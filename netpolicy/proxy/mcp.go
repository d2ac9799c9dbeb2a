package proxy

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// The methods of MCP that are treated apart.
const (
	mcpCallTool     = "tools/call"
	mcpListTools    = "tools/list"
	mcpGetPrompt    = "prompts/get"
	mcpReadResource = "resources/read"
	mcpPing         = "ping"
	mcpElicit       = "elicitation/create"
)

// mcpQuery are the parameters in which a server of JSON-RPC could look for a call.
var mcpQuery = []string{"jsonrpc", "method", "params", "request"}

// mcpMethods are the methods whose other spellings are refused: a server that
// does not tell letter case apart would run what a deny clause does not name.
var mcpMethods = []string{
	"initialize", mcpPing, mcpCallTool, mcpListTools, mcpGetPrompt, "prompts/list", mcpReadResource, "resources/list",
	"resources/templates/list", "resources/subscribe", "resources/unsubscribe", "completion/complete", "logging/setLevel",
	"sampling/createMessage", mcpElicit, "roots/list", "server/discover", "subscriptions/listen",
	"tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update",
}

// mcp judges a request of the Model Context Protocol in its HTTP transports:
// Streamable HTTP with sessions (2025) and without (2026), and the older one
// with a stream of events beside it.
func (fl *flow) mcp() *refusal {
	if refused := fl.withoutParameters("MCP", mcpQuery); refused != nil {
		return refused
	}
	var messages []rpcMessage
	var refused *refusal
	switch fl.out.Method {
	case http.MethodPost:
		messages, refused = fl.mcpPost()
	case http.MethodGet, http.MethodDelete: // open a stream, end a session
		refused = fl.mcpBare()
	default:
		refused = forbidden(fl.f.host, "MCP is spoken with POST, GET and DELETE alone")
	}
	if refused != nil {
		return refused
	}
	// Answers are read, so they must come as they are.
	fl.out.Header["Accept-Encoding"] = []string{"identity"}
	delete(fl.out.Header, "Range")
	answer := &mcpAnswer{fl: fl, claim: fl.decision.Claim, waiting: map[string]rpcMessage{}}
	for _, m := range messages {
		if m.kind == rpcRequest {
			answer.waiting[string(m.id.Append(nil))] = m
		}
	}
	fl.replies = append(fl.replies, answer.reply) //nolint:bodyclose // whoever sends the request closes it
	return nil
}

// mcpBare judges a request without messages.
func (fl *flow) mcpBare() *refusal {
	for _, check := range []func() *refusal{fl.withoutOverride, fl.withoutBody} {
		if refused := check(); refused != nil {
			return refused
		}
	}
	return fl.checkMCPFields(rpcMessage{})
}

func (fl *flow) mcpPost() ([]rpcMessage, *refusal) {
	messages, refused := fl.readRPC()
	if refused != nil {
		return nil, refused
	}
	responses := 0
	ids := map[string]bool{}
	for _, m := range messages {
		if m.kind == rpcResponse {
			responses++ // to a question of the server, which was judged
			continue
		}
		call, err := mcpCall(m)
		if err != nil {
			return nil, malformed(http.StatusBadRequest, err.Error())
		}
		if refused := fl.judgeCall(call); refused != nil {
			return nil, refused
		}
		id := string(m.id.Append(nil))
		if m.kind == rpcRequest && ids[id] {
			return nil, malformed(http.StatusBadRequest, "MCP: two requests with one id")
		}
		ids[id] = true
	}
	if responses > 0 && responses < len(messages) {
		return nil, malformed(http.StatusBadRequest, "MCP: calls and responses in one batch")
	}
	if fl.msg.batch {
		return messages, fl.checkMCPFields(rpcMessage{})
	}
	return messages, fl.checkMCPFields(messages[0])
}

// mcpCall gives what is judged of a message. What a rule's args look at are the
// arguments of a tool, and the params of every other method.
func mcpCall(m rpcMessage) (netpolicy.Call, error) {
	for _, known := range mcpMethods {
		if m.method != known && strings.EqualFold(m.method, known) {
			return netpolicy.Call{}, errors.New("MCP: a method is not spelt " + known)
		}
	}
	if k := m.params.Kind(); k != strictjson.Invalid && k != strictjson.Object {
		return netpolicy.Call{}, errors.New("MCP: params is not an object")
	}
	if err := m.params.Exact("name", "arguments", "uri"); err != nil {
		return netpolicy.Call{}, errors.New("MCP: " + err.Error())
	}
	if m.method != mcpCallTool {
		return netpolicy.Call{Method: m.method, Args: m.params}, nil
	}
	name, args := m.params.Get("name"), m.params.Get("arguments")
	if name.Kind() != strictjson.String || !isMCPName(name.Text()) {
		return netpolicy.Call{}, errors.New("MCP: a tool is called without a proper name")
	}
	switch args.Kind() {
	case strictjson.Invalid, strictjson.Null, strictjson.Object:
	default:
		return netpolicy.Call{}, errors.New("MCP: the arguments of a tool are not an object")
	}
	return netpolicy.Call{Method: m.method, Tool: name.Text(), Args: args}, nil
}

// isMCPName refuses names that some server could trim or cut.
func isMCPName(s string) bool {
	return s != "" && len(s) <= 512 && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// The fields in which requests of the 2026 revision repeat what they call.
const (
	mcpMethodField = "Mcp-Method"
	mcpNameField   = "Mcp-Name"
	mcpParamField  = "Mcp-Param-"
)

func (fl *flow) checkMCPFields(m rpcMessage) *refusal {
	if err := checkMCPFields(fl.out.Header, m); err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	return nil
}

// checkMCPFields refuses fields that say something else than the one message: a
// server or a proxy on the way could go by them.
func checkMCPFields(h http.Header, m rpcMessage) error {
	for name, values := range h {
		plain := dashed(name)
		if plain != mcpMethodField && plain != mcpNameField && !strings.HasPrefix(plain, mcpParamField) {
			continue
		}
		switch {
		case plain != name:
			return errors.New("MCP: a field is written with an underscore")
		case len(values) != 1:
			return errors.New("MCP: field " + name + " is there twice")
		case m.kind != rpcRequest && m.kind != rpcNotification:
			return errors.New("MCP: field " + name + " does not belong to one call")
		}
		value, ok := decodeMCPField(values[0])
		if !ok || !agrees(name, value, m) {
			return errors.New("MCP: field " + name + " says something else than the message")
		}
	}
	return nil
}

// decodeMCPField reads a value, which is in base64 where it is not plain ASCII.
func decodeMCPField(value string) (string, bool) {
	encoded, ok := strings.CutPrefix(value, "=?base64?")
	if !ok {
		return value, true
	}
	if encoded, ok = strings.CutSuffix(encoded, "?="); !ok {
		return value, true
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	return string(b), err == nil
}

// agrees tells whether a field repeats what the message says. Which argument a
// parameter stands for is known to the tool's schema alone, so it must be one of
// them.
func agrees(field, value string, m rpcMessage) bool {
	switch field {
	case mcpMethodField:
		return value == m.method
	case mcpNameField:
		return m.params.Get("name").IsString(value) || !has(m.params, "name") && m.params.Get("uri").IsString(value)
	}
	return m.method == mcpCallTool && holds(m.params.Get("arguments"), value)
}

// holds tells whether some plain value inside v is spelt so.
func holds(v strictjson.Value, text string) bool {
	switch v.Kind() {
	case strictjson.String, strictjson.Number, strictjson.Bool:
		return v.Text() == text
	case strictjson.Array:
		return slices.ContainsFunc(v.Items(), func(item strictjson.Value) bool { return holds(item, text) })
	case strictjson.Object:
		return slices.ContainsFunc(v.Members(), func(m strictjson.Member) bool { return holds(m.Value, text) })
	}
	return false
}

package netpolicy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// InnerInference is the name at which models are reached from inside without
// knowing where they are.
const InnerInference = "inference.internal"

// Claim is what a request was recognised as: something whose messages the rules
// of one protocol judge, and nobody else. The zero value denies every message.
type Claim struct {
	// Protocol is the protocol of the messages; "" when Inference is set.
	Protocol policy.Protocol
	// Inference tells that the request is for models. Route is then the index of
	// the route in the policy, or -1 at the inner name, where any may serve it.
	Inference bool
	Route     int

	host     Host
	path     string
	method   string     // gRPC: from the head
	git      GitRequest // git: from the head
	rules    []*rule    // that claim it: what they deny is denied
	allowing []*rule    // of those, the ones that may allow, with one credential
}

// Call is one JSON-RPC or gRPC call.
type Call struct {
	// Method is the JSON-RPC method ("tools/call"), or service and method of a
	// gRPC call ("pkg.Service/Method").
	Method string
	// Tool is the name of the tool that an MCP tools/call is for.
	Tool string
	// Args are the tool's arguments, or the params of a JSON-RPC call.
	Args strictjson.Value
}

// GitRequest is one fetch or push over smart HTTP.
type GitRequest struct {
	// Op is "fetch" or "push".
	Op string
	// Repo is the repository: the path without its first slash and ".git".
	Repo string
	// Refs are the full names of the refs that a push changes. Nil while they are
	// not known: at the advertisement that comes before a push.
	Refs []string
}

// Operation is one GraphQL operation, with its fragments resolved.
type Operation struct {
	// Kind is "query", "mutation" or "subscription".
	Kind string
	// Name is the operation's name, or "".
	Name string
	// Fields are the root fields by their real names.
	Fields []string
}

// Message is one message of a WebSocket client.
type Message struct {
	// Size is its length in bytes.
	Size int64
	// Text tells a text message from a binary one.
	Text bool
	// JSON is its content, or invalid when it is not JSON.
	JSON strictjson.Value
}

// Call judges a call of JSON-RPC, MCP or gRPC.
//
// In MCP, the methods of the session itself need no clause of "allow"; see
// policy.Match.
func (c *Claim) Call(call Call) Decision {
	switch c.Protocol {
	case policy.ProtocolMCP:
		if reason := malformedCall(&call); reason != "" {
			return c.refuse(reason)
		}
	case policy.ProtocolJSONRPC, policy.ProtocolGRPC:
		if call.Method == "" {
			return c.refuse("the call names no method")
		}
	default:
		return c.unknown()
	}
	return c.judge(
		func(m *message) bool { return m.touchesCall(&call) },
		func(m *message) bool { return m.fitsCall(&call) },
		c.Protocol == policy.ProtocolMCP && c.isSession(call.Method),
		func() (what, hint string) { return c.callTexts(&call) },
	)
}

// Shows tells whether a list may name the tool: some arguments of a call of it
// would be allowed.
func (c *Claim) Shows(tool string) bool {
	if c.Protocol != policy.ProtocolMCP || tool == "" {
		return false
	}
	return c.judge(
		func(m *message) bool { return m.touchesTool(tool) },
		func(m *message) bool { return m.fitsTool(tool) },
		false, noText,
	).Verdict == Allow
}

// Rules names the rules that judge the messages.
func (c *Claim) Rules() []string {
	var names []string
	for _, r := range c.rules {
		names = append(names, strconv.Quote(r.name))
	}
	return names
}

// Target is what the head of a git request asks for; its refs are not known.
func (c *Claim) Target() GitRequest { return c.git }

// Git judges a fetch or push. While the refs of a push are nil, it is allowed
// if some push to the repository could be.
func (c *Claim) Git(r GitRequest) Decision {
	switch {
	case c.Protocol != policy.ProtocolGit:
		return c.unknown()
	case r.Op != opFetch && r.Op != opPush || r.Repo == "":
		return c.refuse("it is neither fetch nor push of a repository")
	}
	return c.judge(
		func(m *message) bool { return m.touchesGit(&r) },
		func(m *message) bool { return m.fitsGit(&r) },
		false,
		func() (what, hint string) { return gitText(&r), gitHint(&r) },
	)
}

// Operation judges a GraphQL operation.
func (c *Claim) Operation(o Operation) Decision {
	switch {
	case c.Protocol != policy.ProtocolGraphQL:
		return c.unknown()
	case !slices.Contains(operationKinds, o.Kind):
		return c.refuse("it is no query, mutation or subscription")
	case len(o.Fields) == 0:
		return c.refuse("the operation has no root field")
	}
	return c.judge(
		func(m *message) bool { return m.touchesOperation(&o) },
		func(m *message) bool { return m.fitsOperation(&o) },
		false,
		func() (what, hint string) { return operationText(&o), operationHint(&o) },
	)
}

// Message judges a message of a WebSocket client. Where a clause of "deny" looks
// into JSON, what is not JSON is denied.
func (c *Claim) Message(m Message) Decision {
	if c.Protocol != policy.ProtocolWebSocket {
		return c.unknown()
	}
	if m.Size < 0 || m.Size > c.MaxMessage() {
		return c.refuse(fmt.Sprintf("a message of %d bytes is larger than %d", m.Size, c.MaxMessage()))
	}
	r := Request{Path: c.path}
	return c.judge(
		func(cl *message) bool { return cl.touchesPath(&r) && cl.touchesMessage(&m) },
		func(cl *message) bool { return cl.fitsPath(c.path) && cl.fitsMessage(&m) },
		false,
		func() (what, hint string) { return messageText(&m), "" },
	)
}

// ReadsMessages tells whether a WebSocket's text messages must be parsed as
// JSON to judge them.
func (c *Claim) ReadsMessages() bool {
	reads := func(m message) bool { return m.json != nil }
	for _, r := range c.rules {
		if slices.ContainsFunc(r.denyMessages, reads) || slices.ContainsFunc(r.allowMessages, reads) {
			return true
		}
	}
	return false
}

// MaxMessage is the largest message of a WebSocket client that any rule allows
// (bytes).
func (c *Claim) MaxMessage() int64 {
	var most int64
	for _, r := range c.allowing {
		if !r.allowSet {
			most = max(most, defaultMaxMessage)
		}
		for i := range r.allowMessages {
			if m := &r.allowMessages[i]; m.fitsPath(c.path) {
				most = max(most, m.largest())
			}
		}
	}
	return most
}

// MaxResponse is the largest answer of an MCP server (bytes).
func (c *Claim) MaxResponse() int64 {
	var most int64
	for _, r := range c.allowing {
		limit := r.maxResponse
		if limit == 0 {
			limit = defaultMaxResponse
		}
		most = max(most, limit)
	}
	return most
}

const defaultMaxResponse = 16 << 20

// judge asks all clauses of the protocol: none of "deny" may touch, and one of
// "allow" must fit unless the message is free.
func (c *Claim) judge(touches, fits func(*message) bool, free bool, text func() (what, hint string)) Decision {
	for _, r := range c.rules {
		for i := range r.denyMessages {
			if touches(&r.denyMessages[i]) {
				what, _ := text()
				return r.deniedBy(&r.denyMessages[i], what)
			}
		}
	}
	for _, r := range c.allowing {
		if r.fits(fits, free) {
			d := granted(r, ModeInspect)
			d.Credential = r.credential
			return d
		}
	}
	if len(c.allowing) == 0 {
		return c.unknown()
	}
	what, hint := text()
	return c.allowing[0].notAllowed(what, hint)
}

// fits tells whether the rule allows what fits says. A rule with an empty
// "allow" allows not even what is free.
func (c *rule) fits(fits func(*message) bool, free bool) bool {
	if !c.allowSet {
		return true
	}
	for i := range c.allowMessages {
		if free || fits(&c.allowMessages[i]) {
			return true
		}
	}
	return false
}

// isSession tells whether a method belongs to the session itself: it calls
// nothing. Lists of tools are filtered, so that they belong to it where some
// tool may be called.
func (c *Claim) isSession(method string) bool {
	switch method {
	case "initialize", "server/discover", "ping", "logging/setLevel", "completion/complete", "subscriptions/listen":
		return true
	case "tools/list":
		return slices.ContainsFunc(c.allowing, func(r *rule) bool {
			return slices.ContainsFunc(r.allowMessages, func(m message) bool { return fitsOne(m.calls, toolsCall) })
		})
	}
	return sessionNotices.fits(method)
}

// sessionNotices are the notifications, which ask for nothing.
var sessionNotices = fixedText("notifications/**")

// fixedText reads a pattern of this package's own. One that cannot be read fits
// nothing.
func fixedText(s string) textGlob {
	g, _ := parseTextGlob(s)
	return g
}

// malformedCall refuses spellings that a lenient server takes for tools/call.
func malformedCall(call *Call) string {
	switch {
	case call.Method == "":
		return "the call names no method"
	case call.Method == toolsCall && call.Tool == "":
		return "the call names no tool"
	case call.Method != toolsCall && toolsCallGlob.touches(call.Method):
		return "the method is not spelt " + toolsCall
	}
	return ""
}

var toolsCallGlob = fixedText(toolsCall)

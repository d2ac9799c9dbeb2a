package netpolicy

import (
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

	host  Host
	rules []*rule
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
func (c *Claim) Call(call Call) Decision { return c.unknown() }

// Shows tells whether a list may name the tool: some arguments of a call of it
// would be allowed.
func (c *Claim) Shows(tool string) bool { return false }

// Git judges a fetch or push.
func (c *Claim) Git(r GitRequest) Decision { return c.unknown() }

// Operation judges a GraphQL operation.
func (c *Claim) Operation(o Operation) Decision { return c.unknown() }

// Message judges a message of a WebSocket client.
func (c *Claim) Message(m Message) Decision { return c.unknown() }

// ReadsMessages tells whether a WebSocket's text messages must be parsed as
// JSON to judge them.
func (c *Claim) ReadsMessages() bool { return true }

// MaxMessage is the largest message of a WebSocket client that any rule allows
// (bytes).
func (c *Claim) MaxMessage() int64 { return 1 << 20 }

// MaxResponse is the largest answer of an MCP server (bytes).
func (c *Claim) MaxResponse() int64 { return 16 << 20 }

func (c *Claim) unknown() Decision {
	return Decision{Mode: ModeInspect, Reason: "no rule judges this protocol"}
}

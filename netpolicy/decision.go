package netpolicy

import (
	"net/url"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Verdict is the outcome of a decision. The zero value is Deny.
type Verdict uint8

// The verdicts.
const (
	Deny Verdict = iota
	Allow
)

// String gives "deny" or "allow".
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Mode is how the bytes of a connection are carried. The zero value refuses
// the connection.
type Mode uint8

// The modes.
const (
	// ModeRefuse closes the connection without an answer.
	ModeRefuse Mode = iota
	// ModeTCP carries bytes without reading them.
	ModeTCP
	// ModePass carries TLS without ending it, after the server name in the
	// ClientHello was compared with the host. HTTP without TLS is parsed and
	// judged as under ModeInspect; anything else is refused.
	ModePass
	// ModeInspect ends TLS and parses HTTP, and every request is judged. With
	// the verdict Deny it says that a denial can be answered in HTTP.
	ModeInspect
)

// String gives "refuse", "tcp", "pass" or "inspect".
func (m Mode) String() string {
	switch m {
	case ModeTCP:
		return "tcp"
	case ModePass:
		return "pass"
	case ModeInspect:
		return "inspect"
	default:
		return "refuse"
	}
}

// Decision is a verdict that explains itself. The zero value refuses.
type Decision struct {
	Verdict Verdict
	Mode    Mode
	// Rule is the name of the deciding rule, or the policy path of an entry
	// without a name ("network.deny[0]"), or empty when nothing matched.
	Rule string
	// Pos is where the deciding entry was written.
	Pos policy.Pos
	// Reason says what matched, in lower case. Never empty in a denial.
	Reason string
	// Hint is one thing the operator can do, or empty.
	Hint string
	// Credential names the credential to attach to an allowed request, or "".
	Credential string
	// MaxBody is the largest body that an allowed request may have (bytes); 0:
	// no limit.
	MaxBody int64
	// Claim judges the messages of an allowed request. Nil: it has none that
	// anybody judges. With a claim, Allow means no more than that the messages
	// may be read and judged.
	Claim *Claim
}

// Request is one HTTP request, already parsed.
type Request struct {
	Host Host
	Port uint16
	// TLS tells that the request came over TLS. No rule judges by it.
	TLS bool
	// Method is case-sensitive: "get" is not GET.
	Method string
	// Path is in the form that CanonicalPath gives; any other is denied.
	Path string
	// Query holds the parameters as ParseQuery gives them.
	Query url.Values
	// Header holds the fields by canonical name. Rules judge by their presence,
	// and by the type of the content.
	Header map[string][]string
	// Length is the length of the body in bytes, -1 when it is not known.
	Length int64
	// WebSocket tells that the request asks for an upgrade to WebSocket.
	WebSocket bool

	split string // Path with escaped slashes as real ones; "" without any
}

// Package audit writes and reads the record of a run: one JSON object a line in
// the form of OCSF, one line a decision. The launcher and the proxy write to the
// same file; each line is one write(2) on a descriptor in append mode, so lines
// never mix. Each of them keeps a keyed chain of its lines, which Verify checks.
//
// The record is read in terminals and by other programs. Whatever an agent or
// a server chose (names, paths, reasons) is therefore escaped so that no event
// spans two lines and no byte acts on a terminal.
package audit

import "time"

// Kind says what an event is about.
type Kind string

// The kinds.
const (
	KindLaunch     Kind = "launch"     // a run begins: policy, layers, degradations
	KindExit       Kind = "exit"       // a run ends
	KindName       Kind = "name"       // a name was asked for the first time
	KindConnection Kind = "connection" // a TCP connection was decided
	KindInbound    Kind = "inbound"    // a port is published, or whoever connected to it was refused
	KindRequest    Kind = "request"    // an HTTP request was decided
	KindAddress    Kind = "address"    // a resolved address was refused
	KindUpstream   Kind = "upstream"   // an allowed request or connection failed outside
	KindFault      Kind = "fault"      // a mistake of ours that one connection paid for
	KindDropped    Kind = "dropped"    // events left out because there were too many
	KindSecret     Kind = "secret"     // a placeholder or a live secret was about to leave or to come in
	KindInference  Kind = "inference"  // what a call of a model used
	KindBudget     Kind = "budget"     // a budget is nearly or wholly used up
	KindReload     Kind = "reload"     // the policy was loaded again, or was not
	KindService    Kind = "service"    // a supervised service started, ended, was started again or given up
	KindControl    Kind = "control"    // the run's user did something with it: exec, stop, pause, resume, attach
	KindProxy      Kind = "proxy"      // the proxy ended during the run, or another took over
)

// The kinds that are about the record itself. Log writes them.
const (
	KindOpen       Kind = "open"       // a writer begins its chain
	KindCheckpoint Kind = "checkpoint" // how far a chain has come
	KindEnd        Kind = "end"        // a writer is done: nothing of its chain follows
)

// Kinds gives all kinds.
func Kinds() []Kind {
	return []Kind{
		KindLaunch, KindExit, KindName, KindConnection, KindInbound, KindRequest, KindAddress, KindUpstream, KindFault, KindDropped, KindSecret,
		KindInference, KindBudget, KindReload, KindService, KindControl, KindProxy, KindOpen, KindCheckpoint, KindEnd,
	}
}

// Bookkeeping tells whether such events are about the record and not about the run.
func (k Kind) Bookkeeping() bool { return k == KindOpen || k == KindCheckpoint || k == KindEnd }

// Verdict is the decision in an event. The zero value is for events that
// decide nothing.
type Verdict string

// The verdicts.
const (
	Deny  Verdict = "deny"
	Allow Verdict = "allow"
)

// Event is what one line of the record says. Empty fields are left out. The
// names in JSON are those of "hermes-wrap audit show --events"; the record
// itself has the form of OCSF.
type Event struct {
	// Time is when it happened. Zero: Log fills in the present.
	Time time.Time `json:"time"`
	// Run identifies the run. Log fills in its own.
	Run string `json:"run,omitempty"`
	// Writer is who wrote the line, launcher, proxy or a later proxy of the run
	// (proxy-2), and Sequence the line's number in that writer's chain, from 1 on.
	// Log fills them in.
	Writer   string `json:"writer,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	// Kind says what the event is about.
	Kind Kind `json:"kind"`
	// Verdict is allow or deny.
	Verdict Verdict `json:"verdict,omitempty"`
	// ID is the identifier that the agent was shown with a denial.
	ID string `json:"id,omitempty"`
	// Host is the name or IP literal in canonical form.
	Host string `json:"host,omitempty"`
	// Port is the port the agent connected to.
	Port uint16 `json:"port,omitempty"`
	// Addr is the address that was judged or dialled, or whose connection was
	// judged (inbound).
	Addr string `json:"addr,omitempty"`
	// Protocol is tls, http/1.1, h2, tcp or dns.
	Protocol string `json:"protocol,omitempty"`
	// Method is the HTTP method.
	Method string `json:"method,omitempty"`
	// Path is the request's path; values of its query are left out (see Redact).
	Path string `json:"path,omitempty"`
	// Status is the HTTP status the agent was given.
	Status int `json:"status,omitempty"`
	// Rule is the name of the deciding rule.
	Rule string `json:"rule,omitempty"`
	// Pos is where that rule stands: file:line:col.
	Pos string `json:"pos,omitempty"`
	// Reason is the decision in a sentence.
	Reason string `json:"reason,omitempty"`
	// Count is the number of events that a KindDropped event stands for, and
	// the number of lines before this one in a checkpoint and an end. In a
	// KindProxy event it is how many lines a writer that was killed wrote. In the
	// launcher's KindOpen it is the run's number among those of the record.
	Count int64 `json:"count,omitempty"`

	// Operation is what was asked for inside a request: "tools/call search",
	// "push refs/heads/main", "mutation deleteRepo". Of a service it is what
	// happened: "start", "exit", "restart", "give up", "unhealthy", "kill".
	Operation string `json:"operation,omitempty"`
	// Credential is the name of the credential that was attached or met.
	Credential string `json:"credential,omitempty"`
	// Model is the model that was asked for, and Route the route that served it.
	Model string `json:"model,omitempty"`
	Route string `json:"route,omitempty"`
	// InputTokens, OutputTokens and Cost are what a call used (inference).
	InputTokens  int64   `json:"input_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	Cost         float64 `json:"cost,omitempty"`
	// Estimated tells that the provider did not say what was used.
	Estimated bool `json:"estimated,omitempty"`

	// Policy is the name of the policy (launch).
	Policy string `json:"policy,omitempty"`
	// Source is the file or built-in the policy came from (launch).
	Source string `json:"source,omitempty"`
	// Digest is the SHA-256 of the resolved policy (launch), and the head of
	// the chain in a checkpoint and an end.
	Digest string `json:"digest,omitempty"`
	// Version is the version of hermes-wrap (launch).
	Version string `json:"version,omitempty"`
	// Command is the program's name without its arguments, which may hold
	// secrets (launch).
	Command string `json:"command,omitempty"`
	// Layers says of each layer what enforces it (launch).
	Layers []Layer `json:"layers,omitempty"`
	// Degraded names the layers that are missing by leave of the policy (launch).
	Degraded []string `json:"degraded,omitempty"`
	// Service is the service that an event is about (service).
	Service string `json:"service,omitempty"`
	// ExitCode is the status of the command or a service (exit, service); nil elsewhere.
	ExitCode *int `json:"exit_code,omitempty"`
	// Writers names the others that wrote to the record in this run (end of the
	// launcher), or the one that was killed, whose chain has no end (proxy).
	Writers []string `json:"writers,omitempty"`
}

// Layer is one protection of a run.
type Layer struct {
	// Name is the layer as in require.may_degrade.
	Name string `json:"name"`
	// Enforced tells whether it holds.
	Enforced bool `json:"enforced"`
	// Mechanism is what enforces it ("landlock ABI 7", "cgroup v2").
	Mechanism string `json:"mechanism,omitempty"`
}

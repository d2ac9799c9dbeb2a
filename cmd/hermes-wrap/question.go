package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// answer is what the compiled policy says to one question.
type answer struct {
	Allowed bool       `json:"allowed"`
	Private bool       `json:"private,omitempty"` // the host's file of that name is not touched
	Unheld  bool       `json:"unheld,omitempty"`  // a rule refuses it, and the policy allows that nothing holds the rule
	Reason  string     `json:"reason"`
	Rule    string     `json:"rule,omitempty"`
	Pos     policy.Pos `json:"pos,omitzero"`
	Hint    string     `json:"hint,omitempty"`
}

// kinds of questions, as words of "why" and as keys of "assert".
var questionKinds = []string{"read", "write", "exec", "connect", "url", "env", "syscall"}

// ask answers from the plan and the engine, never from the policy's text.
func ask(p prepared, kind, what string) (answer, error) {
	switch kind {
	case "read", "write", "exec":
		path, err := p.expandPath(what)
		if err != nil {
			return answer{}, err
		}
		v := p.plan.Judge(path, kind)
		return answer{Allowed: v.Allowed, Private: v.Private, Unheld: v.Unheld, Reason: v.Reason, Rule: v.Rule, Pos: v.Pos}, nil
	case "connect":
		h, port, err := netpolicy.ParseHostPort(what, 0)
		if err != nil {
			return answer{}, err
		}
		d := p.engine.Connection(h, port)
		if d.Verdict == netpolicy.Allow && h.IsAddr() {
			if a := p.engine.Address(h.Addr(), port); a.Verdict == netpolicy.Deny {
				d = a
			}
		}
		return fromDecision(d), nil
	case "url":
		return askURL(p, what)
	case "env":
		ok, why := sandbox.EnvVerdict(p.policy.Env, what)
		if _, set := p.policy.Env.Set[what]; set {
			ok, why = true, "env.set sets it"
		}
		for _, name := range sortedNames(p.policy.Credentials) {
			if p.policy.Credentials[name].Expose.Env == what {
				ok, why = true, "it holds a placeholder of credentials."+name
			}
		}
		return answer{Allowed: ok, Reason: why}, nil
	case "syscall":
		ok, why := sandbox.FilterVerdict(p.plan.Filter, what)
		return answer{Allowed: ok, Reason: why}, nil
	}
	return answer{}, fmt.Errorf("unknown question %q; one of %s", kind, strings.Join(questionKinds, ", "))
}

func fromDecision(d netpolicy.Decision) answer {
	return answer{Allowed: d.Verdict == netpolicy.Allow, Reason: d.Reason, Rule: d.Rule, Pos: d.Pos, Hint: d.Hint}
}

// askURL takes "METHOD URL", or a URL alone for GET. The schemes ws and wss
// stand for an upgrade to WebSocket.
func askURL(p prepared, what string) (answer, error) {
	method, address, ok := strings.Cut(what, " ")
	if !ok {
		method, address = "GET", what
	}
	u, err := url.Parse(address)
	if err != nil {
		return answer{}, err
	}
	def := map[string]uint16{"http": 80, "https": 443, "ws": 80, "wss": 443}[u.Scheme]
	if def == 0 {
		return answer{}, fmt.Errorf("unknown scheme in %q: http, https, ws or wss", address)
	}
	h, port, err := netpolicy.ParseHostPort(u.Host, def)
	if err != nil {
		return answer{}, err
	}
	d := p.engine.Connection(h, port)
	if d.Verdict == netpolicy.Deny || d.Mode == netpolicy.ModePass || d.Mode == netpolicy.ModeTCP {
		return fromDecision(d), nil
	}
	target := u.EscapedPath()
	if target == "" {
		target = "/"
	}
	if u.RawQuery != "" {
		target += "?" + u.RawQuery
	}
	path, raw, err := netpolicy.SplitTarget(target)
	if err != nil {
		return answer{Reason: err.Error()}, nil
	}
	query, err := netpolicy.ParseQuery(raw)
	if err != nil {
		return answer{Reason: err.Error()}, nil
	}
	d = p.engine.Request(netpolicy.Request{
		Host: h, Port: port, TLS: def == 443, Method: method, Path: path, Query: query,
		WebSocket: strings.HasPrefix(u.Scheme, "ws"),
	})
	if d.Verdict == netpolicy.Allow && d.Claim != nil && d.Claim.Inference {
		models, err := inference.Compile(p.policy.Inference)
		if err != nil {
			return answer{}, err
		}
		if no := models.Serves(d.Claim.Route, method, path); no != nil {
			d.Verdict, d.Reason, d.Hint = netpolicy.Deny, no.Reason, no.Hint
		}
	}
	out := fromDecision(d)
	if d.Verdict == netpolicy.Allow {
		out.Reason += furtherJudging(d)
	}
	return out, nil
}

// furtherJudging says what an allowed head leaves to be judged.
func furtherJudging(d netpolicy.Decision) string {
	text := ""
	if d.Credential != "" {
		text = fmt.Sprintf(", with credential %q", d.Credential)
	}
	switch c := d.Claim; {
	case c == nil:
	case c.Inference:
		text += "; what it asks of which model is judged by inference.routes"
	case c.Protocol == policy.ProtocolGRPC:
		text += "; it is judged as grpc"
	default:
		text += fmt.Sprintf("; each message is judged as %s by %s", c.Protocol, strings.Join(c.Rules(), ", "))
	}
	if d.MaxBody > 0 {
		text += fmt.Sprintf("; the body may have %d bytes", d.MaxBody)
	}
	return text
}

// expandPath reads a path as the policy does.
func (p prepared) expandPath(path string) (string, error) {
	switch {
	case path == "~" || strings.HasPrefix(path, "~/"):
		path = p.host.Home + path[1:]
	case strings.HasPrefix(path, "${"):
		name, rest, ok := strings.Cut(path[2:], "}")
		value := p.policy.Vars[name]
		if !ok || value == "" {
			return "", fmt.Errorf("unknown variable in %q", path)
		}
		path = value + rest
	case !filepath.IsAbs(path):
		path = filepath.Join(p.host.Cwd, path)
	}
	return filepath.Clean(path), nil
}

// probeOf gives the one question of a probe.
func probeOf(q policy.Probe) (kind, what string) {
	for i, s := range []string{q.Read, q.Write, q.Exec, q.Connect, q.URL, q.Env, q.Syscall} {
		if s != "" {
			return questionKinds[i], s
		}
	}
	return "", ""
}

// verdictOf runs one assertion and gives a problem when it does not hold.
func verdictOf(p prepared, i int, a policy.Assertion) *policy.Problem {
	q, want := a.Allow, true
	if q == nil {
		q, want = a.Deny, false
	}
	kind, what := probeOf(*q)
	at := fmt.Sprintf("assert[%d]", i)
	got, err := ask(p, kind, what)
	if err != nil {
		return &policy.Problem{Pos: a.Pos, Path: at, What: err.Error()}
	}
	// "deny" is about the host's files: a private directory keeps them out.
	// One that the weaker tier cannot hold is named at the start of each run.
	if got.Allowed == want || !want && (got.Private || got.Unheld) {
		return nil
	}
	words := map[bool]string{true: "allowed", false: "denied"}
	return &policy.Problem{
		Pos: a.Pos, Path: at,
		What: fmt.Sprintf("%s %q must be %s and is %s: %s", kind, what, words[want], words[got.Allowed], got.Reason),
	}
}

// checkAssertions runs the policy's own tests; all that fail are reported.
func checkAssertions(p prepared) error {
	var failed policy.Problems
	for i, a := range p.policy.Assert {
		if problem := verdictOf(p, i, a); problem != nil {
			failed = append(failed, *problem)
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

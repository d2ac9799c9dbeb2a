package netpolicy

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Texts of denials about protocols inside HTTP.

func noText() (what, hint string) { return "", "" }

func (c *Claim) unknown() Decision { return c.refuse("no rule judges this protocol") }

// refuse denies what no clause is about.
func (c *Claim) refuse(reason string) Decision {
	d := Decision{Mode: ModeInspect, Reason: reason}
	if len(c.rules) > 0 {
		d.Rule, d.Pos = c.rules[0].name, c.rules[0].pos
	}
	return d
}

func (c *rule) deniedBy(m *message, what string) Decision {
	return Decision{
		Mode: ModeInspect, Rule: c.name, Pos: posOr(m.pos, c.pos),
		Reason: fmt.Sprintf("rule %q denies %s%s", c.name, what, c.because),
	}
}

func (c *rule) notAllowed(what, hint string) Decision {
	d := Decision{
		Mode: ModeInspect, Rule: c.name, Pos: c.pos,
		Reason: fmt.Sprintf("rule %q does not allow %s%s", c.name, what, c.because),
	}
	if hint != "" {
		d.Hint = fmt.Sprintf("add under allow of rule %q: {%s}", c.name, hint)
	}
	return d
}

// explainForm is about what looks like the protocol and cannot be judged as it.
func (c *rule) explainForm(r *Request, what string) Decision {
	return Decision{
		Mode: ModeInspect, Rule: c.name, Pos: c.pos,
		Reason: fmt.Sprintf("%s %s is claimed by rule %q, and %s is not that of %s%s",
			r.Method, clip(r.Path), c.name, what, c.protocol, c.because),
	}
}

// explainProtocol is about a request that is not of the rule's protocol.
func (c *rule) explainProtocol(r *Request) Decision {
	return Decision{
		Mode: ModeInspect, Rule: c.name, Pos: c.pos,
		Reason: fmt.Sprintf("rule %q allows only %s%s, and %s %s is not that%s", c.name, c.protocol, c.placeText(), r.Method, clip(r.Path), c.because),
		Hint:   requestHint(r),
	}
}

// placeText names the paths of a rule.
func (c *rule) placeText() string {
	if len(c.pathTexts) == 0 {
		return ""
	}
	return " at " + strings.Join(c.pathTexts, ", ")
}

func (e *Engine) explainUpgrade(r *Request) Decision {
	d := Decision{Mode: ModeInspect, Pos: e.fallback, Reason: fmt.Sprintf("no rule allows an upgrade to WebSocket at %s", clip(r.Path))}
	if len(r.Path) <= maxName {
		d.Hint = fmt.Sprintf("add under network.rules: {name: NAME, host: %s%s, protocol: websocket, paths: [%q]}",
			hostText(r.Host), portsHint(r.Port), strings.ReplaceAll(r.Path, "*", "%2A"))
	}
	return d
}

func explainRivals(a, b *rule) Decision {
	return Decision{
		Mode: ModeInspect, Rule: a.name, Pos: a.pos,
		Reason: fmt.Sprintf("rule %q claims it as %s and rule %q as %s", a.name, a.protocol, b.name, b.protocol),
		Hint:   fmt.Sprintf("give rules %q and %q different paths", a.name, b.name),
	}
}

// explainHead says why no rule allows what the head asks for.
func (c *rule) explainHead(claim *Claim, r *Request) Decision {
	hint := ""
	switch claim.Protocol {
	case policy.ProtocolWebSocket:
		hint = fmt.Sprintf("paths: [%q]", strings.ReplaceAll(r.Path, "*", "%2A"))
	case policy.ProtocolGRPC:
		hint = callHint(claim.Protocol, &Call{Method: claim.method})
	case policy.ProtocolGit:
		hint = gitHint(&claim.git)
	}
	return c.notAllowed(claim.headText(r), hint)
}

// headText names what the head asks for.
func (c *Claim) headText(r *Request) string {
	switch c.Protocol {
	case policy.ProtocolWebSocket:
		return "a WebSocket at " + clip(r.Path)
	case policy.ProtocolGRPC:
		return "call " + clip(c.method)
	case policy.ProtocolGit:
		return gitText(&c.git)
	default:
		return "any message of " + string(c.Protocol)
	}
}

// callTexts also says which arguments would do, where the call alone is allowed:
// a clause without them would allow more than the rule means to.
func (c *Claim) callTexts(call *Call) (what, hint string) {
	bare := Call{Method: call.Method, Tool: call.Tool}
	for _, r := range c.allowing {
		for _, m := range r.allowMessages {
			if m.args == nil {
				continue
			}
			var wanted []string
			for _, p := range m.args {
				wanted = append(wanted, fmt.Sprintf("%s must fit %q", p.pointer, p.glob.text))
			}
			if m.args = nil; m.fitsCall(&bare) {
				return callText(call) + " (" + strings.Join(wanted, ", ") + ")", ""
			}
		}
	}
	return callText(call), callHint(c.Protocol, call)
}

func callText(call *Call) string {
	if call.Tool != "" {
		return fmt.Sprintf("this call of tool %q", clip(call.Tool))
	}
	return fmt.Sprintf("call %q", clip(call.Method))
}

// callHint repeats no argument: it may be a secret.
func callHint(p policy.Protocol, call *Call) string {
	switch name := call.Method; {
	case p == policy.ProtocolMCP && call.Tool != "" && isHintable(call.Tool):
		return fmt.Sprintf("tools: [%q]", call.Tool)
	case call.Tool == "" && isHintable(name):
		return fmt.Sprintf("calls: [%q]", name)
	}
	return ""
}

func gitText(r *GitRequest) string {
	text := fmt.Sprintf("%s of %s", r.Op, clip(r.Repo))
	if len(r.Refs) > 0 {
		text += " to " + clip(strings.Join(r.Refs, ", "))
	}
	return text
}

func gitHint(r *GitRequest) string {
	if !isHintable(r.Repo) {
		return ""
	}
	text := fmt.Sprintf("op: %s, repos: [%q]", r.Op, r.Repo)
	if len(r.Refs) == 1 && isHintable(r.Refs[0]) {
		text += fmt.Sprintf(", refs: [%q]", r.Refs[0])
	}
	return text
}

func operationText(o *Operation) string {
	text := o.Kind
	if o.Name != "" {
		text += " " + clip(o.Name)
	}
	return fmt.Sprintf("%s of %s", text, clip(strings.Join(o.Fields, ", ")))
}

func operationHint(o *Operation) string {
	var quoted []string
	for _, f := range o.Fields {
		if !isHintable(f) || len(quoted) == 8 {
			return ""
		}
		quoted = append(quoted, fmt.Sprintf("%q", f))
	}
	return fmt.Sprintf("operations: [%s], fields: [%s]", o.Kind, strings.Join(quoted, ", "))
}

func messageText(m *Message) string {
	if m.Text {
		return fmt.Sprintf("this text message of %d bytes", m.Size)
	}
	return fmt.Sprintf("this binary message of %d bytes", m.Size)
}

// isHintable tells whether a name of the other side can stand in a hint as a
// pattern that means it alone.
func isHintable(s string) bool {
	return s != "" && len(s) <= maxName && isPlain(s) && !strings.Contains(s, "*")
}

package netpolicy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Texts of denials. Only they need memory; what is allowed is explained by
// texts that Compile made.

// explainHost says why nothing matched.
func (e *Engine) explainHost(elsewhere *rule, h Host, port uint16) Decision {
	if elsewhere == nil {
		return Decision{
			Pos:    e.fallback,
			Reason: fmt.Sprintf("no rule allows host %q", h.String()),
			Hint:   fmt.Sprintf("add under network.rules: {%s}", newRuleText(h, port)),
		}
	}
	r := elsewhere
	d := Decision{
		Rule:   r.name,
		Pos:    r.pos,
		Reason: fmt.Sprintf("rule %q allows host %q only on %s, not on %d%s", r.name, h.String(), portsText(r.ports), port, r.because),
		Hint:   fmt.Sprintf("add %d to the ports of rule %q", port, r.name),
	}
	if r.protocol == protocolInference {
		d.Hint = ""
	}
	return d
}

// explainInner is about the inner name of models.
func (e *Engine) explainInner(port uint16) Decision {
	if e.inference {
		return Decision{Pos: e.fallback, Reason: fmt.Sprintf("%s is served on ports 80 and 443, not on %d", InnerInference, port)}
	}
	return Decision{
		Pos:    e.fallback,
		Reason: fmt.Sprintf("%s leads to models, and the policy has no route to one", InnerInference),
		Hint:   "add under inference.routes: {provider: PROVIDER, host: HOST, credential: NAME}",
	}
}

// explainRequest says why no rule allows a request that no protocol claims.
func (e *Engine) explainRequest(f *candidates, r *Request) Decision {
	switch {
	case f.silent != nil:
		return f.silent.explainPath(r)
	case f.http != nil:
		return f.http.explainMethod(r)
	case f.other != nil:
		return f.other.explainProtocol(r)
	}
	d := e.explainHost(f.elsewhere, r.Host, r.Port)
	d.Mode = ModeInspect
	return d
}

// newRuleText is the rule that would allow the host on the port.
func newRuleText(h Host, port uint16) string {
	text := "name: NAME, host: " + hostText(h)
	switch port {
	case 80, 443:
	case 22, 25, 465, 587, 993, 1433, 3306, 5432, 5672, 6379, 9418, 27017:
		text += fmt.Sprintf(", ports: [%d], protocol: tcp", port)
	default:
		text += fmt.Sprintf(", ports: [%d]", port)
	}
	return text
}

// hostText quotes what YAML would read as a mapping.
func hostText(h Host) string {
	if h.addr.Is6() {
		return `"` + h.String() + `"`
	}
	return h.String()
}

func portsText(ports []uint16) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprint(p)
	}
	if len(ports) == 1 {
		return "port " + texts[0]
	}
	return "ports " + strings.Join(texts, ", ")
}

func (d *denial) explain(h Host) Decision {
	return Decision{
		Rule:   d.path,
		Pos:    d.pos,
		Reason: fmt.Sprintf("host %q is denied by %s (%s)%s", h.String(), d.path, d.hosts, d.reason),
	}
}

func (c *rule) explainDenied(cl *clause, r *Request) Decision {
	return Decision{
		Mode: ModeInspect, Rule: c.name, Pos: posOr(cl.pos, c.pos),
		Reason: fmt.Sprintf("rule %q denies %s %s%s", c.name, r.Method, clip(r.Path), c.because),
	}
}

func (c *rule) explainMethod(r *Request) Decision {
	return Decision{Mode: ModeInspect, Rule: c.name, Pos: c.pos, Reason: c.only, Hint: requestHint(r)}
}

func (c *rule) explainPath(r *Request) Decision {
	d := Decision{
		Mode: ModeInspect, Rule: c.name, Pos: c.pos,
		Reason: fmt.Sprintf("rule %q does not allow %s %s%s%s", c.name, r.Method, clip(r.Path), queryText(r), c.because),
		Hint:   requestHint(r),
	}
	if r.split != "" && !c.slashes {
		d.Reason = fmt.Sprintf("the path holds an escaped slash (%%2F), which rule %q does not allow%s", c.name, c.because)
		d.Hint = fmt.Sprintf("add to rule %q: encoded_slash: true", c.name)
		return d
	}
	shorter := *r
	shorter.Length = 0
	if ok, _ := c.allows(&shorter); ok {
		d.Reason = fmt.Sprintf("rule %q does not allow a body of %d bytes%s", c.name, r.Length, c.because)
		d.Hint = fmt.Sprintf("raise max_body in rule %q", c.name)
		return d
	}
	if name := c.missingHeader(r); name != "" {
		d.Reason = fmt.Sprintf("rule %q allows it only with the header field %s%s", c.name, name, c.because)
		d.Hint = fmt.Sprintf("send the field %s", name)
	}
	return d
}

// missingHeader names a field for want of which no clause allows the request.
func (c *rule) missingHeader(r *Request) string {
	for i := range c.allow {
		whole := c.allow[i]
		whole.headers = nil
		if !whole.allows(r) {
			continue
		}
		for _, name := range c.allow[i].headers {
			if len(r.Header[name]) == 0 {
				return name
			}
		}
	}
	return ""
}

// queryText does not repeat the query: it may hold secrets.
func queryText(r *Request) string {
	if len(r.Query) == 0 {
		return ""
	}
	return " with this query"
}

// requestHint names the narrowest rule for the request's method and path.
func requestHint(r *Request) string {
	if len(r.Path) > maxName || len(r.Method) > maxLabel {
		return ""
	}
	slashes := ""
	if r.split != "" {
		slashes = ", encoded_slash: true"
	}
	return fmt.Sprintf("add under network.rules: {name: NAME, host: %s%s%s, allow: [{methods: [%q], paths: [%q]}]}",
		hostText(r.Host), portsHint(r.Port), slashes, r.Method, strings.ReplaceAll(r.Path, "*", "%2A"))
}

func portsHint(port uint16) string {
	if port == 80 || port == 443 {
		return ""
	}
	return fmt.Sprintf(", ports: [%d]", port)
}

func explainAddress(a netip.Addr, port uint16, class Class) Decision {
	d := Decision{Reason: fmt.Sprintf("address %s is %s", a, class)}
	switch class {
	case ClassInvalid, ClassMetadata:
		d.Reason += ", which is never allowed"
	default:
		d.Hint = fmt.Sprintf("add under network.private: {cidr: %q, ports: [%d], reason: WHY}", a.Unmap(), port)
	}
	return d
}

func explainMetadata(h Host) Decision {
	return Decision{Reason: fmt.Sprintf("host %q is a metadata service, which is never allowed", h.String())}
}

func explainLoopback(h Host, port uint16) Decision {
	return Decision{
		Reason: fmt.Sprintf("host %q names this machine itself", h.String()),
		Hint:   fmt.Sprintf("add under network.private: {cidr: 127.0.0.1, ports: [%d], reason: WHY}", port),
	}
}

func posOr(p, other policy.Pos) policy.Pos {
	if p == (policy.Pos{}) {
		return other
	}
	return p
}

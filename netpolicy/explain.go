package netpolicy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Texts of denials. Only they need memory; what is allowed is explained by
// texts that Compile made.

// explain says why nothing matched.
func (m *match) explain(h Host, port uint16) Decision {
	if m.elsewhere == nil {
		return Decision{
			Reason: fmt.Sprintf("no rule allows host %q", h.String()),
			Hint:   fmt.Sprintf("add under network.rules: {%s}", newRuleText(h, port)),
		}
	}
	r := m.elsewhere
	return Decision{
		Rule:   r.name,
		Pos:    r.pos,
		Reason: fmt.Sprintf("rule %q allows host %q only on %s, not on %d%s", r.name, h.String(), portsText(r.ports), port, r.because),
		Hint:   fmt.Sprintf("add %d to the ports of rule %q", port, r.name),
	}
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
	return Decision{
		Mode: ModeInspect, Rule: c.name, Pos: c.pos,
		Reason: fmt.Sprintf("rule %q does not allow %s %s%s%s", c.name, r.Method, clip(r.Path), queryText(r), c.because),
		Hint:   requestHint(r),
	}
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
	ports := ""
	if r.Port != 80 && r.Port != 443 {
		ports = fmt.Sprintf(", ports: [%d]", r.Port)
	}
	return fmt.Sprintf("add under network.rules: {name: NAME, host: %s%s, allow: [{methods: [%q], paths: [%q]}]}",
		hostText(r.Host), ports, r.Method, strings.ReplaceAll(r.Path, "*", "%2A"))
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

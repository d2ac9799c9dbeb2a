package netpolicy

import (
	"net/netip"
	"slices"
)

// maxLists is how many lists of rules a host can match before looking them up
// needs memory: the exact one, any, "*." and "**." at nine depths.
const maxLists = 12

// Connection judges a new connection to host:port before any byte is read. A
// denial on a port where HTTP is spoken has ModeInspect, so that the proxy can
// answer it in HTTP; on every other port ModeRefuse.
//
// Allow means that the connection may be accepted and read in the given mode.
// Requests on it, and the address it leads to, are judged on their own.
func (e *Engine) Connection(h Host, port uint16) Decision {
	if d, barred := e.bar(h, port); barred {
		d.Mode = e.refusal(port)
		return d
	}
	var found match
	var buf [maxLists][]*rule
	for _, list := range e.rules.lists(h, buf[:0]) {
		for _, r := range list {
			found.add(r, port)
		}
	}
	if found.rule == nil {
		d := e.explainHost(found.elsewhere, h, port)
		d.Mode = e.refusal(port)
		return d
	}
	return granted(found.rule, found.mode(port))
}

// refusal is the mode of a denied connection.
func (e *Engine) refusal(port uint16) Mode {
	if port == 80 || port == 443 || slices.Contains(e.httpPorts, port) {
		return ModeInspect
	}
	return ModeRefuse
}

// match collects the rules for one host and port.
type match struct {
	rule      *rule // the first that matches host and port
	elsewhere *rule // the first that matches the host on other ports
	tcp       bool
	pass      bool
	inspected bool
}

func (m *match) add(r *rule, port uint16) {
	if !r.hasPort(port) {
		m.elsewhere = first(m.elsewhere, r)
		return
	}
	m.rule = first(m.rule, r)
	m.tcp = m.tcp || r.tcp
	m.pass = m.pass || r.pass
	m.inspected = m.inspected || r.inspected
}

// mode never meets inspected together with tcp or pass: Compile refuses that.
// On port 80 a plain rule means HTTP without TLS, which is always read.
func (m *match) mode(port uint16) Mode {
	switch {
	case m.inspected:
		return ModeInspect
	case m.tcp:
		return ModeTCP
	case port == 80 && !m.pass:
		return ModeInspect
	default:
		return ModePass
	}
}

// first gives the rule that comes first in the policy.
func first(a, b *rule) *rule {
	if a == nil || b.index < a.index {
		return b
	}
	return a
}

// Request judges one HTTP request. It allows when the host is allowed on that
// port by a rule that also allows the method, path, query, header and declared
// length, and no rule for that host and port denies them.
//
// What a rule claims as its protocol is allowed by rules of that protocol
// alone. The decision then has a Claim, which judges the messages. What two
// protocols claim, and an upgrade that nothing claims, is denied. A path with
// an escaped slash is allowed only by rules with encoded_slash; denials see it
// as one segment and as two.
func (e *Engine) Request(r Request) Decision {
	if d, barred := e.bar(r.Host, r.Port); barred {
		d.Mode = ModeInspect
		return d
	}
	if d, barred := barRequest(&r); barred {
		return d
	}
	var found candidates
	var buf [maxLists][]*rule
	for _, list := range e.rules.lists(r.Host, buf[:0]) {
		for _, c := range list {
			switch {
			case c.tcp:
				continue
			case !c.hasPort(r.Port):
				found.elsewhere = first(found.elsewhere, c)
				continue
			case c.protocol != "":
				found.addProtocol(c, &r)
				continue
			}
			if cl := c.denies(&r); cl != nil {
				return c.explainDenied(cl, &r)
			}
			found.add(c, &r)
		}
	}
	switch {
	case found.claimed != nil:
		return e.judgeClaim(&r, &found)
	case r.WebSocket:
		return e.explainUpgrade(&r)
	case found.mixed:
		return e.settle(&r)
	case found.allowing != nil:
		d := granted(found.allowing, ModeInspect)
		d.Credential, d.MaxBody = found.allowing.credential, found.maxBody
		return d
	}
	return e.explainRequest(&found, &r)
}

// candidates are the rules that have something to say about a request.
type candidates struct {
	allowing  *rule // the first http rule that allows it
	silent    *rule // the first http rule that allows the method at least
	http      *rule // the first http rule for host and port
	other     *rule // the first rule of another protocol for host and port
	claimed   *rule // the first rule that claims it
	rival     *rule // one of another protocol that claims it too
	elsewhere *rule // the first rule for the host on other ports
	mixed     bool  // what allows it has not one credential
	maxBody   int64 // the largest that is allowed; 0: any
}

// add judges by an http rule that does not deny the request.
func (f *candidates) add(c *rule, r *Request) {
	f.http = first(f.http, c)
	ok, maxBody := c.allows(r)
	if !ok {
		if c.methods.has(r.Method) {
			f.silent = first(f.silent, c)
		}
		return
	}
	if f.allowing == nil {
		f.allowing, f.maxBody = c, maxBody
		return
	}
	f.mixed = f.mixed || f.allowing.credential != c.credential
	f.allowing = first(f.allowing, c)
	f.maxBody = larger(f.maxBody, maxBody)
}

// larger gives the larger of two limits, of which 0 is none.
func larger(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// addProtocol lets a rule claim the request.
func (f *candidates) addProtocol(c *rule, r *Request) {
	f.other = first(f.other, c)
	if !c.claims(r) {
		return
	}
	if f.claimed != nil && f.claimed.protocol != c.protocol {
		f.rival = c
	}
	f.claimed = first(f.claimed, c)
}

// Address judges an address that is about to be dialled, after the name that
// led to it was allowed. The very address that was judged must be dialled.
func (e *Engine) Address(a netip.Addr, port uint16) Decision {
	if !e.compiled || port == 0 {
		return Decision{Reason: "no policy was compiled, or the port is 0"}
	}
	class := Classify(a)
	if class == ClassInvalid || class == ClassMetadata {
		return explainAddress(a, port, class)
	}
	for _, d := range e.denied.exact[Host{addr: embedded(a)}] {
		if hasPort(d.ports, port) {
			return d.explain(Host{addr: embedded(a)})
		}
	}
	if class == ClassGlobal {
		return Decision{Verdict: Allow, Mode: ModeTCP, Reason: "address is global"}
	}
	for i := range e.private {
		if p := &e.private[i]; p.covers(a.Unmap(), port) {
			return Decision{Verdict: Allow, Mode: ModeTCP, Rule: p.path, Pos: p.pos, Reason: "network.private opens the address"}
		}
	}
	return explainAddress(a, port, class)
}

// bar denies what no rule can allow.
func (e *Engine) bar(h Host, port uint16) (Decision, bool) {
	if !e.compiled || h.IsZero() || port == 0 {
		return Decision{Reason: "no policy was compiled, or host or port is missing"}, true
	}
	var buf [maxLists][]*denial
	for _, list := range e.denied.lists(h, buf[:0]) {
		for _, d := range list {
			if hasPort(d.ports, port) {
				return d.explain(h), true
			}
		}
	}
	switch {
	case h.name == InnerInference && (!e.inference || port != 80 && port != 443):
		return e.explainInner(port), true
	case h.IsAddr():
		d := e.Address(h.addr, port)
		return d, d.Verdict != Allow
	case isMetadataName(h.name):
		return explainMetadata(h), true
	case isLoopbackName(h.name) && !e.opensLoopback(port):
		return explainLoopback(h, port), true
	}
	return Decision{}, false
}

// barRequest denies requests that no rule can allow.
func barRequest(r *Request) (Decision, bool) {
	switch {
	case !isToken(r.Method):
		return Decision{Mode: ModeInspect, Reason: "the method is not a token"}, true
	case never(r.Method):
		return Decision{Mode: ModeInspect, Reason: "method " + r.Method + " is always denied"}, true
	case !isCanonical(r.Path):
		return Decision{Mode: ModeInspect, Reason: "the path is not in canonical form"}, true
	}
	r.split = splitSlashes(r.Path)
	return Decision{}, false
}

func granted(r *rule, m Mode) Decision {
	return Decision{Verdict: Allow, Mode: m, Rule: r.name, Pos: r.pos, Reason: r.granted}
}

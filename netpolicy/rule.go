package netpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// rule is one compiled policy.Rule.
type rule struct {
	index     int // in file order
	name      string
	pos       policy.Pos
	hosts     []hostGlob
	ports     []uint16
	path      string // "network.rules[0]"
	tcp       bool   // bytes, not HTTP
	pass      bool   // tls: pass was spelt out
	inspected bool

	access   methodSet // what the shorthand leaves
	allowSet bool
	allow    []clause
	deny     []clause

	slashes    bool   // encoded_slash
	credential string // "" for none

	// A rule with a protocol judges what it claims and nothing else.
	protocol      policy.Protocol // "" for http and tcp
	paths         []pathGlob      // where it is spoken; none: everywhere
	pathTexts     []string
	loosePaths    []pathGlob // without regard to letter case
	allowMessages []message
	denyMessages  []message
	maxResponse   int64
	route         int    // of protocolInference; -1 at the inner name
	base          string // of a route, without the last slash

	granted string // the reason of an allowing decision
	because string // ": reason" of a denying one, or ""
	only    string // what the reason of a denied method says
	methods methodSet
}

// newRule compiles a rule. Every mistake goes to report, with the field.
func newRule(index int, r policy.Rule, report func(field string, err error)) *rule {
	c := &rule{
		index: index, name: r.Name, pos: r.Pos, path: fmt.Sprintf("network.rules[%d]", index),
		tcp:      r.Protocol == policy.ProtocolTCP,
		pass:     r.TLS == policy.TLSPass,
		allowSet: r.AllowSet || r.Allow != nil,
		because:  suffix(r.Reason),
		slashes:  r.EncodedSlash, credential: r.Credential, maxResponse: int64(r.MaxResponse),
	}
	if r.Protocol.InHTTP() {
		c.protocol = r.Protocol
	}
	c.inspected = r.TLS == policy.TLSInspect || r.Access != "" || c.allowSet || len(r.Deny) > 0 ||
		r.EncodedSlash || r.Credential != "" || c.protocol != ""
	if r.Name == "" {
		report("name", errors.New("missing"))
	}
	var err error
	if c.hosts, err = ruleHosts(r); err != nil {
		report("host", err)
	}
	if c.ports, err = rulePorts(r); err != nil {
		report("ports", err)
	}
	if err = c.checkProtocol(r); err != nil {
		report("tls", err)
	}
	if c.access, err = accessMethods(r.Access); err != nil {
		report("access", err)
	}
	if c.protocol != "" {
		c.parseProtocol(r, report)
	} else {
		c.parseClauses(r, report)
	}
	c.explain()
	return c
}

// parseProtocol compiles what the rule says about messages.
func (c *rule) parseProtocol(r policy.Rule, report func(string, error)) {
	paths := r.Paths
	if paths == nil && r.Protocol == policy.ProtocolGraphQL {
		paths = []string{"/graphql"}
	}
	for _, text := range paths {
		g, err := parsePathGlob(text)
		if err != nil {
			report("paths", fmt.Errorf("path %q: %w", text, err))
			continue
		}
		c.paths, c.pathTexts = append(c.paths, g), append(c.pathTexts, text)
		c.loosePaths = append(c.loosePaths, g.loose().folded())
	}
	for _, list := range []struct {
		name string
		from []policy.Match
		to   *[]message
	}{{"allow", r.Allow, &c.allowMessages}, {"deny", r.Deny, &c.denyMessages}} {
		for i, m := range list.from {
			parsed, err := parseMessage(r.Protocol, m, list.name == "deny")
			if err != nil {
				report(fmt.Sprintf("%s[%d]", list.name, i), err)
				continue
			}
			*list.to = append(*list.to, parsed)
		}
	}
}

func (c *rule) parseClauses(r policy.Rule, report func(string, error)) {
	for i, m := range r.Allow {
		field := fmt.Sprintf("allow[%d]", i)
		cl, err := parseClause(m, c.access, c.slashes, false)
		if err != nil {
			report(field, err)
			continue
		}
		if err := c.checkAllowed(cl.methods, r.Access); err != nil {
			report(field, err)
		}
		c.allow = append(c.allow, cl)
		c.methods = c.methods.union(cl.methods)
	}
	if !c.allowSet {
		c.methods = c.access
	}
	for i, m := range r.Deny {
		cl, err := parseClause(m, everyDeny, c.slashes, true)
		if err != nil {
			report(fmt.Sprintf("deny[%d]", i), err)
			continue
		}
		c.deny = append(c.deny, cl)
	}
}

// checkAllowed refuses an allow clause that could never allow what it names.
func (c *rule) checkAllowed(methods methodSet, access string) error {
	for _, m := range methods.list() {
		if never(m) {
			return fmt.Errorf("method %s is always denied", m)
		}
	}
	if access == "" || access == "full" {
		return nil
	}
	if rest := methods.without(c.access); len(rest) > 0 {
		return fmt.Errorf("access %s leaves out %s", access, strings.Join(rest, ", "))
	}
	return nil
}

func (c *rule) checkProtocol(r policy.Rule) error {
	if !slices.Contains(protocols, r.Protocol) {
		return fmt.Errorf("unknown protocol %q", r.Protocol)
	}
	switch r.TLS {
	case policy.TLSAuto, policy.TLSPass, policy.TLSInspect:
	default:
		return fmt.Errorf("unknown mode %q", r.TLS)
	}
	switch {
	case c.tcp && (c.inspected || c.pass):
		return errors.New("a tcp rule has no tls, access, allow or deny, no credential and no encoded_slash")
	case c.pass && c.inspected:
		return errors.New("pass excludes access, allow and deny, credential, encoded_slash and protocols, which need inspection")
	case c.protocol != "" && (r.Access != "" || r.EncodedSlash):
		return fmt.Errorf("access and encoded_slash have no meaning in a rule with protocol %s", c.protocol)
	case r.Paths != nil && !slices.Contains(atPaths, c.protocol):
		return errors.New("paths belong to rules with protocol websocket, mcp, jsonrpc or graphql; otherwise they stand under allow and deny")
	case r.Paths != nil && len(r.Paths) == 0:
		return errors.New("paths is an empty list, which matches nothing")
	case r.MaxResponse != 0 && c.protocol != policy.ProtocolMCP:
		return errors.New("max_response has no meaning but in a rule with protocol mcp")
	case r.MaxResponse < 0:
		return errors.New("max_response is below 0")
	}
	return nil
}

// protocols are the ones that a rule can have.
var protocols = []policy.Protocol{
	"", policy.ProtocolHTTP, policy.ProtocolTCP, policy.ProtocolWebSocket, policy.ProtocolGRPC,
	policy.ProtocolGit, policy.ProtocolMCP, policy.ProtocolJSONRPC, policy.ProtocolGraphQL,
}

// atPaths are the protocols that are spoken at paths which the rule names.
var atPaths = []policy.Protocol{policy.ProtocolWebSocket, policy.ProtocolMCP, policy.ProtocolJSONRPC, policy.ProtocolGraphQL}

// explain prepares the texts, so that deciding has none to make.
func (c *rule) explain() {
	c.granted = fmt.Sprintf("rule %q allows it%s", c.name, c.because)
	c.only = fmt.Sprintf("rule %q allows only %s%s", c.name, c.methods, c.because)
	if c.methods.isEmpty() {
		c.only = fmt.Sprintf("rule %q allows no request%s", c.name, c.because)
	}
}

func accessMethods(access string) (methodSet, error) {
	switch access {
	case "", "full":
		return full, nil
	case "read-only":
		return readOnly, nil
	case "read-write":
		return readWrite, nil
	default:
		return methodSet{}, fmt.Errorf("unknown access %q", access)
	}
}

func ruleHosts(r policy.Rule) ([]hostGlob, error) {
	var texts []string
	if r.Host != "" {
		texts = append(texts, r.Host)
	}
	for _, n := range r.Hosts {
		texts = append(texts, n.Text)
	}
	switch {
	case r.Any && len(texts) > 0:
		return nil, errors.New("any excludes host and hosts")
	case r.Any:
		return []hostGlob{{kind: globAny}}, nil
	case r.Host != "" && len(r.Hosts) > 0:
		return nil, errors.New("host and hosts exclude each other")
	case len(texts) == 0:
		return nil, errors.New("missing")
	}
	globs := make([]hostGlob, 0, len(texts))
	for _, text := range texts {
		g, err := parseHostGlob(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(globs, g) {
			globs = append(globs, g)
		}
	}
	return globs, nil
}

func rulePorts(r policy.Rule) ([]uint16, error) {
	if r.Ports != nil && len(r.Ports) == 0 {
		return nil, errors.New("empty list, which matches nothing")
	}
	if len(r.Ports) > 0 {
		return parsePorts(r.Ports)
	}
	if r.Protocol == policy.ProtocolTCP {
		return nil, errors.New("a tcp rule must list its ports")
	}
	return []uint16{80, 443}, nil
}

func parsePorts(list []int) ([]uint16, error) {
	ports := make([]uint16, 0, len(list))
	for _, p := range list {
		if p < 1 || p > 65535 {
			return nil, fmt.Errorf("port %d is not between 1 and 65535", p)
		}
		ports = append(ports, uint16(p))
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// suffix turns the reason that the operator wrote into the end of a sentence.
func suffix(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// overlap gives a host pattern of r and one of o that some host matches on a
// common port.
func (c *rule) overlap(o *rule) (mine, theirs hostGlob, ok bool) {
	if !shareOne(c.ports, o.ports) {
		return hostGlob{}, hostGlob{}, false
	}
	for _, g := range c.hosts {
		for _, h := range o.hosts {
			if g.overlaps(h) {
				return g, h, true
			}
		}
	}
	return hostGlob{}, hostGlob{}, false
}

// shareOne tells whether two sorted lists have a port in common.
func shareOne(a, b []uint16) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			return true
		case a[0] < b[0]:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

func (c *rule) hasPort(port uint16) bool {
	for _, p := range c.ports {
		if p == port {
			return true
		}
	}
	return false
}

// allows tells whether the rule by itself allows the request, and what body a
// request of unknown length may then have at most (0: any).
func (c *rule) allows(r *Request) (ok bool, maxBody int64) {
	if r.split != "" && !c.slashes {
		return false, 0
	}
	if !c.allowSet {
		return c.access.has(r.Method), 0
	}
	for i := range c.allow {
		if !c.allow[i].allows(r) {
			continue
		}
		if c.allow[i].maxBody == 0 {
			return true, 0
		}
		ok, maxBody = true, max(maxBody, c.allow[i].maxBody)
	}
	return ok, maxBody
}

// denies gives the clause that denies the request, or nil.
func (c *rule) denies(r *Request) *clause {
	for i := range c.deny {
		if c.deny[i].denies(r) {
			return &c.deny[i]
		}
	}
	return nil
}

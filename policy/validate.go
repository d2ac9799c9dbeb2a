package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// validate checks what one value alone cannot tell: fields of one entry that
// exclude or need each other.
func (l *layer) validate() {
	for i, r := range l.pol.Network.Rules {
		l.validateRule(fmt.Sprintf("network.rules[%d]", i), r)
	}
	seen := map[string]Pos{}
	for i, r := range l.pol.Network.Rules {
		path := fmt.Sprintf("network.rules[%d].name", i)
		if first, dup := seen[r.Name]; dup && r.Name != "" {
			l.add(l.at(path), path, fmt.Sprintf("the name %q is taken by the rule on line %d", r.Name, first.Line), "give each rule its own name")
		}
		seen[r.Name] = l.at(path)
		l.pol.Network.Rules[i].AllowSet = l.has(fmt.Sprintf("network.rules[%d].allow", i))
	}
	for name, addrs := range l.pol.Network.Hosts {
		if path := "network.hosts." + name; len(addrs) == 0 && l.has(path) {
			l.add(l.at(path), path, "has no address", "list one address or several")
		}
	}
	for i, a := range l.pol.Assert {
		l.validateAssertion(fmt.Sprintf("assert[%d]", i), a)
	}
	l.validatePrivate()
	l.validateCredentials()
	l.validateInference()
	l.validatePublish()
}

func (l *layer) validateRule(path string, r Rule) {
	l.validateHosts(path, r)
	l.validateReading(path, r)
	l.validateMeaning(path, r)
	for i, m := range append(append([]Match{}, r.Allow...), r.Deny...) {
		key, j := ".allow", i
		if i >= len(r.Allow) {
			key, j = ".deny", i-len(r.Allow)
		}
		l.validateMatch(fmt.Sprintf("%s%s[%d]", path, key, j), r.Protocol, m)
	}
}

// inspected tells whether the rule needs what it carries to be read.
func (r Rule) inspected() bool {
	return r.Access != "" || r.AllowSet || len(r.Allow) > 0 || len(r.Deny) > 0 || r.Credential != "" || r.Protocol.InHTTP() || r.EncodedSlash || r.TLS == TLSInspect
}

// validateReading refuses what asks for reading and for not reading at once.
func (l *layer) validateReading(path string, r Rule) {
	read := r.inspected() && r.TLS != TLSInspect || l.has(path+".allow")
	switch {
	case r.Protocol == ProtocolTCP && len(r.Ports) == 0 && !l.has(path+".ports"):
		l.add(l.at(path), path+".ports", "missing", "a tcp rule lists its ports: ports: [22]")
	case r.Credential != "" && r.Protocol == ProtocolTCP:
		l.add(l.at(path+".credential"), path+".credential", "a tcp rule carries bytes unread, so that nothing can be attached", "use protocol: http, or remove it")
	case r.Credential != "" && r.TLS == TLSPass:
		l.add(l.at(path+".credential"), path+".credential", "with tls: pass nothing can be attached", "remove tls: the rule is then inspected")
	case r.Protocol == ProtocolTCP && read:
		l.add(l.at(path), path, "a tcp rule cannot have methods, paths or access", "remove them, or use protocol: http")
	case r.Protocol == ProtocolTCP && r.TLS != TLSAuto:
		l.add(l.at(path+".tls"), path+".tls", "has no meaning in a tcp rule", "remove it")
	case r.TLS == TLSPass && r.Protocol.InHTTP():
		l.add(l.at(path+".tls"), path+".tls", fmt.Sprintf("pass hides what protocol %s is judged by", r.Protocol), "remove tls: the rule is then inspected")
	case r.TLS == TLSPass && read:
		l.add(l.at(path+".tls"), path+".tls", "pass hides methods and paths, but the rule has some",
			"remove tls: the rule is then inspected")
	}
	if r.Credential != "" && r.Any {
		l.add(l.at(path+".any"), path+".any", "a rule for every host cannot have a credential", "list the hosts that the credential is for")
	}
}

// validateMeaning refuses fields that have no meaning in the rule's protocol.
func (l *layer) validateMeaning(path string, r Rule) {
	for key, in := range map[string][]Protocol{
		".access":        {ProtocolHTTP, ProtocolTCP}, // tcp: reported above
		".encoded_slash": {ProtocolHTTP, ProtocolTCP},
		".paths":         {ProtocolWebSocket, ProtocolMCP, ProtocolJSONRPC, ProtocolGraphQL},
		".max_response":  {ProtocolMCP},
	} {
		p := cmp.Or(r.Protocol, ProtocolHTTP)
		if !l.has(path+key) || slices.Contains(in, p) {
			continue
		}
		hint := `remove it; "allow" and "deny" say what is judged`
		if key == ".paths" && p == ProtocolHTTP {
			hint = `write "allow: [{paths: […]}]"`
		}
		l.add(l.at(path+key), path+key, fmt.Sprintf("has no meaning in a rule with protocol %s", p), hint)
	}
}

func (l *layer) validateHosts(path string, r Rule) {
	n := 0
	for _, key := range []string{".host", ".hosts", ".any"} {
		// A host that was refused for its spelling is there all the same.
		if l.has(path+key) || l.refused(path+key) {
			n++
		}
	}
	switch {
	case n == 0:
		l.add(l.at(path), path, "has no host", `write "host", "hosts" or "any: true"`)
	case n > 1:
		l.add(l.at(path), path, `"host", "hosts" and "any" exclude each other`, "keep one of them")
	case l.has(path+".any") && !r.Any:
		l.add(l.at(path+".any"), path+".any", "false has no meaning here", "remove it and write a host")
	}
}

// refused tells whether a value is there but was reported.
func (l *layer) refused(path string) bool { return l.bad[path] }

// validateMatch refuses an empty clause, which would match everything, and
// fields that have no meaning in the rule's protocol.
func (l *layer) validateMatch(path string, p Protocol, m Match) {
	keys := 0
	for _, f := range fieldsOf(reflect.TypeFor[Match]()) {
		key := path + "." + f.key
		if !l.has(key) {
			continue
		}
		keys++
		if want := matchFields(p); !slices.Contains(want, f.key) {
			l.add(l.at(key), key, fmt.Sprintf("has no meaning in a rule with protocol %s", cmp.Or(p, ProtocolHTTP)), "there it can be "+strings.Join(want, ", "))
		}
	}
	switch {
	case keys == 0 && !l.refusedBelow(path):
		l.add(l.at(path), path, "is empty", "write "+strings.Join(matchFields(p), ", "))
	case p == ProtocolGit && m.Op == "fetch" && l.has(path+".refs"):
		l.add(l.at(path+".refs"), path+".refs", "has no meaning with op: fetch", "refs are about pushes: remove it, or write op: push")
	case p == ProtocolMCP && l.has(path+".tools") && l.has(path+".calls") && !slices.ContainsFunc(m.Calls, func(c string) bool { return coversPattern(c, "tools/call") }):
		l.add(l.at(path+".calls"), path+".calls", "leaves out tools/call, which tools are called by", `remove it: "tools" means calls: [tools/call]`)
	}
}

// matchFields lists the keys of a clause that have a meaning in a protocol.
func matchFields(p Protocol) []string {
	switch p {
	case ProtocolWebSocket:
		return []string{"paths", "max_message", "json"}
	case ProtocolGRPC:
		return []string{"calls"}
	case ProtocolGit:
		return []string{"op", "repos", "refs"}
	case ProtocolMCP:
		return []string{"calls", "tools", "args"}
	case ProtocolJSONRPC:
		return []string{"calls", "args"}
	case ProtocolGraphQL:
		return []string{"operations", "names", "fields"}
	default:
		return []string{"methods", "paths", "query", "headers", "max_body"}
	}
}

// refusedBelow tells whether something at or below a path was reported.
func (l *layer) refusedBelow(path string) bool { return l.around[path] }

func (l *layer) validateAssertion(path string, a Assertion) {
	const hint = "write {allow: {read: PATH}} or {deny: {read: PATH}}"
	switch {
	case a.Allow != nil && a.Deny != nil:
		l.add(l.at(path), path, `has both "allow" and "deny"`, "make two assertions of it")
	case a.Allow == nil && a.Deny == nil && !l.refusedBelow(path):
		l.add(l.at(path), path, `has neither "allow" nor "deny"`, hint)
	}
	for key, p := range map[string]*Probe{".allow": a.Allow, ".deny": a.Deny} {
		if p == nil || l.refusedBelow(path) {
			continue
		}
		n := 0
		for _, f := range fieldsOf(reflect.TypeFor[Probe]()) {
			if l.has(path + key + "." + f.key) {
				n++
			}
		}
		if n != 1 {
			l.add(l.at(path+key), path+key, fmt.Sprintf("asks %d questions, not one", n), hint)
		}
	}
}

// validatePrivate refuses to open what is never dialled: no profile of a
// metadata service or of the unspecified address is safe.
func (l *layer) validatePrivate() {
	for i, r := range l.pol.Network.Private {
		path := fmt.Sprintf("network.private[%d].cidr", i)
		p, err := parseRange(r.CIDR)
		if err != nil {
			continue // reported by its form
		}
		for _, meta := range metadataAddrs() {
			if p.IsSingleIP() && p.Contains(meta) {
				l.add(l.at(path), path, "a metadata address cannot be opened", "remove it")
			}
		}
		if p.Bits() == 0 {
			l.add(l.at(path), path, "opens every address", "name the ranges that are needed")
		}
	}
}

func metadataAddrs() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("169.254.169.254"),
		netip.MustParseAddr("fd00:ec2::254"),
		netip.MustParseAddr("100.100.100.200"),
	}
}

// parseRange reads a range or one address.
func parseRange(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

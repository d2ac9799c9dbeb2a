package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// validatePublish checks each entry by itself.
func (l *layer) validatePublish() {
	for i, e := range l.pol.Network.Publish {
		path := fmt.Sprintf("network.publish[%d]", i)
		if e.Bearer != nil {
			l.validateSource(path+".bearer", *e.Bearer)
		}
		cert, key := l.has(path+".tls.cert") || l.refused(path+".tls.cert"), l.has(path+".tls.key") || l.refused(path+".tls.key")
		if (cert || key || l.has(path+".tls")) && !(cert && key) {
			l.add(l.at(path+".tls"), path+".tls", "TLS needs a certificate and its key", "write both: {cert: PATH, key: PATH}")
		}
		if e.Unix() && l.has(path+".from") {
			l.add(l.at(path+".from"), path+".from", "has no meaning for a Unix socket: whoever connects has no address", "remove it: the socket is for its owner alone")
		}
	}
}

// guardedPort is a port inside on which a service of Hermes listens that trusts
// whoever reaches it, or may: it knows nothing of being published.
type guardedPort struct {
	service string
	key     string // the variable with the key that the service asks for; "": there are several
	why     string
}

// guardedPorts lists them. Beyond loopback they need a key.
func guardedPorts() map[string]guardedPort {
	return map[string]guardedPort{
		"8642": {"Hermes' API server", "API_SERVER_KEY", "whoever reaches it has the agent run commands"},
		"8644": {"Hermes' webhooks", "", "a message that nobody signed starts the agent"},
		"9119": {"Hermes' dashboard", "", "it asks for no login while it listens on its own loopback, which is where a published port leads"},
	}
}

// published checks what the whole policy says about inbound connections.
func (j *judging) published() {
	const path = "network.publish"
	all := j.policy.Network.Publish
	for i, e := range all {
		if e.Exposed() && !e.Expose {
			j.refuse(e.Pos, path, fmt.Sprintf("%q is not a loopback address: the whole network could connect", e.Listen),
				"write an entry with expose: true and bearer, require_key or from; or listen on 127.0.0.1")
		}
		j.guarded(e)
		if e.Exposed() && e.Bearer != nil && e.TLS.Key.Abs == "" {
			j.warn(e.Pos, path, fmt.Sprintf("the token of %q crosses the network in the clear", e.Label()), "add tls: {cert: PATH, key: PATH}")
		}
		for _, other := range all[:i] {
			if e.clashes(other) {
				j.refuse(e.Pos, path, fmt.Sprintf("%q is listened on by the entry at %s already", e.Listen, other.Pos), "remove one of them, or choose another port")
			} else if e.Label() == other.Label() {
				j.refuse(e.Pos, path, fmt.Sprintf("the name %q is taken by the entry at %s", e.Label(), other.Pos), "give each entry its own name")
			}
		}
	}
}

// guarded refuses to expose a service that would trust the network.
func (j *judging) guarded(e Publish) {
	g, ok := guardedPorts()[e.To]
	if !ok || !e.Exposed() || e.Bearer != nil || e.RequireKey != "" && (g.key == "" || e.RequireKey == g.key) {
		return
	}
	hint := "write bearer: {file: PATH}, or require_key: NAME with the variable whose secret the service asks for"
	if g.key != "" {
		hint = "write require_key: " + g.key
	}
	j.refuse(e.Pos, "network.publish", fmt.Sprintf("%q exposes port %s, %s, without a key: %s", e.Listen, e.To, g.service, g.why), hint)
}

// clashes tells whether two entries cannot both listen. An unspecified address
// takes every other one of its family, and "[::]" those of IPv4 too.
func (e Publish) clashes(o Publish) bool {
	if e.Unix() || o.Unix() {
		return e.Listen == o.Listen
	}
	a, b := e.Address(), o.Address()
	takes := func(x, y netip.Addr) bool { return x.IsUnspecified() && (x.Is6() || y.Is4()) }
	return a.Port() == b.Port() && (a.Addr() == b.Addr() || takes(a.Addr(), b.Addr()) || takes(b.Addr(), a.Addr()))
}

// MinKey is the length that a key must have. Eight characters, which older
// versions of Hermes took, can be guessed by whoever may try without end; since
// June 2026 Hermes itself refuses fewer than sixteen.
const MinKey = 16

// CheckKey says what keeps a value from being a real key, or "".
func CheckKey(value string) string {
	distinct := map[rune]bool{}
	for _, c := range value {
		distinct[c] = true
	}
	switch {
	case value == "":
		return "is not set"
	case len(value) < MinKey:
		return fmt.Sprintf("has %d characters, fewer than %d: shorter ones can be guessed, and Hermes refuses them as well", len(value), MinKey)
	case strings.TrimSpace(value) != value:
		return "begins or ends with a space"
	case strings.ContainsAny(value[:1], "$<{["):
		return "is a place holder that nobody filled in"
	case len(distinct) < 6:
		return fmt.Sprintf("is made of %d different characters", len(distinct))
	case isWords(value):
		return "is a place holder, and not a key that was made at random"
	}
	return ""
}

// isWords tells whether little is left of a value without the words that people
// write where a key is to come. Of a key made at random nearly all is left.
func isWords(value string) bool {
	rest := strings.ToLower(value)
	for _, word := range strings.Fields(`placeholder characters password changeit required generate 1234567890 0123456789 12345678 abcdefghij abcdefgh
		replace example changed default insert secret server openai hermes please qwerty random string change
		sample dummy token admin value least token your here must this with that real some long goes test todo fixme none null key api the set put not put me my at xx`) {
		rest = strings.ReplaceAll(rest, word, "")
	}
	letters := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, rest)
	return len(letters) < MinKey/2
}

package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// notHeld begins the mechanism of a rule that nothing holds.
const notHeld = "NOT HELD"

// namedRules bounds how many rules the first line names; explain has them all.
const namedRules = 3

// Summary is one line that names what the weaker tier does not hold: the first
// line on stderr, and the reason in the audit header.
func (p Plan) Summary() string {
	w := p.Weak
	if w == nil {
		return ""
	}
	return fmt.Sprintf("weaker tier, which the policy allows: no namespaces (needs %s; found %s). Files: %s. Processes: %s. Network: %s%s.",
		w.Needs, w.Found, p.weakFiles(), p.weakProcesses(), p.weakNetworkWords(), p.weakSocketWords())
}

func (p Plan) weakFiles() string {
	s := "names, sizes and modes of all of the host's files show, and modes and times of your own can be changed; private directories have no size limit"
	return s + p.unheld("protect", "%d protected entries are NOT protected") + p.unheld("hide", "%d hidden names do not exist and are NOT hidden if they come")
}

// unheld names rules of one kind that nothing holds.
func (p Plan) unheld(what, format string) string {
	var some []string
	n := 0
	for _, note := range p.Weak.NotHeld {
		if note.What != what {
			continue
		}
		if n++; n <= namedRules {
			some = append(some, note.Rule+" "+note.Path)
		}
	}
	if n == 0 {
		return ""
	}
	more := ""
	if n > len(some) {
		more = fmt.Sprintf(" and %d more", n-len(some))
	}
	return fmt.Sprintf("; "+format+" (%s%s)", n, strings.Join(some, ", "), more)
}

func (p Plan) weakProcesses() string {
	if p.Abi < weakSignal {
		return "those of the host show, and your own can be signalled, hermes-wrap too"
	}
	return "those of the host show, and the priorities of your own can be changed; they cannot be signalled or traced"
}

func (p Plan) weakNetworkWords() string {
	if !p.Weak.Network {
		return "none at all"
	}
	if p.Weak.Mediated {
		return "no UDP; TCP only to the proxy, whose variables clients must follow"
	}
	return "no UDP; TCP only to the number of the proxy's port, at whatever address, so a server outside that listens on it is reached unjudged"
}

// NetworkNote says what keeps everything else out in the weaker tier, and how
// far; "" in the full one.
func (p Plan) NetworkNote() string {
	switch {
	case p.Weak == nil:
		return ""
	case p.Weak.Network:
		return "by the filter and Landlock; " + p.weakNetworkWords()
	}
	return "the filter lets no internet socket be made, for allowed hosts neither"
}

// weakLayers says of each layer what it is in this tier.
func (p Plan) weakLayers(out []LayerState) []LayerState {
	for i, l := range out {
		switch l.Name {
		case policy.LayerNamespaces:
			out[i].Mechanism = notHeld + ": the command runs in the host's own view (" + p.Weak.Found + ")"
		case policy.LayerLandlock:
			out[i].Mechanism += ", alone"
			if p.Abi >= weakTCP {
				out[i].Mechanism += "; TCP ports"
			}
		case policy.LayerSeccomp:
			out[i].Mechanism += "; no UDP, multipath, local or listening sockets"
			if p.Weak.Sockets {
				out[i].Mechanism = l.Mechanism + "; no UDP and multipath sockets"
			}
		case policy.LayerCapture:
			out[i].Enforced, out[i].Mechanism = true, "no internet sockets"
			if p.Weak.Network {
				out[i].Enforced, out[i].Mechanism = false, notHeld+": clients reach the proxy by its variables, all else by no other port"
				if p.Weak.Mediated {
					out[i].Mechanism = "no capture: connect(2) is carried out for clients, to the proxy alone, which they find by its variables"
				}
			}
		}
	}
	if p.Weak.Sockets {
		words := strings.TrimPrefix(p.weakSocketWords(), "; ")
		if !p.Weak.SocketsHeld {
			words = notHeld + ": " + words
		}
		out = append(out, LayerState{policy.LayerSockets, p.Weak.SocketsHeld, words})
	}
	return out
}

// landlockAlone is the mechanism of a tree that no mount holds.
func (e Entry) landlockAlone() string {
	if !e.Exec && e.Dir && e.Source != "/proc" {
		return "Landlock (execve only: a loader can still map its files)"
	}
	return "Landlock"
}

// weakVerdict answers a question about a path where this tier differs.
func (p Plan) weakVerdict(path, kind string) (PathVerdict, bool) {
	if p.Weak == nil {
		return PathVerdict{}, false
	}
	v := p.permission(path, kind)
	for _, n := range p.Weak.NotHeld {
		if v.Allowed && within(path, n.Path) && (kind == "write" || n.What == "hide") {
			return PathVerdict{
				Allowed: true, Unheld: true, Rule: n.Rule, Pos: n.Pos,
				Reason: fmt.Sprintf("%q is %s, but %s", n.Path, map[string]string{"protect": "protected", "hide": "hidden"}[n.What], n.Mechanism),
			}, true
		}
	}
	if v.Reason == "" || v.Rule == "" {
		v.Reason = "no rule grants it"
	}
	if dir := filepath.Dir(path); v.Rule == "" && dir != path {
		v.Reason += fmt.Sprintf("; that it exists in %q shows all the same", dir)
	}
	return v, true
}

package sandbox

import (
	"fmt"
	"os"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// PathVerdict answers a question about one path.
type PathVerdict struct {
	Allowed bool
	// Private tells that the path lies on a file system of the sandbox's own:
	// the host's file of that name is neither seen nor touched.
	Private bool
	// Unheld tells that a rule refuses it, but that nothing holds the rule: the
	// policy allows namespaces to be missing, and they are.
	Unheld bool
	Reason string
	Rule   string
	Pos    policy.Pos
}

// Judge tells whether the confined process may read, write or execute a path,
// from the plan's own entries. Both the literal name and what it resolves to
// on the host are judged.
func (p Plan) Judge(path, kind string) PathVerdict {
	real := path
	if r, err := resolve(path); r.real != "" {
		real = r.real
		_ = err // a missing path is judged by where it would lie
	}
	if v, ok := p.weakVerdict(real, kind); ok {
		return v
	}
	for _, name := range []string{path, real} {
		if v, refused := p.refusal(name, kind); refused {
			return v
		}
	}
	return p.permission(real, kind)
}

// refusal looks for a cover or a guarded name at or above the path.
func (p Plan) refusal(path, kind string) (PathVerdict, bool) {
	for _, e := range p.View {
		if !within(path, e.Target) {
			continue
		}
		if e.Kind == KindMask {
			return PathVerdict{Reason: fmt.Sprintf("%q is hidden", e.Target), Rule: e.Rule, Pos: e.Pos}, true
		}
		if e.Kind == KindProtect && kind == "write" {
			return PathVerdict{Reason: fmt.Sprintf("%q is protected", e.Target), Rule: e.Rule, Pos: e.Pos}, true
		}
	}
	for _, g := range p.Guard {
		if (kind == "write" || g.Hide) && within(path, g.path()) {
			return PathVerdict{Reason: fmt.Sprintf("%q may not come into existence", g.path()), Rule: g.Rule, Pos: g.Pos}, true
		}
	}
	return PathVerdict{}, false
}

// permission finds the deepest visible entry that holds the path.
func (p Plan) permission(path, kind string) PathVerdict {
	var best *Entry
	for i, e := range p.View {
		switch e.Kind {
		case KindBind, KindOverlay, KindPart, KindTmpfs, KindFile:
			if within(path, e.Target) && (best == nil || len(e.Target) >= len(best.Target)) {
				best = &p.View[i]
			}
		}
	}
	for _, own := range []string{"/proc", "/dev"} {
		if p.Weak == nil && within(path, own) {
			return PathVerdict{Allowed: kind == "read", Reason: own + " is the sandbox's own", Rule: "the launcher"}
		}
	}
	if path == landlockProbe {
		return PathVerdict{Reason: "it is there for the self-test, which must not be able to read it", Rule: "the launcher"}
	}
	if best == nil {
		return PathVerdict{Reason: "it does not exist inside: no rule makes it visible"}
	}
	v := PathVerdict{Rule: best.Rule, Pos: best.Pos}
	switch kind {
	case "read":
		v.Allowed = true
	case "write":
		v.Allowed = best.Write
	case "exec":
		v.Allowed = best.Exec
	}
	if best.Kind == KindTmpfs || best.isHome() {
		// The question is about the host's file where there is one.
		v.Private = true
		_, err := os.Lstat(path)
		v.Allowed = v.Allowed && (kind != "read" || path == best.Target || err != nil)
	}
	if best.Kind == KindTmpfs {
		v.Reason = fmt.Sprintf("%q is a private directory, empty at the start; what the host has there is not visible", best.Target)
		return v
	}
	if best.isHome() {
		v.Reason = fmt.Sprintf("%q is a home of this policy's own; what the host has there is not visible", best.Target)
		return v
	}
	how := "visible, read-only"
	switch {
	case p.layerOf(*best) != "":
		how = "writable copy-on-write: what is written goes into the layer " + strconv.Quote(p.layerOf(*best)) + " and not into the host's tree"
	case best.Write:
		how = "writable"
	}
	if best.Exec {
		how += ", executable"
	}
	v.Reason = fmt.Sprintf("%q is %s", best.Target, how)
	return v
}

// isHome tells whether the entry is a persistent home: a directory of ours that
// shows at another place. Every other tree shows where it lies.
func (e Entry) isHome() bool {
	return e.Kind == KindBind && e.Source != e.Target
}

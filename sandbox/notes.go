package sandbox

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Note is one line of explain about the file system: what holds it.
type Note struct {
	What      string     `json:"what"` // read, write, exec, hide, protect, private, made
	Path      string     `json:"path"`
	Mechanism string     `json:"mechanism"`
	Rule      string     `json:"rule"`
	Pos       policy.Pos `json:"pos,omitzero"`
}

// Notes says of each entry of the private root, and of each guarded name, which
// mechanism enforces it. It is made from the plan, never from the policy.
func (p Plan) Notes() (out []Note) {
	for _, e := range p.View {
		if n, ok := p.note(e); ok {
			out = append(out, n)
		}
	}
	for _, g := range p.Guard {
		out = append(out, Note{"protect", g.path(), "guard (seccomp notification): the name may not come into existence", g.Rule, g.Pos})
	}
	if p.Weak != nil {
		out = append(out, p.Weak.NotHeld...)
	}
	return out
}

func (p Plan) note(e Entry) (Note, bool) {
	n := Note{Path: e.Target, Rule: e.Rule, Pos: e.Pos}
	switch e.Kind {
	case KindBind:
		n.What = e.rights()
		if p.Weak != nil {
			n.Mechanism = e.landlockAlone()
			return n, true
		}
		n.Mechanism = p.held("mount (" + strings.Join(e.flagNames(), ",") + ")")
	case KindOverlay:
		n.What = e.rights()
		n.Mechanism = p.held(fmt.Sprintf("copy-on-write (%s), into %s", strings.Join(e.flagNames(), ","), p.Cow.words()))
	case KindPart:
		n.What = e.rights()
		n.Mechanism = p.held(fmt.Sprintf("mount (%s) on the layer %q", strings.Join(e.flagNames(), ","), p.layerOf(e)))
	case KindTmpfs:
		n.What = "private"
		n.Mechanism = p.held(fmt.Sprintf("tmpfs of its own, %d MiB", e.Size>>20))
	case KindMask:
		n.What, n.Mechanism = "hide", "mount (an empty cover that cannot be opened)"
	case KindProtect:
		n.What, n.Mechanism = "protect", "mount (read-only cover)"
	case KindPin:
		n.What, n.Mechanism = "protect", "mount (the directory cannot be renamed or removed)"
	case KindFile, KindAlias:
		n.What, n.Mechanism = "made", p.held("mount (read-only)")
	default:
		return n, false
	}
	return n, true
}

// held adds Landlock where it holds the same.
func (p Plan) held(mount string) string {
	if p.Abi > 0 {
		return mount + ", Landlock"
	}
	return mount
}

func (e Entry) rights() string {
	s := "read"
	if e.Write {
		s = "write"
	}
	if e.Exec {
		s += "+exec"
	}
	return s
}

func (e Entry) flagNames() []string {
	names := []string{"nosuid", "nodev"}
	if !e.Write {
		names = append(names, "ro")
	}
	if !e.Exec {
		names = append(names, "noexec")
	}
	return names
}

// LayerState is one protection of a plan.
type LayerState struct {
	Name      policy.Layer
	Enforced  bool
	Mechanism string
}

// Layers says of each layer whether this plan enforces it.
func (p Plan) Layers() []LayerState {
	capture := "nf_tables TPROXY: every TCP port"
	if !p.CaptureAll {
		capture = fmt.Sprintf("one listener each for %d ports; others are refused", len(p.Ports))
	}
	landlock := fmt.Sprintf("ABI %d of the kernel's, file system", p.Abi)
	if p.Abi >= 6 {
		landlock += ", signals and abstract sockets"
	}
	out := []LayerState{
		{policy.LayerNamespaces, !p.misses(policy.LayerNamespaces), "user, mount, pid, net, ipc, uts and cgroup namespaces; private root"},
		{policy.LayerLandlock, !p.misses(policy.LayerLandlock), landlock},
		{policy.LayerSeccomp, !p.misses(policy.LayerSeccomp), "system call filter, native ABI only"},
		{policy.LayerCapture, !p.misses(policy.LayerCapture), capture},
	}
	for _, l := range p.Limits.Limits {
		switch l.Name {
		case "memory", "pids", "cpu":
			out = append(out, LayerState{policy.Layer(l.Name), l.Mechanism != MechanismNone, l.Mechanism})
		}
	}
	if p.Weak != nil {
		return p.weakLayers(out)
	}
	return out
}

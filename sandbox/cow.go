package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Cow is how the copy-on-write trees of a plan keep what is written.
type Cow struct {
	// Persistent keeps the layers in the session's directory. Otherwise they lie
	// in memory and are gone with the run.
	Persistent bool `json:"persistent,omitempty"`
	// Size and Inodes bound all layers together, in bytes and in files. The
	// kernel holds them in memory; on disk the launcher watches. 0: no bound.
	Size   int64 `json:"size,omitempty"`
	Inodes int   `json:"inodes,omitempty"`
}

// What layers in memory may hold when the policy does not say.
const (
	defaultLayerSize   = 1 << 30
	defaultLayerInodes = 500_000
)

// copyOnWrite makes the trees visible whose changes go into a layer.
func (c *compiler) copyOnWrite() error {
	var problems policy.Problems
	add := func(p policy.Path, exec bool, rule string) error {
		t, problem, err := c.v.cowTree(p, exec, rule)
		switch {
		case err != nil:
			return err
		case problem.What != "":
			problems = append(problems, problem)
		case t.layer != "":
			return c.v.add(t)
		}
		return nil
	}
	if ws := c.p.Workspace; ws.Access == policy.AccessCow {
		if err := add(ws.Path, ws.Exec, workspaceRule); err != nil {
			return err
		}
	}
	for i, p := range c.p.Filesystem.Cow {
		if err := add(p, false, fmt.Sprintf("filesystem.cow[%d]", i)); err != nil {
			return err
		}
	}
	if problems = append(problems, c.v.nestedLayers()...); len(problems) > 0 {
		return problems
	}
	if c.plan.Cow = c.layerBounds(); c.plan.Cow == nil && c.p.State == "persistent" {
		c.plan.Warnings = append(c.plan.Warnings, "state: persistent keeps nothing, because no tree is copy-on-write")
	}
	return nil
}

const workspaceRule = "workspace"

// layerBounds is nil when no tree is copy-on-write.
func (c *compiler) layerBounds() *Cow {
	if !slices.ContainsFunc(slices.Collect(maps.Values(c.v.trees)), func(t *tree) bool { return t.layer != "" }) {
		return nil
	}
	cow := &Cow{Persistent: c.p.State == "persistent", Size: int64(c.p.Limits.Disk), Inodes: c.p.Limits.DiskFiles}
	if !cow.Persistent {
		if cow.Size <= 0 {
			cow.Size = defaultLayerSize
		}
		if cow.Inodes <= 0 {
			cow.Inodes = defaultLayerInodes
		}
	}
	return cow
}

// cowTree looks at one tree of the policy. A tree without a layer is one that
// may be missing, and is.
func (v *view) cowTree(p policy.Path, exec bool, rule string) (tree, policy.Problem, error) {
	problem := policy.Problem{Pos: p.Pos, Path: rule}
	r, err := resolve(p.Abs)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.Optional:
		return tree{}, problem, nil
	case errors.Is(err, fs.ErrNotExist):
		problem.What, problem.Hint = fmt.Sprintf("%q does not exist", p.Abs), "make the directory, or write it with a \"?\" at its end"
		return tree{}, problem, nil
	case err != nil:
		return tree{}, problem, fmt.Errorf("%s: %s: resolve %q: %w", p.Pos, rule, p.Abs, err)
	case !r.isDir():
		problem.What, problem.Hint = fmt.Sprintf("%q is not a directory", r.real), "name the directory that holds it"
		return tree{}, problem, nil
	}
	if have := v.trees[r.real]; have != nil && have.layer == "" && have.write {
		problem.What = fmt.Sprintf("%q is writable by %s, so nothing would be kept out of it", r.real, have.rule)
		problem.Hint = "take it out of one of the two"
		return tree{}, problem, nil
	}
	return tree{res: r, write: true, exec: exec, rule: rule, pos: p.Pos, layer: layerID(rule, r.real)}, problem, nil
}

// nestedLayers finds copy-on-write trees inside others: a file would have two
// layers.
func (v *view) nestedLayers() (out policy.Problems) {
	for _, path := range slices.Sorted(maps.Keys(v.trees)) {
		t := v.trees[path]
		if t.layer == "" {
			continue
		}
		for _, root := range slices.Sorted(maps.Keys(v.trees)) {
			if v.trees[root].layer != "" && root != path && within(path, root) {
				out = append(out, policy.Problem{
					Pos: t.pos, Path: t.rule, What: fmt.Sprintf("%q lies in %q, which is copy-on-write already", path, root),
					Hint: "remove it: the layer around it takes its changes too",
				})
				break
			}
		}
	}
	return out
}

// layerID names the layer of a tree: the same tree has the same layer in every
// run of a session.
func layerID(rule, real string) string {
	if rule == workspaceRule {
		return workspaceRule
	}
	sum := sha256.Sum256([]byte(real))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(real)))
	if name = strings.Trim(name[:min(len(name), 24)], "-"); name == "" {
		name = "tree"
	}
	return name + "-" + hex.EncodeToString(sum[:4])
}

// domain gives the deepest tree at or above path that decides where a write
// goes, and whether that is a layer. "" when nothing above is writable.
func (v *view) domain(path string) (root string, cow bool) {
	for p, t := range v.trees {
		if t.write && within(path, p) && len(p) >= len(root) {
			root, cow = p, t.layer != ""
		}
	}
	return root, cow
}

// CowTrees gives the copy-on-write entries of the plan.
func (p Plan) CowTrees() (out []Entry) {
	for _, e := range p.View {
		if e.Kind == KindOverlay {
			out = append(out, e)
		}
	}
	return out
}

// PassThrough gives the trees inside a copy-on-write tree whose writes reach
// the host.
func (p Plan) PassThrough(tree string) map[string]bool {
	out := map[string]bool{}
	for _, e := range p.View {
		if e.Kind == KindBind && e.Write && within(e.Target, tree) {
			out[e.Target] = true
		}
	}
	return out
}

// layerOf gives the layer that takes what is written in an entry, "" when the
// host's tree takes it.
func (p Plan) layerOf(e Entry) string {
	switch e.Kind {
	case KindOverlay:
		return e.Layer
	case KindPart:
		best := Entry{}
		for _, o := range p.CowTrees() {
			if within(e.Target, o.Target) && len(o.Target) > len(best.Target) {
				best = o
			}
		}
		return best.Layer
	}
	return ""
}

// words says where writes go and what bounds them, for explain.
func (c Cow) words() string {
	var bounds []string
	if c.Size > 0 {
		bounds = append(bounds, fmt.Sprintf("at most %d MiB", c.Size>>20))
	}
	if c.Inodes > 0 {
		bounds = append(bounds, fmt.Sprintf("at most %d files", c.Inodes))
	}
	where := "a layer in memory that is gone with the run"
	if c.Persistent {
		where = "a layer in the session's directory"
		bounds = append(bounds, "watched")
		if len(bounds) == 1 {
			bounds = []string{"no bound"}
		}
	}
	return where + " (" + strings.Join(bounds, ", ") + ")"
}

// How often layers on disk are measured. A plain user has no quota of his own,
// so what fits between two looks can pass the limit.
const (
	diskSlowest = time.Second
	diskFastest = 50 * time.Millisecond
	diskRate    = 1 << 30 // bytes a second that a tree is assumed to write
	fileRate    = 50_000  // files a second
	diskShare   = 5       // at most one part in diskShare of a processor
)

// layerMechanism says what holds the limits of copy-on-write layers.
func layerMechanism(p policy.Policy) string {
	switch {
	case p.Workspace.Access != policy.AccessCow && len(p.Filesystem.Cow) == 0:
		return "no tree is copy-on-write"
	case p.State == "persistent":
		return fmt.Sprintf("watcher (measures the layers every %v to %v, kills the tree)", diskFastest, diskSlowest)
	}
	return "tmpfs size and inodes"
}

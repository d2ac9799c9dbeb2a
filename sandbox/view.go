package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// tree is one visible tree: what is granted at and below a real path.
type tree struct {
	res         resolved
	write, exec bool
	rule        string
	pos         policy.Pos
	layer       string // the id of its layer, "" unless it is copy-on-write
}

// tmpTree is a private tmpfs of the plan.
type tmpTree struct {
	path   string
	size   int64
	mode   uint32
	exec   bool
	inodes int
	rule   string
}

// view collects what is visible and turns it into ordered entries and Landlock
// grants. Rights only add up: a tree inside another has at least its rights.
type view struct {
	trees    map[string]*tree // by real path
	links    map[string]string
	tmp      []tmpTree
	files    []Entry
	hidden   []tree
	protect  []tree
	absent   []Guarded
	missing  []string // real paths of writable trees that do not exist
	warnings []string
}

func newView() *view {
	return &view{trees: map[string]*tree{}, links: map[string]string{}}
}

// grant makes a path of the policy visible.
func (v *view) grant(p policy.Path, write, exec bool, rule string) error {
	paths, err := expand(p.Abs, p.Glob)
	if err != nil {
		return err
	}
	for _, path := range paths {
		r, err := resolve(path)
		if errors.Is(err, fs.ErrNotExist) {
			if !p.Optional {
				v.warnings = append(v.warnings, fmt.Sprintf("%s: %s: %q does not exist and is left out", p.Pos, rule, path))
			}
			if write && r.real != "" {
				v.missing = append(v.missing, r.real)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: resolve %q: %w", p.Pos, path, err)
		}
		if err := v.add(tree{res: r, write: write, exec: exec, rule: rule, pos: p.Pos}); err != nil {
			return fmt.Errorf("%s: %s: %w", p.Pos, rule, err)
		}
	}
	return nil
}

func (v *view) add(t tree) error {
	for _, root := range []string{"/proc", "/dev", "/sys"} {
		if within(t.res.real, root) {
			return fmt.Errorf("%q cannot be granted: %s inside is the sandbox's own", t.res.real, root)
		}
	}
	if t.res.real == "/" {
		return errors.New("the whole root cannot be granted")
	}
	if !t.res.isDir() && !t.res.mode.IsRegular() {
		return fmt.Errorf("%q is neither a file nor a directory; a socket is granted under filesystem.sockets, a device under filesystem.devices", t.res.real)
	}
	for _, l := range t.res.links {
		v.links[l.path] = l.target
	}
	have := v.trees[t.res.real]
	if have == nil {
		v.trees[t.res.real] = &t
		return nil
	}
	if t.layer != "" && have.layer == "" {
		have.layer, have.rule, have.pos = t.layer, t.rule, t.pos
	}
	have.write, have.exec = have.write || t.write, have.exec || t.exec
	return nil
}

// addTmp makes a private tmpfs.
func (v *view) addTmp(t tmpTree) { v.tmp = append(v.tmp, t) }

// addFile makes a file or another small thing of the launcher's own.
func (v *view) addFile(e Entry) { v.files = append(v.files, e) }

// covering gives the deepest tree or tmpfs strictly above path, "" if none.
func (v *view) covering(path string) (root string, t *tree) {
	for _, m := range v.tmp {
		if within(path, m.path) && path != m.path && len(m.path) > len(root) {
			root, t = m.path, nil
		}
	}
	for p, c := range v.trees {
		if within(path, p) && path != p && len(p) >= len(root) {
			root, t = p, c
		}
	}
	return root, t
}

// rights adds up what the trees at and above a path grant.
func (v *view) rights(path string) (visible, write, exec bool) {
	for p, t := range v.trees {
		if within(path, p) {
			visible, write, exec = true, write || t.write, exec || t.exec
		}
	}
	return visible, write, exec
}

// hide covers what exists at the literal and at the resolved path. What does
// not exist may not come into existence inside: the agent must not leave a
// file where a later run looks for a secret.
func (v *view) hide(p policy.Path, rule string) error {
	return v.each(p, func(r resolved, err error) error {
		if err != nil {
			v.guardNames(r, Guarded{Hide: true, Rule: rule, Pos: p.Pos})
			return nil
		}
		if r.nlink > 1 && r.mode.IsRegular() {
			v.warnings = append(v.warnings, fmt.Sprintf("%s: %s: %q has %d hard links; it is hidden under this name alone", p.Pos, rule, r.real, r.nlink))
		}
		v.hidden = append(v.hidden, tree{res: r, rule: rule, pos: p.Pos})
		return nil
	})
}

func (v *view) each(p policy.Path, do func(resolved, error) error) error {
	pattern := strings.TrimSuffix(p.Abs, "/**")
	paths, err := expand(pattern, p.Glob)
	if err != nil {
		return err
	}
	for _, path := range paths {
		r, err := resolve(path)
		if err := do(r, err); err != nil {
			return fmt.Errorf("%s: %w", p.Pos, err)
		}
	}
	return nil
}

// keepOut protects an entry inside a writable tree: what exists is covered
// read-only, what does not exist may not come into existence.
func (v *view) keepOut(p policy.Path, rule string) error {
	return v.each(p, func(r resolved, err error) error {
		if err := v.keepEntry(r, err, rule, p.Pos); err != nil {
			return err
		}
		return v.keepPointed(r.literal, rule, p.Pos)
	})
}

// keepEntry protects what a path was resolved to, or with the error the name.
func (v *view) keepEntry(r resolved, err error, rule string, pos policy.Pos) error {
	if err == nil && r.nlink > 1 && r.mode.IsRegular() {
		return hardLinked(rule, r)
	}
	if err == nil {
		v.protect = append(v.protect, tree{res: r, rule: rule, pos: pos})
	}
	// The name is guarded in any case: a symlink cannot be covered, and a
	// cover is gone once somebody outside replaces or removes the entry.
	v.guardNames(r, Guarded{Rule: rule, Pos: pos})
	if err != nil {
		return nil
	}
	return v.keepLinked(r, rule, pos)
}

// guardNames guards the entry's own name and that of each symlink on the way:
// whoever may replace one of them decides what the name leads to.
func (v *view) guardNames(r resolved, g Guarded) {
	last := r.real
	if last == "" { // a loop of links
		last = r.literal
	}
	for _, name := range append(linkPaths(r), last) {
		v.guardName(name, g)
	}
}

// guardName guards a name in its directory, or in the deepest directory that
// exists the first name that does not: unless the policy makes that very
// directory writable, which then may be made.
func (v *view) guardName(name string, g Guarded) {
	for path := name; path != "/"; path = filepath.Dir(path) {
		parent, err := resolve(filepath.Dir(path))
		if err == nil && parent.isDir() {
			g.Parent, g.Name = parent.real, filepath.Base(path)
			if rest, ok := strings.CutPrefix(name, path+"/"); ok && v.makeable(filepath.Join(g.Parent, g.Name)) {
				g.Rest = rest
			}
			v.absent = append(v.absent, g)
			return
		}
	}
}

// makeable tells whether a directory that does not exist lies at or below one
// that the policy makes writable.
func (v *view) makeable(dir string) bool {
	return slices.ContainsFunc(v.missing, func(m string) bool { return within(dir, m) })
}

// entries gives the private root in the order in which it is built.
func (v *view) entries() []Entry {
	var out []Entry
	for _, m := range v.tmp {
		out = append(out, Entry{Kind: KindTmpfs, Target: m.path, Size: m.size, Inodes: m.inodes, Mode: m.mode, Write: true, Exec: m.exec, Rule: m.rule})
	}
	for path, t := range v.trees {
		if e, ok := v.bindEntry(path, t); ok {
			out = append(out, e)
		}
	}
	for path, target := range v.links {
		if root, t := v.covering(path); root == "" || t == nil {
			out = append(out, Entry{Kind: KindSymlink, Target: path, Data: target, Rule: "a symlink on the way"})
		}
	}
	out = append(out, v.files...)
	slices.SortStableFunc(out, byDepth)
	return append(out, v.covers()...)
}

// byDepth orders parents before what lies in them, and what a path shows of
// another one after that.
func byDepth(a, b Entry) int {
	if a, b := a.Kind == KindAlias, b.Kind == KindAlias; a != b {
		return map[bool]int{true: 1, false: -1}[a]
	}
	if d := strings.Count(a.Target, "/") - strings.Count(b.Target, "/"); d != 0 {
		return d
	}
	return strings.Compare(a.Target, b.Target)
}

// bindEntry leaves out a tree that a tree above it shows with the same rights.
func (v *view) bindEntry(path string, t *tree) (Entry, bool) {
	if v.isHidden(path) {
		return Entry{}, false
	}
	_, write, exec := v.rights(path)
	domain, cow := v.domain(path)
	if root, above := v.covering(path); above != nil {
		// Trees of the host with the same rights are one mount, so that a rename from
		// one to the other works.
		around, layered := v.domain(root)
		together := around == domain || !layered && !cow
		if _, w, x := v.rights(root); w == write && x == exec && together {
			return Entry{}, false
		}
	}
	e := Entry{
		Kind: KindBind, Target: path, Source: path, Dev: t.res.dev, Ino: t.res.ino, Dir: t.res.isDir(),
		Write: write, Exec: exec, Rule: t.rule, Pos: t.pos,
	}
	switch {
	case cow && domain == path:
		e.Kind, e.Layer = KindOverlay, t.layer
	case cow:
		// The host's own tree would show what was never written to the layer.
		e.Kind, e.Source, e.Dev, e.Ino = KindPart, "", 0, 0
	}
	return e, true
}

func (v *view) mounted(path string, t *tree) bool {
	_, ok := v.bindEntry(path, t)
	return ok
}

// isHidden tells whether a path lies at or below a hidden one: deny wins.
func (v *view) isHidden(path string) bool {
	return slices.ContainsFunc(v.hidden, func(h tree) bool { return within(path, h.res.real) })
}

// isWithheld tells whether a path is hidden, or would be if it existed.
func (v *view) isWithheld(path string) bool {
	return v.isHidden(path) || slices.ContainsFunc(v.absent, func(g Guarded) bool { return g.Hide && within(path, g.path()) })
}

// covers come last: pins from the top down, then read-only and blank covers.
func (v *view) covers() []Entry {
	pins := map[string]Entry{}
	var covers []Entry
	for _, p := range v.protect {
		root, write := v.writableAbove(p.res.real)
		if !write || v.isHidden(p.res.real) {
			continue // nothing to protect from: it is read-only or invisible
		}
		covers = append(covers, Entry{Kind: KindProtect, Target: p.res.real, Dir: p.res.isDir(), Rule: p.rule, Pos: p.pos})
		v.pin(pins, filepath.Dir(p.res.real), root, p)
	}
	for _, h := range v.hidden {
		if visible, _, _ := v.rights(h.res.real); !visible || v.isHidden(filepath.Dir(h.res.real)) {
			continue
		}
		covers = append(covers, Entry{Kind: KindMask, Target: h.res.real, Dir: h.res.isDir(), Rule: h.rule, Pos: h.pos})
		if root, write := v.writableAbove(h.res.real); write {
			v.pin(pins, filepath.Dir(h.res.real), root, h)
		}
	}
	for path, t := range v.trees {
		// Whoever renames a directory around it could put another in its place.
		if root, write := v.writableAbove(path); t.layer != "" && write && root != path && !v.isHidden(path) {
			v.pin(pins, filepath.Dir(path), root, *t)
		}
	}
	for _, g := range v.guarded() {
		if root, write := v.writableAbove(g.Parent + "/x"); write {
			v.pin(pins, g.Parent, root, tree{rule: g.Rule, pos: g.Pos})
		}
	}
	var out []Entry
	for _, e := range pins {
		out = append(out, e)
	}
	slices.SortFunc(out, byDepth)
	slices.SortStableFunc(covers, byDepth)
	return append(out, slices.CompactFunc(covers, func(a, b Entry) bool { return a.Target == b.Target && a.Kind == b.Kind })...)
}

// pin binds every directory from below root down to dir onto itself, since
// renaming the parent of a covered entry would leave the cover behind. A tree
// with a mount of its own needs no pin; one that a tree above it shows has none.
func (v *view) pin(pins map[string]Entry, dir, root string, why tree) {
	for ; within(dir, root) && dir != root; dir = filepath.Dir(dir) {
		if t := v.trees[dir]; t == nil || !v.mounted(dir, t) {
			pins[dir] = Entry{Kind: KindPin, Target: dir, Dir: true, Rule: why.rule, Pos: why.pos}
		}
	}
}

// writableAbove gives the root of the writable bind that holds path.
func (v *view) writableAbove(path string) (root string, ok bool) {
	_, write, _ := v.rights(path)
	if !write {
		return "", false
	}
	for p, t := range v.trees {
		if t.write && within(path, p) && (root == "" || len(p) < len(root)) {
			root = p
		}
	}
	return root, root != ""
}

// guarded keeps the names whose directory is writable on the host.
func (v *view) guarded() []Guarded {
	var out []Guarded
	for _, g := range v.absent {
		if _, ok := v.writableAbove(filepath.Join(g.Parent, g.Name)); ok && !v.isHidden(g.Parent) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Guarded) int {
		return strings.Compare(a.path(), b.path())
	})
	return slices.CompactFunc(out, func(a, b Guarded) bool { return a.path() == b.path() })
}

// grants gives the Landlock rules. A cover cannot be subtracted here (Landlock
// only grants): covers are held by their mounts.
func (v *view) grants() []Grant {
	var out []Grant
	for path, t := range v.trees {
		if v.isHidden(path) {
			continue
		}
		out = append(out, Grant{Path: path, Write: t.write, Exec: t.exec, Rule: t.rule, Pos: t.pos})
	}
	for _, m := range v.tmp {
		out = append(out, Grant{Path: m.path, Write: true, Exec: m.exec, Rule: m.rule})
	}
	for _, f := range v.files {
		if f.Kind == KindFile && f.Target != landlockProbe {
			out = append(out, Grant{Path: f.Target, Rule: f.Rule})
		}
	}
	out = v.gather(out, "/etc")
	slices.SortFunc(out, func(a, b Grant) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// gather replaces the grants below a directory of the private root by one on
// the directory, when all of them grant reading alone: it holds nothing but what
// they name. That saves rules at each launch; open(2) costs the same.
func (v *view) gather(grants []Grant, dir string) []Grant {
	if _, above := v.covering(dir); above != nil || v.trees[dir] != nil {
		return grants
	}
	below := func(g Grant) bool { return within(g.Path, dir) }
	if slices.ContainsFunc(grants, func(g Grant) bool { return below(g) && (g.Write || g.Exec || g.Ioctl) }) {
		return grants
	}
	return append(slices.DeleteFunc(grants, below), Grant{Path: dir, Rule: "what is visible of " + dir})
}

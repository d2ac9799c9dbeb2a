package policy

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxExtends is how long a chain of "extends" may be.
const maxExtends = 16

// loader is one Load.
type loader struct {
	o Options
	// chain is the policy and what it extends, base first.
	chain []*layer
	// project, flags and floor are nil when there is none.
	project, flags, floor *layer
	main                  text
	own                   *layer // main, decoded
	// enabled are the fragments that are switched on, in order.
	enabled  []Name
	problems Problems
	warnings []Problem
}

// Load finds, reads, merges and checks a policy. The error is Problems where
// the policy is wrong: every mistake, file by file and in file order.
func Load(o Options) (Policy, error) {
	if err := o.check(); err != nil {
		return Policy{}, err
	}
	ld := &loader{o: o, flags: o.Flags.layer()}
	if err := ld.read(); err != nil {
		return Policy{}, err
	}
	workspace := ld.workspace()
	if err := ld.readOverlays(workspace); err != nil {
		return Policy{}, err
	}
	vars := o.variables(workspace.Abs)
	ld.expand(vars)
	if ps := ld.collect(); len(ps) > 0 {
		return Policy{}, ps
	}
	p := ld.merge(workspace, vars)
	if len(ld.problems) > 0 {
		return Policy{}, ld.problems
	}
	p.Digest = p.digest()
	return p, nil
}

// check refuses an outside world that cannot be written down exactly.
func (o Options) check() error {
	if !filepath.IsAbs(o.Cwd) {
		return fmt.Errorf("load policy: working directory %q is not absolute", o.Cwd)
	}
	if o.Home != "" && !filepath.IsAbs(o.Home) {
		return fmt.Errorf("load policy: HOME %q is not an absolute path", o.Home)
	}
	for name, v := range o.variables(o.Cwd) {
		if !utf8.ValidString(v) {
			return fmt.Errorf("load policy: %s %q is not valid UTF-8", name, v)
		}
	}
	return nil
}

// read loads the policy and everything it extends.
func (ld *loader) read() error {
	main, err := ld.o.find()
	if err != nil {
		return err
	}
	ld.main = main
	ld.warnings = append(ld.warnings, main.warnings...)
	if err := ld.extend(main, nil); err != nil {
		return err
	}
	ld.own = ld.chain[len(ld.chain)-1]
	// Those of the command line lie above the policy, like its other flags.
	return ld.enable(ld.flags)
}

// extend decodes a policy after its bases. Each file counts once, where it is
// first needed, so that two policies may share a base. above is the chain that
// led here.
func (ld *loader) extend(t text, above []string) error {
	if slices.ContainsFunc(ld.chain, func(l *layer) bool { return l.source.Name == t.name }) {
		return nil
	}
	l := decodeFile(t.name, t.label, t.data)
	chain := append(slices.Clone(above), t.name)
	for i, entry := range ld.bases(l) {
		path := fmt.Sprintf("extends[%d]", i)
		if l.refused(path) {
			continue
		}
		base, err := ld.base(t, entry)
		switch {
		case err != nil:
			if !asProblem(err, l, path) {
				return err
			}
		case slices.Contains(chain, base.name):
			l.add(l.at(path), path, "extends itself: "+strings.Join(append(chain, base.name), " → "), "remove the entry")
		case len(chain) >= maxExtends:
			l.add(l.at(path), path, fmt.Sprintf("the chain is longer than %d", maxExtends), "write what the last ones have into one file")
		default:
			ld.warnings = append(ld.warnings, base.warnings...)
			if err := ld.extend(base, chain); err != nil {
				return err
			}
		}
	}
	if err := ld.enable(l); err != nil {
		return err
	}
	ld.chain = append(ld.chain, l)
	return nil
}

// asProblem reports that a base cannot be read at the line that names it.
func asProblem(err error, l *layer, path string) bool {
	ps, ok := err.(Problems)
	for _, p := range ps {
		l.add(l.at(path), path, p.Error(), p.Hint)
	}
	return ok
}

// bases is what a layer builds on: builtin:strict unless it says otherwise.
func (ld *loader) bases(l *layer) []string {
	if l.has("extends") || l.refused("extends") || l.source.Name == "builtin:strict" || len(l.where) == 0 {
		return l.pol.Extends
	}
	return []string{"builtin:strict"}
}

func (ld *loader) base(from text, entry string) (text, error) {
	if name, ok := strings.CutPrefix(entry, "builtin:"); ok {
		return ld.o.builtin(name)
	}
	if strings.HasPrefix(from.name, "builtin:") {
		return text{}, Problems{{Pos: Pos{File: entry}, What: "a built-in can only extend built-ins", Hint: "BUG: please report it"}}
	}
	if rest, ok := strings.CutPrefix(entry, "~/"); ok && ld.o.Home != "" {
		entry = filepath.Join(ld.o.Home, rest)
	}
	if filepath.IsAbs(entry) {
		return ld.o.readPolicy(filepath.Clean(entry), entry)
	}
	return ld.o.readPolicy(filepath.Join(filepath.Dir(from.name), entry), filepath.Join(filepath.Dir(from.label), entry))
}

// workspace resolves workspace.path, which the other variables need.
func (ld *loader) workspace() Path {
	ws := Path{Text: ".", Abs: filepath.Clean(ld.o.Cwd)}
	for _, l := range ld.chain {
		if !l.has("workspace.path") {
			continue
		}
		vars := ld.o.variables("")
		p, what, hint := expander{vars: vars, base: ld.o.Cwd}.path(l.pol.Workspace.Path, false)
		if what != "" {
			l.add(l.at("workspace.path"), "workspace.path", what, hint)
			continue
		}
		ws = p
	}
	return ws
}

// readOverlays reads the layers above the policy.
func (ld *loader) readOverlays(ws Path) error {
	path := ld.o.ProjectFile
	if path == "" {
		path = filepath.Join(ws.Abs, projectFile)
	}
	project, ok, err := readProject(path)
	if err != nil {
		return err
	}
	// Named with --policy, the file is the user's own choice.
	if ok && (ld.main.id == nil || !os.SameFile(ld.main.id, project.id)) {
		ld.project = ld.overlay(project, "a project's file only tightens the policy that is in force", "extends", "enable", "workspace.path")
	}
	if ld.o.FloorPath == "" {
		return nil
	}
	floor, ok, err := readFloor(ld.o.FloorPath)
	if ok {
		ld.floor = ld.overlay(floor, "the floor applies to every policy", "extends", "enable", "workspace.path", "network.remove")
	}
	return err
}

// overlay decodes a layer that builds on nothing of its own; some keys make no
// sense in one.
func (ld *loader) overlay(t text, hint string, refused ...string) *layer {
	l := decodeFile(t.name, t.label, t.data)
	for _, key := range refused {
		if l.has(key) {
			l.add(l.at(key), key, "has no meaning in this file", hint)
		}
	}
	return l
}

// all lists the layers in the order they apply.
func (ld *loader) all() []*layer {
	ls := slices.Clone(ld.chain)
	for _, l := range []*layer{ld.project, ld.flags, ld.floor} {
		if l != nil {
			ls = append(ls, l)
		}
	}
	return ls
}

func (ld *loader) expand(vars map[string]string) {
	for _, l := range ld.all() {
		e := expander{vars: vars}
		if l == ld.flags {
			e.base = filepath.Clean(ld.o.Cwd)
		}
		e.layer(l)
	}
}

// collect gives every mistake so far, each file's in file order.
func (ld *loader) collect() Problems {
	var all Problems
	for _, l := range ld.all() {
		slices.SortStableFunc(l.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
		})
		all = append(all, l.problems...)
	}
	return all
}

// merge applies the layers; its mistakes are those between layers.
func (ld *loader) merge(ws Path, vars map[string]string) Policy {
	var p Policy
	for _, l := range ld.chain {
		p = ld.add(p, l, !l.fragment)
	}
	if p.Name = ld.own.pol.Name; p.Name == "" {
		p.Name = nameOf(ld.main.name)
	}
	p.Enable = ld.enabled
	p.Workspace.Path = ws
	p.Vars = vars
	p = p.complete(vars)
	if ld.project != nil {
		before := p
		p = ld.add(p, ld.project, false)
		ld.problems = append(ld.problems, widened(before, p, ld.project)...)
	}
	p = ld.add(p, ld.flags, false).complete(vars)
	if ld.floor != nil {
		var ps Problems
		p, ps = applyFloor(p, ld.floor)
		ld.problems = append(ld.problems, ps...)
		p.Sources = append(p.Sources, ld.floor.source)
	}
	ps, warnings := judge(p, ld.o)
	ld.problems = append(ld.problems, ps...)
	p.Warnings = append(ld.warnings, warnings...)
	return p
}

// nameOf makes a name for a policy that has none from its file's; a base's name
// would make two policies one.
func nameOf(file string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "builtin:"), ".yaml")
	if what, _ := checkValue("name", name); what != "" {
		return "unnamed"
	}
	return name
}

func (ld *loader) add(p Policy, l *layer, labels bool) Policy {
	next, ps := merge(p, l, labels)
	ld.problems = append(ld.problems, ps...)
	if l != ld.flags || len(l.where) > 0 {
		next.Sources = append(slices.Clone(p.Sources), l.source)
	}
	return next
}

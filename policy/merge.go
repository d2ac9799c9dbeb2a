package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// merge puts a layer on top of a policy: lists append, an empty list clears,
// scalars replace, maps merge by key. Denials are never cleared.
func merge(base Policy, l *layer, labels bool) (Policy, Problems) {
	m := merger{layer: l, labels: labels, where: maps.Clone(base.Where)}
	if m.where == nil {
		m.where = map[string]Pos{}
	}
	next := base
	next.Network.Rules = m.remove(base.Network.Rules)
	inherited := len(next.Network.Rules)
	m.structs(reflect.ValueOf(&next).Elem(), reflect.ValueOf(l.pol), "")
	next.Network.Remove = nil
	next.Where = m.where
	m.sameNames(next.Network.Rules, inherited)
	return next, m.problems
}

type merger struct {
	layer    *layer
	labels   bool // whether name, description and extends are taken over
	where    map[string]Pos
	problems Problems
}

func (m *merger) add(path, what, hint string) {
	m.problems = append(m.problems, Problem{Pos: m.layer.at(path), Path: path, What: what, Hint: hint})
}

func (m *merger) structs(dst, src reflect.Value, path string) {
	for _, f := range fieldsOf(dst.Type()) {
		p := join(path, f.key)
		if !m.layer.has(p) || isLabel(f) && !m.labels {
			continue
		}
		m.where[p] = m.layer.where[p]
		d, s := dst.Field(f.index), src.Field(f.index)
		switch {
		case s.Kind() == reflect.Struct && s.Type() != reflect.TypeFor[Path]():
			m.structs(d, s, p)
		case s.Kind() == reflect.Slice && !isLabel(f):
			m.list(d, s, p, f.tag.Get("tighten") == "superset")
		case s.Kind() == reflect.Map:
			m.maps(d, s)
		default:
			d.Set(s)
		}
	}
}

// isLabel tells whether a field describes the policy rather than the sandbox.
func isLabel(f field) bool {
	rule := f.tag.Get("tighten")
	return rule == "label" || rule == "absent"
}

// list appends to a list of its own, so that no two policies share memory.
func (m *merger) list(dst, src reflect.Value, path string, denies bool) {
	if src.Len() > 0 {
		all := reflect.MakeSlice(dst.Type(), 0, dst.Len()+src.Len())
		dst.Set(reflect.AppendSlice(reflect.AppendSlice(all, dst), src))
		return
	}
	if denies && dst.Len() > 0 && path != "assert" {
		m.add(path, "an empty list cannot drop inherited denials", `remove the key; "extends" another base to start without them`)
		return
	}
	if path == "network.rules" {
		for _, r := range dst.Interface().([]Rule) {
			if r.Locked {
				m.add(path, fmt.Sprintf("the inherited rule %q is locked", r.Name), "remove the key, or deny hosts instead")
			}
		}
	}
	dst.Set(src)
}

func (m *merger) maps(dst, src reflect.Value) {
	if src.Len() == 0 {
		dst.Set(src)
		return
	}
	all := reflect.MakeMap(dst.Type())
	for _, v := range []reflect.Value{dst, src} {
		for it := v.MapRange(); it.Next(); {
			all.SetMapIndex(it.Key(), it.Value())
		}
	}
	dst.Set(all)
}

// remove drops inherited rules by name.
func (m *merger) remove(rules []Rule) []Rule {
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	out := slices.Clone(rules)
	for i, name := range m.layer.pol.Network.Remove {
		path := fmt.Sprintf("network.remove[%d]", i)
		j := slices.IndexFunc(out, func(r Rule) bool { return r.Name == name.Text })
		switch {
		case j < 0:
			hint := "only inherited rules can be removed"
			if near := nearest(name.Text, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			m.add(path, fmt.Sprintf("there is no inherited rule %q", name.Text), hint)
		case out[j].Locked:
			m.add(path, fmt.Sprintf("the rule %q is locked (%v)", name.Text, out[j].Pos), "deny hosts instead")
		default:
			out = slices.Delete(out, j, j+1)
		}
	}
	return out
}

// sameNames refuses a rule that takes the name of an inherited one: a denial
// names its rule, and must name one.
func (m *merger) sameNames(rules []Rule, inherited int) {
	first := map[string]Rule{}
	for i, r := range rules {
		if old, dup := first[r.Name]; dup && i >= inherited {
			m.problems = append(m.problems, Problem{
				Pos: r.Pos, Path: "network.rules",
				What: fmt.Sprintf("the name %q is taken by %v", r.Name, old.Pos),
				Hint: fmt.Sprintf("choose another name, or drop the inherited rule with remove: [%s]", r.Name),
			})
			continue
		}
		first[r.Name] = r
	}
}

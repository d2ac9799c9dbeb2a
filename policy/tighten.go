package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// widened lists what a project's layer opened: before is the policy without
// it, after the policy with it. The direction of each field is in its
// "tighten" tag.
func widened(before, after Policy, l *layer) Problems {
	w := widening{layer: l}
	w.structs(reflect.ValueOf(before), reflect.ValueOf(after), "")
	w.denies(before, after)
	return w.problems
}

type widening struct {
	layer    *layer
	problems Problems
}

func (w *widening) add(path, what string) {
	w.problems = append(w.problems, Problem{
		Pos: w.layer.at(path), Path: path, What: what,
		Hint: "a project's file may only tighten; change the policy that is named with --policy instead",
	})
}

func (w *widening) structs(a, b reflect.Value, path string) {
	for _, f := range fieldsOf(a.Type()) {
		p := join(path, f.key)
		x, y := a.Field(f.index), b.Field(f.index)
		rule := f.tag.Get("tighten")
		if rule == "" {
			w.structs(x, y, p)
			continue
		}
		if w.layer.has(p) {
			w.field(rule, f, x, y, p)
		}
	}
}

func (w *widening) field(rule string, f field, x, y reflect.Value, path string) {
	switch rule {
	case "label", "absent":
	case "subset":
		w.subset(path)
	case "superset":
		if y.Len() < x.Len() {
			w.add(path, "drops entries")
		}
	case "fixed":
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			w.add(path, "changes what the policy fixes")
		}
	case "lower":
		if rank(y, f.tag) > rank(x, f.tag) {
			w.add(path, fmt.Sprintf("raises %v to %v", x, y))
		}
	case "higher":
		if rank(y, f.tag) < rank(x, f.tag) {
			w.add(path, fmt.Sprintf("lowers %v to %v", x, y))
		}
	case "limit":
		if a, b := rank(x, f.tag), rank(y, f.tag); a != 0 && (b == 0 || b > a) {
			w.add(path, fmt.Sprintf("raises the limit of %v to %v", x, y))
		}
	default:
		w.add(path, fmt.Sprintf("BUG: direction %q is unknown", rule))
	}
}

// subset refuses what the layer adds to a list of grants. It may still empty
// the list.
func (w *widening) subset(path string) {
	for i := 0; ; i++ {
		item := path + "[" + strconv.Itoa(i) + "]"
		if !w.layer.has(item) {
			return
		}
		w.add(item, "grants what the policy does not")
	}
}

// rank orders the values of a field from tight to loose.
func rank(v reflect.Value, tag reflect.StructTag) float64 {
	switch {
	case v.Kind() == reflect.Bool && v.Bool():
		return 1
	case v.CanInt():
		return float64(v.Int())
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.String:
		return float64(slices.Index(strings.Split(tag.Get("enum"), ","), v.String()))
	}
	return 0
}

// denies refuses to drop a rule that denies something another rule allows: a
// rule's denials hold against every rule.
func (w *widening) denies(before, after Policy) {
	if len(after.Network.Rules) == 0 {
		return
	}
	for _, r := range before.Network.Rules {
		kept := slices.ContainsFunc(after.Network.Rules, func(x Rule) bool { return x.Name == r.Name })
		if len(r.Deny) > 0 && !kept {
			w.add("network.remove", fmt.Sprintf("drops the rule %q, whose denials hold against other rules", r.Name))
		}
	}
}

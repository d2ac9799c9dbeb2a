package policy

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// layer is one decoded file, built-in or set of flags.
type layer struct {
	source Source
	// file is the name used in positions.
	file string
	pol  Policy
	// where holds the position of every value, by path ("network.rules[2].host").
	// A path that is missing was not written.
	where map[string]Pos
	// bad holds the paths of refused values; around holds those and every path
	// above them.
	bad, around map[string]bool
	// hollow lists the maps with known keys of which none is there.
	hollow   []string
	problems Problems
	// fragment is a layer whose name and description are not the policy's.
	fragment bool
}

func newLayer(source Source, file string) *layer {
	return &layer{source: source, file: file, where: map[string]Pos{}, bad: map[string]bool{}, around: map[string]bool{}}
}

// has tells whether the key was written.
func (l *layer) has(path string) bool { _, ok := l.where[path]; return ok }

// at gives the position of a value or of the nearest value around it.
func (l *layer) at(path string) Pos {
	for path != "" {
		if p, ok := l.where[path]; ok {
			return p
		}
		path = above(path)
	}
	return Pos{l.file, 1, 1}
}

// above gives the path of the value that holds the one at path.
func above(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// lose notes that there is a value at path, but none that can be used.
func (l *layer) lose(path string) {
	l.bad[path] = true
	for ; path != "" && !l.around[path]; path = above(path) {
		l.around[path] = true
	}
}

// maxItems is how many entries a list may have.
const maxItems = 20_000

// maxProblems is how many mistakes of one file are told; more are no help.
const maxProblems = 1000

func (l *layer) add(pos Pos, path, what, hint string) {
	if len(l.problems) == maxProblems {
		what, path, hint = "more mistakes follow", "", "correct the others first"
	}
	if len(l.problems) > maxProblems {
		l.lose(path)
		return
	}
	l.problems = append(l.problems, Problem{Pos: pos, Path: path, What: what, Hint: hint})
	l.lose(path)
}

// decodeFile reads one policy file. Its mistakes are in problems.
func decodeFile(name, file string, data []byte) *layer {
	l := newLayer(Source{Name: name, Digest: digest(data)}, file)
	root, ps := parse(file, data)
	l.problems = ps
	if root == nil {
		return l
	}
	l.decode(root, reflect.ValueOf(&l.pol).Elem(), "", "")
	if root.kind == mapNode {
		l.checkVersion(root)
		l.validate()
		l.checkHollow()
	}
	return l
}

func (l *layer) checkVersion(root *node) {
	const hint = `the file starts with "version: 1"`
	if !l.has("version") && !l.refused("version") {
		l.add(root.pos, "version", "missing", hint)
	} else if l.has("version") && l.pol.Version != Version {
		l.add(l.at("version"), "version", fmt.Sprintf("this program reads version %d, not %d", Version, l.pol.Version), hint)
	}
}

// decode fills v from n. tag is the struct tag of the field, whose enum, min,
// max and is constraints hold for the value or for each item of a list.
func (l *layer) decode(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	if n == nil {
		l.lose(path)
		return
	}
	if n.kind == scalarNode && n.plain && n.tag == "null" {
		hint := "remove the key to inherit, or write [] or {} for nothing"
		if n.value == "~" {
			hint = `quote the home directory: "~"`
		}
		l.add(n.pos, path, "has no value", hint)
		return
	}
	before := len(l.problems)
	switch v.Interface().(type) {
	case Path, Name, Size, Duration, Count:
		l.decodeScalar(n, v, path, tag)
	case Publish:
		if n.kind == scalarNode {
			l.decodeShort(n, v, path)
		} else {
			l.decodeKind(n, v, path, "")
		}
	default:
		l.decodeKind(n, v, path, tag)
	}
	// A value that was refused counts as not written; a struct or list that
	// holds one does count, so that only the mistake itself is reported.
	if n.kind != scalarNode || len(l.problems) == before {
		l.where[path] = n.pos
	}
}

// decodeShort reads the short form of a publish entry.
func (l *layer) decodeShort(n *node, v reflect.Value, path string) {
	what, hint := textValue(n)
	if what == "" {
		what, hint = checkValue("publish", n.value)
	}
	if what != "" {
		l.add(n.pos, path, what, hint)
		return
	}
	v.Set(reflect.ValueOf(shortPublish(n.value, n.pos)))
}

func (l *layer) decodeKind(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		l.decode(n, v.Elem(), path, tag)
	case reflect.Struct:
		if l.want(n, mapNode, path) {
			l.decodeStruct(n, v, path)
		}
	case reflect.Slice:
		if l.want(n, listNode, path) {
			l.decodeList(n, v, path, tag)
		}
	case reflect.Map:
		if l.want(n, mapNode, path) {
			l.decodeMap(n, v, path, tag)
		}
	default:
		l.decodeScalar(n, v, path, tag)
	}
}

// want reports a value of the wrong shape.
func (l *layer) want(n *node, k kind, path string) bool {
	if n.kind == k {
		return true
	}
	hint := ""
	switch {
	case k == listNode && n.kind == scalarNode:
		hint = "write [" + n.value + "]"
	case k == listNode:
		hint = `write a list: [a, b], or "- a" on a line of its own for each entry`
	case k == mapNode && path == "":
		hint = `a policy is a map of sections: "network:", "filesystem:" and so on`
	default:
		hint = `write keys with values: {key: value}, or "key: value" on a line of its own for each`
	}
	l.add(n.pos, path, fmt.Sprintf("want a %v, got a %v", k, n.kind), hint)
	return false
}

func (l *layer) decodeList(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	l.wantSome(n, path, tag)
	if len(n.kids) > maxItems {
		l.add(n.pos, path, fmt.Sprintf("has %d entries, more than the limit of %d", len(n.kids), maxItems), "use patterns")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.kids), len(n.kids)))
	for i, k := range n.kids {
		l.decode(k, v.Index(i), path+"["+strconv.Itoa(i)+"]", tag)
	}
}

func (l *layer) decodeMap(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	l.wantSome(n, path, tag)
	v.Set(reflect.MakeMap(v.Type()))
	for key, val := range l.entries(n, path) {
		p := join(path, key.value)
		if what, hint := checkValue(tag.Get("key"), key.value); what != "" {
			l.add(key.pos, p, what, hint)
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		l.decode(val, item, p, tag)
		v.SetMapIndex(reflect.ValueOf(key.value), item)
	}
}

// wantSome refuses an empty list where it would match nothing, although an
// absent one matches everything: the two look too much alike.
func (l *layer) wantSome(n *node, path string, tag reflect.StructTag) {
	if tag.Get("nonempty") != "" && len(n.kids) == 0 {
		l.add(n.pos, path, "is empty, so it matches nothing", "list what it matches, or remove the key")
	}
}

// entries yields the pairs of a map and refuses keys that are no plain words
// and keys that are there twice.
func (l *layer) entries(n *node, path string) func(func(*node, *node) bool) {
	return func(yield func(*node, *node) bool) {
		seen := map[string]Pos{}
		for i := 0; i+1 < len(n.kids); i += 2 {
			key, val := n.kids[i], n.kids[i+1]
			if key == nil || key.tag == "merge" {
				continue // reported while parsing
			}
			if what, hint := ambiguous(key); key.kind != scalarNode || what != "" {
				l.add(key.pos, path, "a key must be a word", cmp.Or(hint, "write one word before the colon"))
				continue
			}
			if first, dup := seen[key.value]; dup {
				l.add(key.pos, join(path, key.value), fmt.Sprintf("duplicate key, first on line %d", first.Line), "keep one of the two")
				continue
			}
			seen[key.value] = key.pos
			if !yield(key, val) {
				return
			}
		}
	}
}

func (l *layer) decodeStruct(n *node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	for key, val := range l.entries(n, path) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key.value })
		if i < 0 {
			l.unknown(key, join(path, key.value), fields)
			continue
		}
		l.decode(val, v.Field(fields[i].index), join(path, key.value), fields[i].tag)
	}
	if path != "" && len(n.kids) == 0 {
		l.hollow = append(l.hollow, path)
	}
	for _, f := range fields {
		if f.tag.Get("required") == "" || path == "" || hasKey(n, f.key) {
			continue
		}
		l.add(n.pos, join(path, f.key), "missing", "every entry needs it")
	}
	if p := v.FieldByName("Pos"); p.IsValid() && p.Type() == reflect.TypeFor[Pos]() {
		p.Set(reflect.ValueOf(n.pos))
	}
}

// checkHollow refuses maps without a key. "network: {}" reads like "no network"
// and would leave open all that was inherited.
func (l *layer) checkHollow() {
	for _, path := range l.hollow {
		if !l.around[path] {
			l.add(l.at(path), path, "is empty, which changes nothing", `remove the key to inherit, or write each list that is to allow nothing: "rules: []"`)
		}
	}
}

// unknown reports a key, with a suggestion while anybody would read it.
func (l *layer) unknown(key *node, path string, fields []field) {
	hint := ""
	if len(l.problems) < maxProblems {
		hint = keyHint(key.value, fields)
	}
	l.add(key.pos, path, "unknown key", hint)
}

func hasKey(n *node, key string) bool {
	for i := 0; i+1 < len(n.kids); i += 2 {
		if n.kids[i] != nil && n.kids[i].value == key {
			return true
		}
	}
	return false
}

// field is one key of a struct.
type field struct {
	key   string
	index int
	tag   reflect.StructTag
	typ   reflect.Type
}

// fieldsOf lists the keys that a file may hold.
func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		f := t.Field(i)
		if key := f.Tag.Get("yaml"); key != "" && key != "-" {
			fs = append(fs, field{key, i, f.Tag, f.Type})
		}
	}
	return fs
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

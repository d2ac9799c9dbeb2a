package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// fragmentKeys are the sections that a fragment may hold: what one purpose
// needs, and nothing that weakens a protection.
func fragmentKeys() []string {
	return []string{"version", "name", "description", "network", "credentials", "inference", "env", "filesystem", "assert"}
}

// enable decodes the fragments that a layer switches on. Each counts once, where
// it is first named.
func (ld *loader) enable(l *layer) error {
	for i, name := range l.pol.Enable {
		path := fmt.Sprintf("enable[%d]", i)
		if l.refused(path) || slices.ContainsFunc(ld.enabled, func(n Name) bool { return n.Text == name.Text }) {
			continue
		}
		data, err := ld.fragment(name.Text)
		var ps Problems
		switch {
		case errors.As(err, &ps):
			for _, p := range ps {
				l.add(l.at(path), path, fmt.Sprintf("%s: %s", name.Text, p.What), p.Hint)
			}
			continue
		case err != nil:
			return fmt.Errorf("%v: enable %s: %w", l.at(path), name.Text, err)
		}
		ld.enabled = append(ld.enabled, name)
		f := decodeFragment(name.Text, data)
		f.fragment = true
		ld.chain = append(ld.chain, f)
	}
	return nil
}

// fragment gives the text of a fragment. The mistake is the user's where there is
// none of that name.
func (ld *loader) fragment(name string) ([]byte, error) {
	if ld.o.Fragment != nil && slices.Contains(ld.o.Fragments, name) {
		return ld.o.Fragment(name)
	}
	hint := "hermes-wrap profiles lists them"
	if near := Nearest(name, ld.o.Fragments); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return nil, Problems{{What: "there is no such fragment", Hint: hint}}
}

// Nearest gives the built-in whose name is spelt most like one, or that has its
// last word: people remember "npm", not where it stands. "": none.
func Nearest(name string, all []string) string {
	if near := nearest(name, all); near != "" {
		return near
	}
	word := name[strings.LastIndexByte(name, '/')+1:]
	for _, f := range all {
		if strings.HasSuffix(f, "/"+word) {
			return f
		}
	}
	return ""
}

func decodeFragment(name string, data []byte) *layer {
	label := "builtin:" + name
	l := decodeFile(label, label, data)
	for key := range l.where {
		if key == "" || strings.ContainsAny(key, ".[") || slices.Contains(fragmentKeys(), key) {
			continue
		}
		l.add(l.at(key), key, "has no meaning in a fragment", "fragments hold "+strings.Join(fragmentKeys()[3:], ", "))
	}
	return l
}

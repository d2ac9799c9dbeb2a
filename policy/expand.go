package policy

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// expander gives paths and environment values their final form.
type expander struct {
	vars map[string]string
	// base is what a relative path starts from; empty refuses relative paths.
	base string
}

// layer expands everything in one layer and reports what cannot be.
func (e expander) layer(l *layer) {
	eachPath(reflect.ValueOf(&l.pol).Elem(), "", "", func(p *Path, path string, tag reflect.StructTag) {
		if path == "workspace.path" || p.Text == "" && !l.has(path) {
			return // workspace.path is expanded before there are variables
		}
		if l.refused(path) {
			return
		}
		out, what, hint := e.path(*p, tag.Get("is") != "no-glob")
		if what != "" {
			l.add(p.Pos, path, what, hint)
			return
		}
		*p = out
	})
	e.variables(l, "env.set.", l.pol.Env.Set)
	for _, name := range sortedKeys(l.pol.Supervise.Services) {
		e.variables(l, "supervise.services."+name+".env.", l.pol.Supervise.Services[name].Env)
	}
	for i, a := range l.pol.Assert {
		e.probe(l, fmt.Sprintf("assert[%d].allow", i), a.Allow)
		e.probe(l, fmt.Sprintf("assert[%d].deny", i), a.Deny)
	}
}

// variables expands the values of an environment in place.
func (e expander) variables(l *layer, path string, set map[string]string) {
	for _, k := range sortedKeys(set) {
		v, what, hint := e.text(set[k])
		if what != "" {
			l.add(l.at(path+k), path+k, what, hint)
		}
		set[k] = v
	}
}

// probe expands the paths of an assertion in place.
func (e expander) probe(l *layer, path string, p *Probe) {
	if p == nil {
		return
	}
	e.probePath(l, path+".read", &p.Read)
	e.probePath(l, path+".write", &p.Write)
	e.probePath(l, path+".exec", &p.Exec)
}

func (e expander) probePath(l *layer, path string, s *string) {
	if !l.has(path) {
		return
	}
	out, what, hint := e.path(Path{Text: *s}, false)
	if what != "" {
		l.add(l.at(path), path, what, hint)
		return
	}
	*s = out.Abs
}

// eachPath calls f for every Path below v.
func eachPath(v reflect.Value, path string, tag reflect.StructTag, f func(*Path, string, reflect.StructTag)) {
	if p, ok := v.Addr().Interface().(*Path); ok {
		f(p, path, tag)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, fd := range fieldsOf(v.Type()) {
			eachPath(v.Field(fd.index), join(path, fd.key), fd.tag, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachPath(v.Index(i), path+"["+strconv.Itoa(i)+"]", tag, f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachPath(v.Elem(), path, tag, f)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(v.MapIndex(k))
			eachPath(item, join(path, k.String()), tag, f)
			v.SetMapIndex(k, item)
		}
	}
}

// path expands one path. Variables stand at its start only, since their
// values are absolute.
func (e expander) path(p Path, glob bool) (out Path, what, hint string) {
	text, optional := strings.CutSuffix(p.Text, "?")
	p.Optional = optional
	e.base, text = climb(e.base, text)
	p.Glob = strings.Contains(text, "*")
	if what, hint := checkPathText(text, glob); what != "" {
		return p, what, hint
	}
	start, rest := "", text
	if text == "~" || strings.HasPrefix(text, "~/") {
		start, rest = "HOME", text[1:]
	} else if strings.HasPrefix(text, "${") {
		name, after, ok := strings.Cut(text[2:], "}")
		if !ok {
			return p, fmt.Sprintf("%q has an unclosed variable", p.Text), "close it with }"
		}
		start, rest = name, after
		if rest != "" && rest[0] != '/' {
			return p, fmt.Sprintf("%q goes on after a variable without a slash", p.Text), "write ${" + name + "}/" + rest
		}
	}
	if strings.Contains(rest, "$") {
		return p, fmt.Sprintf("%q has a variable that is not at its start", p.Text), "variables are written ${NAME} and begin a path"
	}
	abs, what, hint := e.root(p, start, rest)
	if what != "" {
		return p, what, hint
	}
	p.Abs = filepath.Clean(abs)
	return p, "", ""
}

// climb follows the ".." at the start of a relative path. The base is resolved
// first, as the kernel does it: behind a symlink the parent is another.
func climb(base, text string) (string, string) {
	for base != "" {
		rest, ok := strings.CutPrefix(text, "../")
		if !ok && text == ".." {
			rest, ok = ".", true
		}
		if !ok {
			return base, text
		}
		base, text = filepath.Dir(resolve(base)), rest
	}
	return base, text
}

// root puts the value of the variable, or the base, before the rest.
func (e expander) root(p Path, start, rest string) (abs, what, hint string) {
	prefix := ""
	switch {
	case start != "":
		v, what, hint := e.value(start)
		if what != "" {
			return "", what, hint
		}
		prefix = v
	case strings.HasPrefix(rest, "/"):
	case e.base == "":
		return "", fmt.Sprintf("%q is a relative path", p.Text), "write /…, ~/… or ${WORKSPACE}/" + strings.TrimPrefix(rest, "./")
	default:
		prefix = e.base + "/"
	}
	if p.Glob {
		prefix = escapeGlob(prefix)
	}
	return prefix + rest, "", ""
}

func (e expander) value(name string) (v, what, hint string) {
	if v, ok := e.vars[name]; ok {
		return v, "", ""
	}
	if slices.Contains(varNames(), name) {
		return "", fmt.Sprintf("variable %q has no value", name), "set it in the environment"
	}
	if near := nearest(strings.ToLower(name), lower(varNames())); near != "" {
		return "", fmt.Sprintf("unknown variable %q", name), fmt.Sprintf("did you mean ${%s}?", strings.ToUpper(near))
	}
	return "", fmt.Sprintf("unknown variable %q", name), "known: " + strings.Join(varNames(), ", ")
}

// varNames lists the variables that a path may start with.
func varNames() []string {
	return []string{"WORKSPACE", "HOME", "HERMES_HOME", "TMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}
}

func lower(ss []string) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = strings.ToLower(s)
	}
	return out
}

func checkPathText(text string, glob bool) (what, hint string) {
	switch {
	case text == "":
		return "the path is empty", "write an absolute path"
	case len(text) > 4095:
		return "the path is longer than 4095 bytes", "name a directory above it"
	case strings.HasPrefix(text, "~") && text != "~" && !strings.HasPrefix(text, "~/"):
		return fmt.Sprintf("%q names another user's home", text), "write the absolute path"
	case strings.HasPrefix(text, "$") && !strings.HasPrefix(text, "${"):
		return fmt.Sprintf("%q has a variable without braces", text), "write ${NAME}"
	case strings.Contains(text, "*") && !glob:
		return fmt.Sprintf("%q has a wildcard where one path is meant", text), "name the path"
	}
	for _, seg := range strings.Split(text, "/") {
		if seg == ".." {
			return fmt.Sprintf("%q climbs with \"..\"", text), "write the path without it: behind a symlink it means something else"
		}
	}
	if strings.Contains(text, "?") {
		return fmt.Sprintf("%q has a question mark inside", text), `a "?" may only end a path: it may then be missing`
	}
	return checkGlob(strings.NewReplacer("${", "", "}", "").Replace(text))
}

// text expands ${NAME} anywhere in an environment value.
func (e expander) text(s string) (out, what, hint string) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), "", ""
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", "has an unclosed variable", "close it with }"
		}
		v, what, hint := e.value(name)
		if what != "" {
			return "", what, hint
		}
		b.WriteString(v)
		s = rest
	}
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`).Replace(s)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

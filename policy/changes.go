package policy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Changes lists the keys in which two resolved policies differ in what they
// mean, sorted: "network.rules", "name"; of credentials, what differs in each
// one, "credentials.github.hosts", or its name where b has none. Where something was written, and how a path
// was spelt, does not count.
func Changes(a, b Policy) []string {
	out := []string{} // JSON says [] then
	eachKey(reflect.ValueOf(a), reflect.ValueOf(b), "", func(path string, x, y reflect.Value) {
		if path == "credentials" {
			out = append(out, credentialChanges(a.Credentials, b.Credentials)...)
		} else if !sameMeaning(x, y) {
			out = append(out, path)
		}
	})
	slices.Sort(out)
	return out
}

// eachKey visits the keys of the sections, and those of the policy itself.
func eachKey(a, b reflect.Value, prefix string, visit func(path string, a, b reflect.Value)) {
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Struct && x.Type() != reflect.TypeFor[Path]() && prefix == "" {
			eachKey(x, y, name+".", visit)
			continue
		}
		visit(prefix+name, x, y)
	}
}

func credentialChanges(a, b map[string]Credential) (out []string) {
	names := map[string]bool{}
	for name := range maps.Keys(a) {
		names[name] = true
	}
	for name := range maps.Keys(b) {
		names[name] = true
	}
	for name := range names {
		if _, kept := b[name]; !kept {
			out = append(out, "credentials."+name)
			continue
		}
		eachKey(reflect.ValueOf(a[name]), reflect.ValueOf(b[name]), "credentials."+name+".", func(path string, x, y reflect.Value) {
			if !sameMeaning(x, y) {
				out = append(out, path)
			}
		})
	}
	return out
}

// sameMeaning compares, positions left out. An empty list and none are the
// same: where they differ, another field tells.
func sameMeaning(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		return sameStruct(a, b)
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameMeaning(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for _, k := range a.MapKeys() {
			if v := b.MapIndex(k); !v.IsValid() || !sameMeaning(a.MapIndex(k), v) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return sameMeaning(a.Elem(), b.Elem())
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

func sameStruct(a, b reflect.Value) bool {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		spelling := a.Type() == reflect.TypeFor[Path]() && f.Name == "Text"
		if f.Type == reflect.TypeFor[Pos]() || spelling {
			continue
		}
		if !sameMeaning(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

// Live tells whether a change of a key, as Changes gives it, can be applied to a
// run that is under way. Everything else is fixed when the command starts.
func Live(key string) bool {
	switch key {
	case "version", "description", "extends", "enable", "assert",
		"network.rules", "network.deny", "network.private", "network.hosts", "network.remove", "network.upstream", "network.budget",
		"inference.routes", "inference.budget", "inference.prices", "inference.hard_stop":
		return true
	}
	of, ok := strings.CutPrefix(key, "credentials.")
	return ok && of != "" && liveCredential(of[strings.LastIndexByte(of, '.')+1:])
}

// liveCredential judges the last word of a credential's key: a field of it, or
// the end of its name, where it is there no more.
func liveCredential(word string) bool {
	switch word {
	case "source", "optional", "attach", "header", "prefix", "user", "query", "json", "aws", "oauth", "hosts", "refresh":
		return true
	}
	field := false
	none := reflect.ValueOf(Credential{})
	eachKey(none, none, "credentials.", func(path string, _, _ reflect.Value) {
		field = field || path == "credentials."+word
	})
	return !field
}

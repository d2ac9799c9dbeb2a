package profiles

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed fragments/*/*.yaml
var fragments embed.FS

// variable is a place in a fragment that the user's environment fills:
// "@NAME@", or with a default "@NAME:VALUE@".
var variable = lazy(`@([A-Z][A-Z0-9_]*)(?::([a-z0-9.-]+))?@`)

// filling is what may fill it: a host, a port, the name of a region.
var filling = lazy(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// lazy compiles a pattern when it is first needed: every launch starts this
// program several times, and most need none.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Fragments lists the built-in fragments, "KIND/NAME", in alphabetical order.
func Fragments() []string {
	found, err := fs.Glob(fragments, "fragments/*/*"+suffix)
	if err != nil {
		return nil // the pattern is a constant and well formed
	}
	for i, file := range found {
		found[i] = strings.TrimSuffix(strings.TrimPrefix(file, "fragments/"), suffix)
	}
	slices.Sort(found)
	return found
}

// Fragment gives the text of a fragment as it is stored, with places for the
// environment.
func Fragment(name string) ([]byte, bool) {
	if !slices.Contains(Fragments(), name) {
		return nil, false
	}
	text, err := fragments.ReadFile("fragments/" + name + suffix)
	return text, err == nil
}

// Variables lists the variables that must be set for a fragment.
func Variables(text []byte) (names []string) {
	for _, m := range variable().FindAllSubmatch(text, -1) {
		if name := string(m[1]); len(m[2]) == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Fill puts the environment into a fragment. A URL stands for its host. What is
// neither a host nor a number is refused: it could say something else in YAML.
func Fill(text []byte, getenv func(string) string) ([]byte, error) {
	var failed error
	out := variable().ReplaceAllFunc(text, func(place []byte) []byte {
		m := variable().FindSubmatch(place)
		name, value := string(m[1]), getenv(string(m[1]))
		if value == "" {
			value = string(m[2])
		}
		value = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(value, "https://"), "/"))
		switch {
		case failed != nil:
		case value == "":
			failed = fmt.Errorf("it needs %s, which is not set", name)
		case !filling().MatchString(value):
			failed = fmt.Errorf("%s is not a plain host or number", name)
		}
		return []byte(value)
	})
	return out, failed
}

// Summary gives the description of a profile or fragment, one line.
func Summary(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(line, "description: "); ok {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

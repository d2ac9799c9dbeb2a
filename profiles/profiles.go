// Package profiles holds the policies and fragments that are built into
// hermes-wrap. They are plain policy files; "builtin:NAME" in extends and --policy
// NAME find the policies here, "enable" the fragments.
package profiles

import (
	"embed"
	"io/fs"
	"strings"
)

const suffix = ".yaml"

//go:embed *.yaml
var files embed.FS

// Lookup gives the text of the built-in policy of that name, without ".yaml".
func Lookup(name string) ([]byte, bool) {
	if alias, ok := aliases()[name]; ok {
		name = alias
	}
	if strings.Contains(name, "/") {
		return nil, false
	}
	text, err := files.ReadFile(name + suffix)
	return text, err == nil
}

// aliases are further names of policies.
func aliases() map[string]string {
	return map[string]string{"hermes-ci": "ci", "hermes-offline": "offline"}
}

// Names lists the built-in policies in alphabetical order.
func Names() []string {
	found, err := fs.Glob(files, "*"+suffix)
	if err != nil {
		return nil // the pattern is a constant and well formed
	}
	names := make([]string, len(found))
	for i, file := range found {
		names[i] = strings.TrimSuffix(file, suffix)
	}
	return names
}

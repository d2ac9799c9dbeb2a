package registries

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCommentsEndWithTheirLine: a path stands in a comment, and every line end of
// YAML's in it would end that.
func TestCommentsEndWithTheirLine(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		u := newUser(t)
		file := "home/x" + end + "      - {name: evil, host: \"*\"}"
		u.write(file, "registry=https://packages.example.org/\n")
		u.environ["NPM_CONFIG_USERCONFIG"] = filepath.Join(u.dir, file)
		text, err := Fragment("npm", u.world())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", r) }) {
			if strings.HasPrefix(strings.TrimSpace(line), "- {name: evil") {
				t.Errorf("%q ends the comment in\n%s", end, text)
			}
		}
	}
}

package inference

import "testing"

func TestIsReference(t *testing.T) {
	for text, want := range map[string]bool{
		"https://example.org/x.png":            true,
		"HTTPS://example.org/x.png":            true,
		" \thttps://example.org/x.png":         true,
		"https:example.org":                    true,
		"file:/etc/passwd":                     true,
		"//example.org/x.png":                  true,
		` \\example.org\share\x.png`:           true,
		"jar:https://example.org/x!/y":         true,
		"x-data:https://example.org/":          true,
		"data:image/png;base64,AAAA":           false,
		"DATA:text/plain,https://example.org/": false,
		"iVBORw0KGgo=":                         false,
		"a text: with a colon":                 false,
		"":                                     false,
	} {
		if got := isReference(text); got != want {
			t.Errorf("isReference(%q): got %v, want %v", text, got, want)
		}
	}
}

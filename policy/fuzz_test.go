package policy

import (
	"bytes"
	"testing"
)

// FuzzParse: no input panics; what decodes comes back the same from JSON, and
// every mistake has a place in the file and a remedy.
func FuzzParse(f *testing.F) {
	f.Add([]byte(baseText))
	f.Add([]byte("version: 1\nnetwork: {rules: [{name: a, host: \"*.a.org\", allow: [{methods: [GET]}]}]}\n"))
	vars := Options{Cwd: "/work", Home: "/home/u"}.variables("/work")
	f.Fuzz(func(t *testing.T, data []byte) {
		l := decodeFile("p.yaml", "p.yaml", data)
		expander{vars: vars}.layer(l)
		for _, p := range l.problems {
			if p.Pos.File != "p.yaml" || p.Pos.Line < 1 || p.Pos.Col < 1 || p.What == "" || p.Hint == "" {
				t.Fatalf("got %+v, want a place, a reason and a remedy", p)
			}
		}
		if len(l.problems) > 0 {
			return
		}
		p, ps := merge(Policy{}, l, true)
		if len(ps) > 0 {
			return
		}
		p = p.complete(vars)
		p.Digest = p.digest()
		back, err := FromJSON(p.JSON())
		if err != nil {
			t.Fatalf("got %v, want the policy back", err)
		}
		if !bytes.Equal(back.JSON(), p.JSON()) {
			t.Fatalf("got %s, want %s", back.JSON(), p.JSON())
		}
	})
}

package readers

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The readers read, and do not all read the same: what they are asked for could
// otherwise be answered by anything.
func TestReadersDiffer(t *testing.T) {
	for _, r := range URLs(t) {
		u := r.URL(t, "http://api.example.org:8080/a%62?q=1")
		if !u.Accepted || u.Host != "api.example.org" || u.Port != 8080 || u.Query != "q=1" || string(u.Decoded) != "/ab" {
			t.Errorf("%s: got %+v", r.Name, u)
		}
	}
	for name, text := range map[string]string{
		"an address as a number": "http://2130706433/", "a backslash": `http://a.example\@b.example/`, "dots": "http://a.example/x/../y",
	} {
		seen := map[string]bool{}
		for _, r := range URLs(t) {
			u := r.URL(t, text)
			seen[u.Host+u.Path] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s: got one reading %v, want several", name, seen)
		}
	}
}

func TestFormsAgree(t *testing.T) {
	const text = ` {"b":[1,1.0,-0,1e400,123456789012345678901234567890,null,true],"a":"\u00e9\ud83d\ude00","":{}} `
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	for _, r := range JSONs(t) {
		got, ok := r.JSON(t, text)
		var flat bytes.Buffer
		if err := json.Compact(&flat, []byte(got)); !ok || err != nil || flat.String() != Form(v) {
			t.Errorf("%s: got %v %s, want %s", r.Name, ok, got, Form(v))
		}
		if got, ok := r.JSON(t, `{"a":1,"a":2}`); !ok || got == Form(map[string]any{"a": json.Number("1")}) {
			t.Errorf("%s: got %s, want the last of two", r.Name, got)
		}
		for _, bad := range []string{"NaN", "{", "", "[1,]", "'a'"} {
			if form, ok := r.JSON(t, bad); ok {
				t.Errorf("%s: %q: got %s, want a refusal", r.Name, bad, form)
			}
		}
	}
}

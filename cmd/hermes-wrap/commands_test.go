package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// What somebody chose shows in JSON as it is, and does nothing to a terminal.
func TestPlainJSON(t *testing.T) {
	want := map[string]string{"what": "\x1b[2J \u009b2J \u202efdp \x7f \U000e0041 <&> \u00e9 \\", "k\u009b": "line\nline"}
	b, err := plainJSON(want)
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexAny(string(b), "\x1b\u009b\u202e\x7f\U000e0041"); i >= 0 {
		t.Errorf("got %q, want no control or mark in it", b)
	}
	var got map[string]string
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("got %q: %v", b, err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("got %q, want %q", got[k], v)
		}
	}
}

package netpolicy

import (
	"runtime"
	"strings"
	"testing"
)

// TestLongTextsAreJudgedInLittle: an argument may have millions of segments, in many
// readings; judging it takes no more than a few times its length.
func TestLongTextsAreJudgedInLittle(t *testing.T) {
	g, err := parseTextGlob("/home/*/.ssh/**")
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	for _, c := range []struct {
		name, unit string
		touches    bool
	}{
		{"control: words", "some words and more of them ", false},
		{"control: some slashes", strings.Repeat("word ", 20) + "/", false},
		{"slashes", "a/", true},
		{"backslashes", `a\`, true},
		{"escaped slashes", "a%2F", true},
		{"escaped twice", "a%252F", true},
		{"invisible", "\u200ba/", true},
		{"NUL", "a/\x00", true},
	} {
		text := strings.Repeat(c.unit, size/len(c.unit))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		touches, fits := g.touches(text), g.fits(text)
		runtime.ReadMemStats(&after)
		if touches != c.touches || fits {
			t.Errorf("%s: got touches %v and fits %v, want %v and false", c.name, touches, fits, c.touches)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 20*size {
			t.Errorf("%s: got %d MiB for a text of %d", c.name, took>>20, size>>20)
		}
	}
	for _, text := range []string{"/home/a/.ssh/id", `\HOME\a\.ssh`, "/home/a%2F.ssh/x", "/home/a/b/../.ssh"} {
		if !g.touches(text) {
			t.Errorf("control: %q does not touch", text)
		}
	}
}

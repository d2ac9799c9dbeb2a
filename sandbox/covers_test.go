package sandbox

import (
	"strings"
	"testing"
)

func TestParseMountPoints(t *testing.T) {
	text := `22 1 0:21 / / rw - tmpfs tmpfs rw
23 22 8:1 /home/u/my\040project /home/u/my\040project rw,nosuid - ext4 /dev/sda1 rw
24 23 8:1 /x /home/u/back\134slash ro - ext4 /dev/sda1 rw
short line
`
	got, err := parseMountPoints(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/", "/home/u/my project", `/home/u/back\slash`} {
		if !got[want] {
			t.Errorf("parseMountPoints misses %q, got %v", want, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("got %d mount points, want 3", len(got))
	}
}

func TestUnescapeMountKeepsOddText(t *testing.T) {
	for in, want := range map[string]string{`a\0`: `a\0`, `\999`: `\999`, `\011x`: "\tx", ``: ``} {
		if got := unescapeMount(in); got != want {
			t.Errorf("unescapeMount(%q) = %q, want %q", in, got, want)
		}
	}
}

package main

import (
	"bytes"
	"testing"
)

func TestParseKeys(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
		ok   bool
	}{
		{"ctrl-p,ctrl-q", "\x10\x11", true},
		{"ctrl-a,d", "\x01d", true},
		{"CTRL-]", "\x1d", true},
		{"ctrl-@", "\x00", true},
		{"", "", false},
		{"ctrl-", "", false},
		{"ctrl-1", "", false},
		{"ab", "", false},
		{"a,,b", "", false},
		{"ä", "", false},
	} {
		got, err := parseKeys(c.in)
		if string(got) != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %q, %v, want %q", c.in, got, err, c.want)
		}
	}
}

// Nothing that is typed is lost but the keys themselves, however it comes in pieces.
func TestKeyFilter(t *testing.T) {
	for _, c := range []struct {
		keys, typed, on string
		leave           bool
	}{
		{"\x10\x11", "ls\r", "ls\r", false},
		{"\x10\x11", "a\x10\x11b", "a", true},
		{"\x10\x11", "a\x10b", "a\x10b", false},
		{"\x10\x11", "\x10\x10\x11", "\x10", true},
		{"aab", "aaab", "a", true},
		{"aab", "aaac", "aaac", false},
		{"abac", "ababac", "ab", true},
		{"q", "xq", "x", true},
	} {
		for size := 1; size <= len(c.typed); size++ {
			k := keyFilter{keys: []byte(c.keys)}
			var on []byte
			left := false
			for rest := []byte(c.typed); len(rest) > 0 && !left; {
				n := min(size, len(rest))
				var more []byte
				more, left = k.pass(rest[:n])
				on, rest = append(on, more...), rest[n:]
			}
			if !bytes.Equal(on, []byte(c.on)) || left != c.leave {
				t.Errorf("keys %q, typed %q by %d: got %q, %v, want %q, %v", c.keys, c.typed, size, on, left, c.on, c.leave)
			}
		}
	}
}

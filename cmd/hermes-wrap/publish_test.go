package main

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func TestParsePublish(t *testing.T) {
	cases := []struct {
		text string
		want sandbox.Forward
		ok   bool
	}{
		{"8080:80", sandbox.Forward{Listen: "127.0.0.1:8080", Port: 80}, true},
		{"127.0.0.2:8080:80", sandbox.Forward{Listen: "127.0.0.2:8080", Port: 80}, true},
		{"[::1]:8080:80", sandbox.Forward{Listen: "[::1]:8080", Port: 80}, true},
		{"0.0.0.0:8080:80", sandbox.Forward{}, false},
		{"[::]:8080:80", sandbox.Forward{}, false},
		{"192.0.2.1:8080:80", sandbox.Forward{}, false},
		{"localhost:8080:80", sandbox.Forward{}, false},
		{":8080:80", sandbox.Forward{}, false},
		{"80", sandbox.Forward{}, false},
		{"8080:", sandbox.Forward{}, false},
		{"8080:0", sandbox.Forward{}, false},
		{"8080:65536", sandbox.Forward{}, false},
		{"8080:-1", sandbox.Forward{}, false},
		{"x:80", sandbox.Forward{}, false},
		{"99999:80", sandbox.Forward{}, false},
		{"", sandbox.Forward{}, false},
	}
	for _, c := range cases {
		got, err := parsePublish(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %+v, %v, want %+v, accepted %v", c.text, got, err, c.want, c.ok)
		}
	}
}

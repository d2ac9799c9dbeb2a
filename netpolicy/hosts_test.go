package netpolicy

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestHosts(t *testing.T) {
	hosts, err := ParseHosts([]policy.Name{{Text: "api.example.org"}, {Text: "*.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"api.example.org": true, "a.example.com": true,
		"example.org": false, "example.com": false, "a.b.example.com": false, "api.example.org.evil.example.net": false,
	} {
		h, err := ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := hosts.Match(h); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := (Hosts{}).Match(Host{}); got {
		t.Error("zero value: got a match, want none")
	}
	if _, err := ParseHosts([]policy.Name{{Text: "*"}}); err == nil {
		t.Error("bare wildcard: got no error, want one")
	}
}

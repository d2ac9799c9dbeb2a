package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	cases := []struct {
		name     string
		mustWork bool
		in       string
		good     bool
		want     string
	}{
		{"pass", true, `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p"}`, true, "1 passed, 0 failed"},
		{"fail shows its output", false, `{"Action":"output","Package":"p","Test":"A","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`, false, "why\n"},
		{"fail counts once", false, `{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`, false, "0 passed, 1 failed"},
		{"skip", false, `{"Action":"pass","Package":"p","Test":"B"}
{"Action":"skip","Package":"p","Test":"A"}`, true, "1 skipped\n1 passed, 0 failed"},
		{"skip where all must work", true, `{"Action":"pass","Package":"p","Test":"B"}
{"Action":"skip","Package":"p","Test":"A"}`, false, "1 passed, 1 failed"},
		{"panic outside a test", false, `{"Action":"pass","Package":"p","Test":"B"}
{"Action":"output","Package":"p","Output":"panic: x\n"}
{"Action":"fail","Package":"p"}`, false, "panic: x\n"},
		{"build", false, `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`, false, "undefined"},
		{"nothing at all", false, "", false, "0 passed, 0 failed"},
		{"words of the tool", false, "go: no such thing\n", false, "go: no such thing\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			tal := tally{out: &out, mustWork: c.mustWork}
			if err := tal.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			tal.close()
			if tal.good() != c.good {
				t.Errorf("good: got %v, want %v", tal.good(), c.good)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("got %q, want %q in it", out.String(), c.want)
			}
		})
	}
}

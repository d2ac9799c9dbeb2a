package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func engineFor(t *testing.T, rules ...policy.Rule) *netpolicy.Engine {
	t.Helper()
	e, err := netpolicy.Compile(policy.Network{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What the launch set up bounds what a reload can bring.
func TestReloadNeedsWhatTheLaunchSetUp(t *testing.T) {
	tcp := func(port int) policy.Rule {
		return policy.Rule{Name: "t", Host: "t.example.org", Protocol: policy.ProtocolTCP, Ports: []int{port}}
	}
	web := policy.Rule{Name: "w", Host: "w.example.org"}
	cases := []struct {
		name       string
		inspects   bool
		uncaptured bool
		at, then   policy.Rule
		want       string
	}{
		{"control: the same", true, false, web, web, ""},
		{"the first inspected host", false, false, tcp(5432), web, "nothing was inspected at launch"},
		{"no inspected host any more", true, false, web, tcp(5432), ""},
		{"another port, all are captured", false, false, tcp(5432), tcp(5433), ""},
		{"another port, none is captured", false, true, tcp(5432), tcp(5433), "ports 5433 are not captured"},
		{"the same port, none is captured", false, true, tcp(5432), tcp(5432), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := &launch{prep: prepared{engine: engineFor(t, c.at), plan: sandbox.Plan{Inspect: c.inspects}}}
			l.uncaptured.Store(c.uncaptured)
			r := &reloader{launch: l}
			got := strings.Join(r.unserved(engineFor(t, c.then)), "; ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("static: got %q, want %q", got, c.want)
			}
		})
	}
}

// A reload before the proxy serves changes nothing.
func TestReloadWhileStarting(t *testing.T) {
	r := &reloader{launch: &launch{}, px: newProxyClient()}
	if _, _, err := r.apply(); !errors.Is(err, errStarting) {
		t.Errorf("got %v, want %v", err, errStarting)
	}
}

// The answer names each mistake and each static key, within what a packet holds.
func TestAnswerOfAFailedReload(t *testing.T) {
	var many policy.Problems
	for range 10 * controlProblems {
		many = append(many, policy.Problem{Path: "network.rules[0]", What: "is wrong"})
	}
	var a controlAnswer
	a.failed(many)
	if len(a.Problems) != controlProblems || a.Error == "" || a.Reload != nil {
		t.Errorf("mistakes: got %d and %q, want %d and an error", len(a.Problems), a.Error, controlProblems)
	}
	a = controlAnswer{}
	a.failed(&staticError{[]string{"env.set"}})
	if len(a.Static) != 1 || !strings.Contains(a.Error, "static sections changed: env.set") {
		t.Errorf("static: got %q and %q", a.Static, a.Error)
	}
	a = controlAnswer{}
	if a.failed(nil); a.Error != "" {
		t.Errorf("no error: got %q", a.Error)
	}
}

// While the command may have the terminal raw, lines end so that the next one
// begins at the left.
func TestInterject(t *testing.T) {
	var b bytes.Buffer
	voice{w: &b}.interject().note("two\nlines")
	if got, want := b.String(), "hermes-wrap: note: two\r\nhermes-wrap: note: lines\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

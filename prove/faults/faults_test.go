package faults

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

func testWorkshop(t *testing.T) *workshop {
	t.Helper()
	bin := os.Getenv("HERMES_WRAP_BIN")
	harness.Require(t, bin != "", "HERMES_WRAP_BIN, the binary to test")
	s, err := newWorkshop(t.Context(), report.Options{Bin: bin, User: os.Getenv("HERMES_TEST_USER")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// TestRefusals are faults that once went wrong.
func TestRefusals(t *testing.T) {
	s := testWorkshop(t)
	w, err := s.newWorld("w", strictPolicy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	_, full, err := w.baseline(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []fault{
		{role: "starter", call: "prctl", n: 27, kind: "EPERM", action: "error=1"},     // capabilities stayed in the bounding set
		{role: "child", call: "fcntl", n: 2, kind: "EMFILE", action: "error=24"},      // no remedy
		{role: "child", call: "dup3", n: 13, kind: "EMFILE", action: "error=24"},      // libcontainer's panic
		{role: "forked", call: "ioctl", n: 11, kind: "EPERM", action: "error=1"},      // the guard's caller waited for ever
		{role: "launcher", call: "mkdirat", n: 2, kind: "ENOSPC", action: "error=28"}, // no step
		{role: "launcher", call: "mkdirat", n: 4, kind: "ENOSPC", action: "error=28"}, // left the run's directory behind
		{role: "init", call: "eventfd2", n: 1, kind: "EMFILE", action: "error=24"},    // a Go trace
		{role: "starter", call: "landlock_restrict_self", n: 1, action: "value=0"},    // held so far
		{role: "starter", call: "capset", n: 1, kind: "no effect", action: "value=0"}, // held so far
		{role: "launcher", call: "getsockname", n: 2, kind: "EIO", action: "error=5"}, // a panic
		{role: "launcher", call: "*", n: 900, kind: "killed", action: "kill"},         // held so far
	} {
		r, hit, err := w.try(t.Context(), f, full)
		if err != nil {
			t.Fatal(err)
		}
		if !hit || r.wrong != "" {
			t.Errorf("%s: reached %v: %s\n%s", f, hit, r.wrong, r.err)
		}
	}
}

// TestRefusalsOfProxy are those of a launch whose proxy ends other connections.
func TestRefusalsOfProxy(t *testing.T) {
	s := testWorkshop(t)
	p, err := newPeers()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	w, err := s.netWorld("w", p, p.short())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	_, full, err := w.baseline(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	// The launcher closed what the stage waited at while it read from it: both
	// waited for ever.
	f := fault{role: "proxy", call: "sendmsg", n: 1, kind: "ENOMEM", action: "error=12"}
	for range 3 {
		r, hit, err := w.try(t.Context(), f, full)
		if err != nil {
			t.Fatal(err)
		}
		if !hit || r.wrong != "" || r.step != "proxy" {
			t.Fatalf("%s: reached %v, step %q: %s\n%s", f, hit, r.step, r.wrong, r.err)
		}
	}
}

// What the seed decides, it decides alone, and the sample that there is time for
// holds one of each before two of any.
func TestInjectionsComeInRounds(t *testing.T) {
	var calls []fault
	for n := range 40 {
		for _, call := range []string{"openat", "read", "socket"} {
			calls = append(calls, fault{role: "launcher", call: call, n: n + 1}, fault{role: "proxy", call: call, n: n + 1})
		}
	}
	list := injections(calls, 7)
	if !slices.Equal(list, injections(calls, 7)) {
		t.Error("the same seed gave another list")
	}
	if slices.Equal(list, injections(calls, 8)) {
		t.Error("another seed gave the same list")
	}
	seen := map[[3]string]int{}
	for i, f := range list {
		key := [3]string{f.role, f.call, f.kind}
		if seen[key]++; i > 0 && f.rank < list[i-1].rank || seen[key] != f.rank+1 {
			t.Fatalf("%d: %s comes as number %d, after one of rank %d", i, f, seen[key], list[max(0, i-1)].rank)
		}
	}
}

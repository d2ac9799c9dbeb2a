package faults

import (
	"context"
	"os"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestRefusals are faults that once went wrong.
func TestRefusals(t *testing.T) {
	bin := os.Getenv("HERMES_WRAP_BIN")
	harness.Require(t, bin != "", "HERMES_WRAP_BIN, the binary to test")
	s, err := newWorkshop(t.Context(), report.Options{Bin: bin, User: os.Getenv("HERMES_TEST_USER")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
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

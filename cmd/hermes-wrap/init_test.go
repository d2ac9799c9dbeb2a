package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// initBudget is what a package of ours may allocate before main: every launch
// starts this program four times, and pays for it as often in time and memory.
const initBudget = 64 << 10

// TestInitIsSmall: patterns and tables are made when they are first needed.
func TestInitIsSmall(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line := regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, (\d+) allocs$`)
	seen := map[string]bool{}
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		name, ours := strings.CutPrefix(m[1], "github.com/hermes-wrap/hermes-wrap/")
		if !ours {
			continue
		}
		seen[name] = true
		if bytes, err := strconv.Atoi(m[2]); err != nil || bytes > initBudget {
			t.Errorf("%s: got %s bytes in %s allocations, want %d bytes at most", name, m[2], m[3], initBudget)
		}
	}
	if !seen["sandbox"] {
		t.Errorf("got no line for sandbox, which has to initialise something, in:\n%s", out)
	}
}

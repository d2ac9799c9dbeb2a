package hermeswrap_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink  = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	stepDef = regexp.MustCompile(`Step\s*=\s*"([^"]+)"`)
)

// documents are the pages that the repository ships.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "testdata/agent/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range documents(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %q: got %v, want a file", page, m[1], err)
			}
		}
	}
}

func TestLaunchPageNamesEveryStep(t *testing.T) {
	steps, err := os.ReadFile("sandbox/steps.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/launch.md")
	if err != nil {
		t.Fatal(err)
	}
	names := stepDef.FindAllStringSubmatch(string(steps), -1)
	if len(names) == 0 {
		t.Fatal("steps: got none, want some")
	}
	for _, m := range names {
		if !strings.Contains(string(page), "| `"+m[1]+"` |") {
			t.Errorf("docs/launch.md: got no row for the step %q", m[1])
		}
	}
}

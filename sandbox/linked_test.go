package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// What a protected directory names by a symlink is obeyed like a file in it.
func TestProtectFollowsTheLinksInside(t *testing.T) {
	hooks, scripts := "ws/.git/hooks", "ws/scripts"
	cases := []struct {
		name   string
		link   string   // what .git/hooks/pre-commit leads to
		covers []string // beside .git/hooks itself
		guard  []string
	}{
		{"no link", "", nil, nil},
		{"a file", "-> ../../scripts/check", []string{"pin ws/scripts", "protect ws/scripts/check"}, []string{"ws/scripts/check"}},
		{"a directory", "-> ../../scripts", []string{"protect ws/scripts"}, []string{"ws/scripts"}},
		{"through a link", "-> ../../alias/check", []string{"pin ws/scripts", "protect ws/scripts/check"}, []string{"ws/alias", "ws/scripts/check"}},
		{"nothing yet", "-> ../../scripts/new", []string{"pin ws/scripts"}, []string{"ws/scripts/new"}},
		{"a neighbour", "-> pre-push", nil, nil},
		{"what holds the directory", "-> ../..", nil, nil},
		{"outside of what is writable", "-> $T/other/check", nil, nil},
		{"a loop", "-> pre-commit", nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{
				"bin/tool": "x", hooks + "/pre-push": "#!x", scripts + "/check": "#!x", "other/check": "#!x", "ws/alias": "-> scripts",
			}
			if c.link != "" {
				files[hooks+"/pre-commit"] = c.link
			}
			dir := layout(t, files)
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Filesystem.Protect = at(dir, hooks)
			plan, err := planned(dir, p, func(h *Host) { h.Cwd = filepath.Join(dir, "ws") })
			if err != nil {
				t.Fatal(err)
			}
			var covers []string
			for _, e := range entriesOf(plan, dir, KindPin, KindProtect) {
				if e != "pin ws/.git" && e != "protect "+hooks {
					covers = append(covers, e)
				}
			}
			if diff := cmp.Diff(c.covers, covers); diff != "" {
				t.Errorf("covers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{hooks}, c.guard...), guardedNames(plan, dir)); diff != "" {
				t.Errorf("guarded (-want +got):\n%s", diff)
			}
		})
	}
}

// A file in a protected directory is a protected file: another name of it would
// pass the protection.
func TestProtectRefusesHardLinksInside(t *testing.T) {
	for name, file := range map[string]string{"at the top": "tasks.json", "further down": "a/b/tasks.json"} {
		t.Run(name, func(t *testing.T) {
			inside := filepath.Join("ws/.vscode", file)
			dir := layout(t, map[string]string{"bin/tool": "x", inside: "{}"})
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Filesystem.Protect = at(dir, "ws/.vscode")
			run := func() error {
				_, err := planned(dir, p, func(h *Host) { h.Cwd = filepath.Join(dir, "ws") })
				return err
			}
			if err := run(); err != nil {
				t.Fatalf("one name: %v", err)
			}
			if err := os.Link(filepath.Join(dir, inside), filepath.Join(dir, "ws/alias")); err != nil {
				t.Fatal(err)
			}
			if err := run(); err == nil || !strings.Contains(err.Error(), "2 hard links") {
				t.Errorf("two names: got %v, want a refusal for 2 hard links", err)
			}
		})
	}
}

// What cannot be looked into for want of descriptors must not be taken for empty:
// what is hidden or protected there would be open.
func TestWantOfDescriptorsIsNotEmptiness(t *testing.T) {
	dir := layout(t, map[string]string{"hooks/pre-commit": "-> ../scripts/check", "scripts/check": "x"})
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := expand(closed+"/*", true); err != nil {
		t.Errorf("a directory that nobody may read: got %v, want nothing found", err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	budget := linkEntries
	found, globErr := expand(dir+"/scripts/*", true)
	links, linkErr := linksBelow(dir+"/hooks", linkDepth, &budget)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(globErr, unix.EMFILE) {
		t.Errorf("a pattern: got %q, %v, want %v", found, globErr, unix.EMFILE)
	}
	if !errors.Is(linkErr, unix.EMFILE) {
		t.Errorf("links: got %v, %v, want %v", links, linkErr, unix.EMFILE)
	}
}

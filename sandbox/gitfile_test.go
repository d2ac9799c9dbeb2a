package sandbox

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// In a linked worktree .git is a file that names the repository: what git obeys
// there is protected as in an ordinary clone.
func TestProtectFollowsGitFiles(t *testing.T) {
	const repo, tree = "repo/.git", "repo/.git/worktrees/ws"
	inside := []string{"protect ws/.git", "pin repo/.git/worktrees", "pin repo/.git/worktrees/ws", "protect repo/.git/hooks", "protect " + tree + "/commondir"}
	guard := []string{repo + "/hooks", tree + "/commondir", tree + "/hooks", "ws/.git", repo + "/commondir"}
	cases := []struct {
		name, pointer string
		repo          string // granted for writing
		covers, guard []string
	}{
		{"absolute", "gitdir: $T/" + tree + "\n", repo, inside, guard},
		{"relative", "gitdir: ../" + tree + "\n", repo, inside, guard},
		{"repository not granted", "gitdir: ../" + tree + "\n", "", []string{"protect ws/.git"}, []string{"ws/.git"}},
		{"no pointer", "text\n", repo, nil, []string{"ws/.git"}},
		{"nothing there", "gitdir: ../absent\n", repo, []string{"protect ws/.git"}, []string{"ws/.git"}},
		{"itself", "gitdir: .git\n", repo, []string{"protect ws/.git"}, []string{"ws/.git"}},
	}
	anyOrder := cmpopts.SortSlices(strings.Compare)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, map[string]string{
				"bin/tool": "x", "ws/f": "x", "ws/.git": c.pointer, repo + "/hooks/pre-commit": "#!x", repo + "/HEAD": "x", tree + "/commondir": "../..\n",
			})
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Filesystem.Protect = at(dir, "ws/.git/hooks", "ws/.git/commondir")
			if c.repo != "" {
				p.Filesystem.Write = at(dir, c.repo)
			}
			plan, err := planned(dir, p, func(h *Host) { h.Cwd = filepath.Join(dir, "ws") })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.covers, entriesOf(plan, dir, KindPin, KindProtect), anyOrder); diff != "" {
				t.Errorf("covers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.guard, guardedNames(plan, dir), anyOrder); diff != "" {
				t.Errorf("guarded (-want +got):\n%s", diff)
			}
		})
	}
}

// A linked worktree elsewhere takes its configuration from the directory that
// the repository keeps for it: what git obeys there is protected, too.
func TestProtectWorktreesOfTheRepository(t *testing.T) {
	const one, two = "ws/.git/worktrees/one", "ws/.git/worktrees/two"
	dir := layout(t, map[string]string{
		"bin/tool": "x", "ws/.git/config": "x", one + "/commondir": "../..\n", one + "/HEAD": "x",
		two + "/commondir": "../..\n", two + "/config.worktree": "x", "ws/.git/worktrees/stray": "x",
	})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Filesystem.Protect = at(dir, "ws/.git/config", "ws/.git/commondir", "ws/.git/config.worktree")
	plan, err := planned(dir, p, func(h *Host) { h.Cwd = filepath.Join(dir, "ws") })
	if err != nil {
		t.Fatal(err)
	}
	anyOrder := cmpopts.SortSlices(strings.Compare)
	covers := []string{
		"pin ws/.git", "pin ws/.git/worktrees", "pin " + one, "pin " + two, "protect ws/.git/config",
		"protect " + one + "/commondir", "protect " + two + "/commondir", "protect " + two + "/config.worktree",
	}
	if diff := cmp.Diff(covers, entriesOf(plan, dir, KindPin, KindProtect), anyOrder); diff != "" {
		t.Errorf("covers (-want +got):\n%s", diff)
	}
	guard := []string{
		"ws/.git/config", "ws/.git/commondir", "ws/.git/config.worktree",
		one + "/commondir", one + "/config.worktree", two + "/commondir", two + "/config.worktree",
	}
	if diff := cmp.Diff(guard, guardedNames(plan, dir), anyOrder); diff != "" {
		t.Errorf("guarded (-want +got):\n%s", diff)
	}
}

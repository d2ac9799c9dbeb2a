package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// guardedNames gives what a plan guards below dir, "!" before what would be hidden.
func guardedNames(p Plan, dir string) (out []string) {
	for _, g := range p.Guard {
		name := strings.TrimPrefix(filepath.Join(g.Parent, g.Name), dir+"/")
		if g.Hide {
			name = "!" + name
		}
		out = append(out, name)
	}
	return out
}

// entriesOf gives the entries of some kinds below dir as "kind path".
func entriesOf(p Plan, dir string, kinds ...EntryKind) (out []string) {
	for _, e := range p.View {
		if slices.Contains(kinds, e.Kind) && within(e.Target, dir) {
			out = append(out, fmt.Sprintf("%s %s", e.Kind, strings.TrimPrefix(e.Target, dir+"/")))
		}
	}
	return out
}

func TestProtect(t *testing.T) {
	files := map[string]string{
		"bin/tool": "x", "real/ws/.git/config": "x", "real/ws/.git/hooks/pre-commit": "#!x", "real/ws/a/b/deep": "x",
		"real/ws/one": "-> two", "real/ws/two": "-> a/three", "real/ws/a/three": "-> b/deep",
		"real/ws/tree": "-> $T/elsewhere", "elsewhere/hooks/x": "x", "real/ws/loop": "-> loop", "ws": "-> real/ws", "other/file": "x",
	}
	cases := []struct {
		name    string
		ws      string
		protect string
		covers  []string
		guard   []string
	}{
		{"a file", "real/ws", ".git/config", []string{"pin real/ws/.git", "protect real/ws/.git/config"}, []string{"real/ws/.git/config"}},
		{"a directory", "real/ws", ".git/hooks", []string{"pin real/ws/.git", "protect real/ws/.git/hooks"}, []string{"real/ws/.git/hooks"}},
		{"deep below", "real/ws", "a/b/deep", []string{"pin real/ws/a", "pin real/ws/a/b", "protect real/ws/a/b/deep"}, []string{"real/ws/a/b/deep"}},
		{"absent", "real/ws", ".envrc", nil, []string{"real/ws/.envrc"}},
		{"absent below an absent directory", "real/ws", ".vscode/tasks.json", nil, []string{"real/ws/.vscode"}},
		{"absent below a directory", "real/ws", "a/b/x/y", []string{"pin real/ws/a", "pin real/ws/a/b"}, []string{"real/ws/a/b/x"}},
		{
			"each link of a chain", "real/ws", "one",
			[]string{"pin real/ws/a", "pin real/ws/a/b", "protect real/ws/a/b/deep"},
			[]string{"real/ws/a/b/deep", "real/ws/a/three", "real/ws/one", "real/ws/two"},
		},
		{"a link out of the workspace", "real/ws", "tree/hooks", nil, []string{"real/ws/tree"}},
		{"a loop", "real/ws", "loop", nil, []string{"real/ws/loop"}},
		{"absent, the workspace named through a link", "ws", ".envrc", nil, []string{"real/ws/.envrc"}},
		{"a file, the workspace named through a link", "ws", ".git/config", []string{"pin real/ws/.git", "protect real/ws/.git/config"}, []string{"real/ws/.git/config"}},
		{"outside of what is writable", "real/ws", "../../other/file", nil, nil},
		{"a pattern", "real/ws", ".git/*", []string{"pin real/ws/.git", "protect real/ws/.git/config", "protect real/ws/.git/hooks"}, []string{"real/ws/.git/config", "real/ws/.git/hooks"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, files)
			p := policy.Policy{Workspace: workspace(dir, c.ws)}
			p.Filesystem.Protect = at(dir, filepath.Join(c.ws, c.protect))
			plan, err := planned(dir, p, func(h *Host) { h.Cwd = filepath.Join(dir, c.ws) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.covers, entriesOf(plan, dir, KindPin, KindProtect)); diff != "" {
				t.Errorf("covers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.guard, guardedNames(plan, dir)); diff != "" {
				t.Errorf("guarded (-want +got):\n%s", diff)
			}
		})
	}
}

// What is hidden needs no further protection, and has nothing left to cover.
func TestProtectBelowHidden(t *testing.T) {
	for _, protect := range []string{"ws/a", "ws/a/b", "ws/a/b/file"} {
		dir := layout(t, map[string]string{"bin/tool": "x", "ws/a/b/file": "x"})
		p := policy.Policy{Workspace: workspace(dir, "ws")}
		p.Filesystem.Hide, p.Filesystem.Protect = at(dir, "ws/a"), at(dir, protect)
		plan, err := planned(dir, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"mask ws/a"}, entriesOf(plan, dir, KindPin, KindProtect, KindMask)); diff != "" {
			t.Errorf("%s: covers (-want +got):\n%s", protect, diff)
		}
	}
}

// A tree below another with the same rights is no mount of its own, so it has
// to be pinned: a rename would leave the cover behind.
func TestProtectBelowTwoGrants(t *testing.T) {
	for _, c := range []struct {
		name string
		exec []string
		want []string
	}{
		{"the same rights", nil, []string{"pin a/b", "pin a/b/d", "protect a/b/d/file"}},
		{"a mount of its own", []string{"a/b"}, []string{"pin a/b/d", "protect a/b/d/file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, map[string]string{"bin/tool": "x", "a/b/d/file": "x"})
			var p policy.Policy
			p.Filesystem.Write, p.Filesystem.Exec = at(dir, "a", "a/b"), at(dir, c.exec...)
			p.Filesystem.Protect = at(dir, "a/b/d/file")
			plan, err := planned(dir, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, entriesOf(plan, dir, KindPin, KindProtect)); diff != "" {
				t.Errorf("covers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProtectRefusesHardLinks(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "ws/.envrc": "x"})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Filesystem.Protect = at(dir, "ws/.envrc")
	if _, err := planned(dir, p, nil); err != nil {
		t.Fatalf("control, one name: %v", err)
	}
	if err := os.Link(filepath.Join(dir, "ws/.envrc"), filepath.Join(dir, "ws/other")); err != nil {
		t.Fatal(err)
	}
	if _, err := planned(dir, p, nil); err == nil || !strings.Contains(err.Error(), "2 hard links") {
		t.Errorf("two names: got %v, want a refusal", err)
	}
}

func TestHideSaysWhatHardLinksShow(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "ws/.env": "x"})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Filesystem.Hide = at(dir, "ws/.env")
	for _, want := range []int{0, 1} {
		plan, err := planned(dir, p, nil)
		if err != nil || len(plan.Warnings) != want {
			t.Errorf("got warnings %q, %v, want %d", plan.Warnings, err, want)
		}
		if want == 0 {
			if err := os.Link(filepath.Join(dir, "ws/.env"), filepath.Join(dir, "ws/other")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestHideWins(t *testing.T) {
	files := map[string]string{
		"bin/tool": "x", "ws/.env": "x", "ws/secrets/key": "x", "ws/link": "-> secrets", "data/a/b": "x", "ws/src/.env": "x",
	}
	cases := []struct {
		name   string
		read   []string
		hide   string
		binds  []string
		covers []string
		guard  []string
	}{
		{"a file", nil, "ws/.env", []string{"bind ws", "bind bin/tool"}, []string{"mask ws/.env"}, nil},
		{"a tree", nil, "ws/secrets", []string{"bind ws", "bind bin/tool"}, []string{"mask ws/secrets"}, nil},
		{"all below", nil, "ws/secrets/**", []string{"bind ws", "bind bin/tool"}, []string{"mask ws/secrets"}, nil},
		{"through a link", nil, "ws/link", []string{"bind ws", "bind bin/tool"}, []string{"mask ws/secrets"}, nil},
		{"a pattern", nil, "ws/**/.env", []string{"bind ws", "bind bin/tool"}, []string{"pin ws/src", "mask ws/.env", "mask ws/src/.env"}, nil},
		{"what another rule grants", []string{"data/a"}, "data/a", []string{"bind ws", "bind bin/tool"}, []string{"mask data/a"}, nil},
		{"above what another rule grants", []string{"data/a"}, "data", []string{"bind ws", "bind bin/tool"}, nil, nil},
		{"absent", nil, "ws/.netrc", []string{"bind ws", "bind bin/tool"}, nil, []string{"!ws/.netrc"}},
		{"twice", nil, "ws/se*/**", []string{"bind ws", "bind bin/tool"}, []string{"mask ws/secrets"}, nil},
		{"invisible", nil, "data", []string{"bind ws", "bind bin/tool"}, nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, files)
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Filesystem.Read, p.Filesystem.Hide = at(dir, c.read...), at(dir, c.hide)
			plan, err := planned(dir, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.binds, entriesOf(plan, dir, KindBind)); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.covers, entriesOf(plan, dir, KindPin, KindMask)); diff != "" {
				t.Errorf("covers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.guard, guardedNames(plan, dir)); diff != "" {
				t.Errorf("guarded (-want +got):\n%s", diff)
			}
			for _, g := range plan.Grants {
				if hidden := filepath.Join(dir, c.hide); within(g.Path, hidden) {
					t.Errorf("Landlock: got a grant of %q below %q", g.Path, hidden)
				}
			}
		})
	}
}

func TestGrantsInsideGrants(t *testing.T) {
	files := map[string]string{"bin/tool": "x", "a/b/c/file": "x", "a/file": "x", "ws/": ""}
	type rights struct{ read, write, exec []string }
	cases := []struct {
		name string
		give rights
		want []string
	}{
		{"a part with no more rights is not mounted again", rights{read: []string{"a", "a/b"}}, []string{"a ro,noexec"}},
		{"a writable part", rights{read: []string{"a"}, write: []string{"a/b"}}, []string{"a ro,noexec", "a/b rw,noexec"}},
		{"rights add up, never down", rights{write: []string{"a"}, read: []string{"a/b"}}, []string{"a rw,noexec"}},
		{"three levels", rights{read: []string{"a"}, exec: []string{"a/b"}, write: []string{"a/b/c"}}, []string{"a ro,noexec", "a/b ro,exec", "a/b/c rw,exec"}},
		{"the same path twice", rights{write: []string{"a"}, exec: []string{"a"}}, []string{"a rw,exec"}},
		{"a file", rights{read: []string{"a"}, write: []string{"a/file"}}, []string{"a ro,noexec", "a/file rw,noexec"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, files)
			var p policy.Policy
			p.Filesystem.Read, p.Filesystem.Write, p.Filesystem.Exec = at(dir, c.give.read...), at(dir, c.give.write...), at(dir, c.give.exec...)
			plan, err := planned(dir, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range plan.View {
				if e.Kind == KindBind && within(e.Target, filepath.Join(dir, "a")) {
					got = append(got, strings.TrimPrefix(e.Target, dir+"/")+" "+flagWords(e))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
		})
	}
}

func flagWords(e Entry) string {
	words := map[bool]string{true: "rw", false: "ro"}[e.Write]
	return words + "," + map[bool]string{true: "exec", false: "noexec"}[e.Exec]
}

func TestWhatCannotBeGranted(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "ws/": "", "root": "-> /", "processes": "-> /proc"})
	for _, path := range []string{"/", "/proc", "/proc/self", "/dev", "/dev/null", "/sys/kernel", filepath.Join(dir, "root"), filepath.Join(dir, "processes")} {
		var p policy.Policy
		p.Filesystem.Read = []policy.Path{{Text: path, Abs: path}}
		if _, err := planned(dir, p, nil); err == nil {
			t.Errorf("%q: got granted, want a refusal", path)
		}
	}
}

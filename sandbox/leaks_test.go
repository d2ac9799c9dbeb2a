package sandbox

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// planned compiles a policy for a caller in dir/ws with the home dir/home.
func planned(dir string, p policy.Policy, change func(*Host)) (Plan, error) {
	h := Host{
		Uid: 1000, Gid: 1000, User: "user", Home: filepath.Join(dir, "home"), Cwd: filepath.Join(dir, "ws"),
		Abi: 6, Tproxy: true, Environ: []string{"PATH=" + filepath.Join(dir, "bin")},
	}
	if change != nil {
		change(&h)
	}
	p.Env.Allow = namesOf("PATH")
	return Compile(p, h, []string{"tool"})
}

// at gives paths of a policy below dir.
func at(dir string, names ...string) (out []policy.Path) {
	for _, n := range names {
		name, optional := strings.CutSuffix(n, "?")
		out = append(out, policy.Path{Text: name, Abs: filepath.Join(dir, name), Optional: optional, Glob: strings.Contains(name, "*")})
	}
	return out
}

func workspace(dir, name string) policy.Workspace {
	return policy.Workspace{Path: at(dir, name)[0], Access: policy.AccessWrite}
}

func TestGrantsThroughWritableSymlinks(t *testing.T) {
	files := map[string]string{
		"bin/tool": "x", "home/.ssh/key": "a secret", "data/file": "x", "ws/sub/file": "x",
		"ws/out": "-> $T/home/.ssh", "ws/in": "-> sub", "ws/up": "-> ..", "ws/hop": "-> out", "ws/kept": "-> $T/home/.ssh", "door": "-> data",
	}
	cases := []struct {
		name    string
		grant   string
		refused string
	}{
		{"control: a link that nobody inside can write", "door", ""},
		{"a link that stays in the tree", "ws/in", ""},
		{"a link out of the tree", "ws/out", "ws/out"},
		{"a link to a link out of the tree", "ws/hop", "ws/hop"},
		{"a link on the way", "ws/up/data", "ws/up"},
		{"a protected link", "ws/kept", ""},
		{"to what is granted anyway", "ws/up/door", "ws/up"},
	}
	for _, c := range cases {
		dir := layout(t, files)
		p := policy.Policy{Workspace: workspace(dir, "ws")}
		p.Filesystem.Read = at(dir, "data")
		p.Filesystem.Protect = at(dir, "ws/kept")
		p.Filesystem.Write = at(dir, c.grant)
		_, err := planned(dir, p, nil)
		var problems policy.Problems
		refused := errors.As(err, &problems)
		if !refused && err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if refused != (c.refused != "") {
			t.Errorf("%s: got %v, want refused %v", c.name, err, c.refused != "")
		}
		if refused && (!strings.Contains(err.Error(), c.refused+`" is a symlink in a writable tree`) || problems[0].Hint == "") {
			t.Errorf("%s: got %v, want %q named and a hint", c.name, err, c.refused)
		}
	}
}

// The agent must not write the policy of the next run.
func TestThePolicyIsProtected(t *testing.T) {
	for name, want := range map[string][]string{
		"ws/conf/policy.yaml": {"pin ws/conf", "protect ws/conf/policy.yaml"},
		"ws/link.yaml":        {"pin ws/conf", "protect ws/conf/policy.yaml"},
		"other/policy.yaml":   nil,
	} {
		dir := layout(t, map[string]string{"bin/tool": "x", "ws/conf/policy.yaml": "x", "other/policy.yaml": "x", "ws/link.yaml": "-> conf/policy.yaml"})
		p := policy.Policy{Workspace: workspace(dir, "ws"), Sources: []policy.Source{{Name: "builtin:strict"}, {Name: filepath.Join(dir, name)}}}
		plan, err := planned(dir, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, entriesOf(plan, dir, KindPin, KindProtect)); diff != "" {
			t.Errorf("%s: covers (-want +got):\n%s", name, diff)
		}
	}
}

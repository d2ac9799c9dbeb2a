package sandbox

import (
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestCowRefusals(t *testing.T) {
	files := map[string]string{"ws/sub/": "", "ws/file": "x", "bin/tool": "x", "out": "-> ws/sub"}
	cases := []struct {
		name   string
		change func(dir string, p *policy.Policy)
		want   string
	}{
		{"missing", func(dir string, p *policy.Policy) { p.Filesystem.Cow = at(dir, "absent") }, "does not exist"},
		{"optional", func(dir string, p *policy.Policy) { p.Filesystem.Cow = at(dir, "absent?") }, ""},
		{"file", func(dir string, p *policy.Policy) { p.Filesystem.Cow = at(dir, "ws/file") }, "is not a directory"},
		{"also written", func(dir string, p *policy.Policy) {
			p.Filesystem.Cow, p.Filesystem.Write = at(dir, "ws"), at(dir, "ws")
		}, "is writable by filesystem.write[0]"},
		{"also written through a link", func(dir string, p *policy.Policy) {
			p.Filesystem.Cow, p.Filesystem.Write = at(dir, "out"), at(dir, "ws/sub")
		}, "is writable by filesystem.write[0]"},
		{"nested", func(dir string, p *policy.Policy) { p.Filesystem.Cow = at(dir, "ws", "ws/sub") }, "which is copy-on-write already"},
		{"nested below a written one", func(dir string, p *policy.Policy) {
			p.Workspace = workspace(dir, "ws")
			p.Workspace.Access = policy.AccessCow
			p.Filesystem.Cow, p.Filesystem.Write = at(dir, "out"), nil
		}, "which is copy-on-write already"},
		{"twice", func(dir string, p *policy.Policy) {
			p.Workspace = workspace(dir, "ws")
			p.Workspace.Access = policy.AccessCow
			p.Filesystem.Cow = at(dir, "ws")
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, files)
			var p policy.Policy
			c.change(dir, &p)
			plan, err := planned(dir, p, nil)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want a plan", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case c.name == "optional" && plan.Cow != nil:
				t.Errorf("got %+v, want no layers", plan.Cow)
			}
		})
	}
}

// TestLayerBounds: in memory there is always a bound, since the memory is
// everybody's.
func TestLayerBounds(t *testing.T) {
	dir := layout(t, map[string]string{"ws/": "", "bin/tool": "x"})
	p := policy.Policy{}
	p.Filesystem.Cow = at(dir, "ws")
	plan, err := planned(dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *plan.Cow, (Cow{Size: defaultLayerSize, Inodes: defaultLayerInodes}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.State, p.Limits.DiskFiles = "persistent", 5
	if plan, err = planned(dir, p, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := *plan.Cow, (Cow{Persistent: true, Inodes: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLayerID(t *testing.T) {
	for _, c := range []struct{ rule, path, want string }{
		{"workspace", "/home/a/proj", "workspace"},
		{"filesystem.cow[0]", "/home/a/.hermes", "hermes-9a0d8ec0"},
		{"filesystem.cow[0]", "/home/a/..\n日本", "tree-3fb65a45"},
		{"filesystem.cow[1]", "/" + strings.Repeat("Ab", 40), "abababababababababababab-"},
	} {
		if got := layerID(c.rule, c.path); strings.TrimRight(got, "0123456789abcdef") != strings.TrimRight(c.want, "0123456789abcdef") {
			t.Errorf("%q: got %q, want %q", c.path, got, c.want)
		}
	}
}

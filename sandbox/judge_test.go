package sandbox

import (
	"path/filepath"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestJudge(t *testing.T) {
	dir := layout(t, map[string]string{
		"bin/tool": "x", "home/.ssh/id": "x", "home/data/file": "x", "ws/.git/config": "x", "ws/.env": "x", "ws/src/file": "x",
		"ws/out": "-> $T/home/.ssh/id", "ws/alias": "-> .env", "ws/conf": "-> .git/config", "ro/file": "x", "other/file": "x",
	})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	f := &p.Filesystem
	f.Home = "private"
	f.Read, f.Exec = at(dir, "ro", "home/data"), at(dir, "bin")
	f.Hide, f.Protect = at(dir, "ws/.env", "ws/.netrc"), at(dir, "ws/.git/config", "ws/.envrc")
	plan, err := planned(dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		path              string
		read, write, exec bool
		private           bool
	}{
		{path: "ws", read: true, write: true},
		{path: "ws/src/file", read: true, write: true},
		{path: "ws/new", read: true, write: true},
		{path: "ws/.env"},
		{path: "ws/.env/below"},
		{path: "ws/alias"},
		{path: "ws/.netrc"},
		{path: "ws/.git/config", read: true},
		{path: "ws/conf", read: true},
		{path: "ws/.envrc", read: true},
		{path: "ws/out", write: true, private: true}, // it leads into the private home
		{path: "ro/file", read: true},
		{path: "ro", read: true},
		{path: "rover", read: true, write: true, private: true}, // /tmp is private, and not "ro"
		{path: "bin/tool", read: true, exec: true},
		{path: "other/file", write: true, private: true}, // the host has one there
		{path: "/srv/file"},
		{path: "home/.ssh/id", write: true, private: true},
		{path: "home/data/file", read: true},
		{path: "/proc/self/mem", read: true},
		{path: "/dev/null", read: true},
		{path: "/etc/shadow"},
		{path: "/etc/passwd", read: true},
		{path: "/"},
	}
	for _, c := range cases {
		path := c.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		for kind, want := range map[string]bool{"read": c.read, "write": c.write, "exec": c.exec, "taste": false} {
			got := plan.Judge(path, kind)
			if got.Allowed != want || got.Private != c.private && kind != "taste" {
				t.Errorf("%s %s: got %+v, want allowed %v, private %v", kind, c.path, got, want, c.private)
			}
			if got.Reason == "" {
				t.Errorf("%s %s: got no reason", kind, c.path)
			}
		}
	}
	if v := (Plan{}).Judge("/etc/passwd", "read"); v.Allowed {
		t.Error("the zero plan: got allowed, want denied")
	}
}

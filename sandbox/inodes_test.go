package sandbox

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// filesystem.inodes bounds every private tmpfs that somebody inside can fill.
func TestInodesBoundEachTmpfs(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "home/": "", "ws/": ""})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Filesystem.Home, p.Filesystem.Inodes = "private", 123
	plan, err := planned(dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range plan.View {
		if e.Kind == KindTmpfs && e.Write {
			n++
			if e.Inodes != 123 {
				t.Errorf("%s: got %d files, want 123", e.Target, e.Inodes)
			}
		}
	}
	if n < 5 {
		t.Errorf("got %d private file systems, want /tmp, /var/tmp, /dev/shm, home and runtime directory", n)
	}
}

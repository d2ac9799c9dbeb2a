package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestChangeable(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"work/kept", "safe", "home"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("safe/tool"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"safe/in": at("work/tool"), "work/out": at("safe/tool"), "safe/through": at("work/out"), "work/dir": at("safe"),
		"safe/loop": at("safe/loop"), "safe/link": "tool",
	} {
		if err := os.Symlink(to, at(from)); err != nil {
			t.Fatal(err)
		}
	}
	p := Plan{
		View: []Entry{
			{Kind: KindBind, Source: at("work"), Target: at("work"), Write: true},
			{Kind: KindBind, Source: at("safe"), Target: at("safe")},
			{Kind: KindBind, Source: at("home"), Target: "/home/u", Write: true},
			{Kind: KindProtect, Target: at("work/kept")},
		},
		Guard: []Guarded{{Parent: at("work"), Name: "absent"}},
	}
	for name, want := range map[string]bool{
		"safe/tool": false, "safe/link": false, "safe/missing": false, "elsewhere": false,
		"work/kept/tool": false, "work/absent": false,
		"work/tool": true, "work/missing/tool": true, "safe/in": true, "work/out": true, "safe/through": true, "work/dir/tool": true,
		"home/tool": true, "safe/loop": true,
	} {
		if got := p.Changeable(at(name)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		protected := name == "work/kept/tool" || name == "work/absent"
		if got := p.InWritableTree(at(name)); got != (want || protected) {
			t.Errorf("%s in a writable tree: got %v, want %v", name, got, want || protected)
		}
	}
}

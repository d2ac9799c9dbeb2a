package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJudgePrivateHome(t *testing.T) {
	home := t.TempDir()
	key := filepath.Join(home, "key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := Plan{View: []Entry{{Kind: KindTmpfs, Target: home, Write: true}}}
	for _, c := range []struct {
		name, path, kind string
		want             bool
	}{
		{"a file that the host has", key, "read", false},
		{"a name that nobody has", filepath.Join(home, "new"), "read", true},
		{"the directory itself", home, "read", true},
		{"writing, which stays inside", key, "write", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := p.Judge(c.path, c.kind)
			if got.Allowed != c.want || !got.Private {
				t.Errorf("Judge = %+v, want allowed %v and private", got, c.want)
			}
		})
	}
}

package profiles_test

import (
	"os"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
)

// TestLoad holds that each built-in policy is a policy without mistakes and
// without findings, wherever it is used.
func TestLoad(t *testing.T) {
	home := t.TempDir()
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			p, err := policy.Load(policy.Options{
				Arg: name, Given: true, Cwd: t.TempDir(), Home: home, PasswdHome: home,
				Builtin: profiles.Lookup, SearchDirs: []string{}, Uid: os.Getuid(),
			})
			if err != nil {
				t.Fatalf("load: got %v, want no mistake", err)
			}
			if p.Name != name {
				t.Errorf("name: got %q, want %q", p.Name, name)
			}
			if len(p.Warnings) > 0 {
				t.Errorf("warnings: got %v, want none", p.Warnings)
			}
		})
	}
}

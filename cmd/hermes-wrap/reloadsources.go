package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// launchSources are the policy files of the launch that lie in trees which are
// writable inside. They are covered there, and a cover goes for a moment when
// somebody outside replaces the file: whoever inside opened the new one then can
// write the next policy. They stay open so that no other file gets their number.
type launchSources map[string]*os.File

// openSources opens them, before anything runs inside.
func openSources(p policy.Policy, plan sandbox.Plan) (launchSources, error) {
	held := launchSources{}
	for _, s := range p.Sources {
		if !filepath.IsAbs(s.Name) || !plan.InWritableTree(s.Name) {
			continue
		}
		f, err := os.OpenFile(s.Name, unix.O_PATH, 0)
		if err != nil {
			return nil, fmt.Errorf("hold policy file: %w", err)
		}
		held[s.Name] = f
	}
	return held, nil
}

// believable refuses policy files that the command can change, or could have
// changed since the launch.
func (held launchSources) believable(p policy.Policy, plan sandbox.Plan) error {
	for _, s := range p.Sources {
		if !filepath.IsAbs(s.Name) || !plan.InWritableTree(s.Name) {
			continue
		}
		f, known := held[s.Name]
		switch {
		case !known || plan.Changeable(s.Name):
			return fmt.Errorf("policy file %q can be written inside; end the run, and the next one protects it", s.Name)
		case !sameAs(f, s.Name):
			return fmt.Errorf("policy file %q was replaced during the run where the command could reach it; "+
				"edit it in place, keep it outside of every writable path, or end the run", s.Name)
		}
	}
	return nil
}

func sameAs(f *os.File, path string) bool {
	then, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(then, now)
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A workspace as a large project has it.
const (
	cowDirs   = 250
	cowFiles  = 200 // in each
	cowRounds = 20
)

// measureCow launches over a large workspace that is written to, and over the same
// copy-on-write: what a layer costs does not depend on the tree.
func measureCow(s *shop) ([]row, error) {
	tree := filepath.Join(s.root, "large")
	if err := largeTree(tree); err != nil {
		return nil, err
	}
	defer os.RemoveAll(tree)
	all := []*contender{
		{name: "write", argv: []string{"true"}},
		{name: "cow", argv: []string{"true"}},
		{name: "cow, changed", argv: []string{"touch", "large/file"}},
		{name: "persistent", argv: []string{"true"}},
		{name: "persistent, changed", argv: []string{"touch", "large/file"}},
	}
	for i, c := range all {
		access, state := "cow", "ephemeral"
		switch {
		case c.name == "write":
			access = "write"
		case i > 2:
			state = "persistent"
		}
		policy := filepath.Join(s.root, "cow"+strconv.Itoa(i)+".yaml")
		text := fmt.Sprintf("version: 1\nworkspace: {path: %q, access: %s}\nstate: %s\n", s.root, access, state)
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			return nil, err
		}
		c.argv = append([]string{"env", "--chdir=" + s.root, "XDG_STATE_HOME=" + s.root + "-state"}, s.inside(policy, c.argv...)...)
	}
	defer os.RemoveAll(s.root + "-state")
	for range cowRounds {
		for _, c := range all {
			c.run(s)
		}
	}
	return cowRows(all)
}

func largeTree(dir string) error {
	for i := range cowDirs {
		sub := filepath.Join(dir, "d"+strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		for j := range cowFiles {
			if err := os.WriteFile(filepath.Join(sub, "f"+strconv.Itoa(j)), make([]byte, j*8), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func cowRows(all []*contender) ([]row, error) {
	for _, c := range all {
		if c.fail != nil {
			return nil, c.fail
		}
	}
	base := all[0].took
	about := fmt.Sprintf("over %d files, ", cowDirs*cowFiles)
	against := func(c *contender) string {
		return fmt.Sprintf("%s; %+.1f ms by median", c.took.ms(), 1000*(c.took.median()-base.median()))
	}
	return []row{
		{What: "launch of `true` " + about + "`access: write`", Figure: base.ms() + fmt.Sprintf(" (min/median of %d interleaved)", cowRounds)},
		within("the same, `access: cow`, in memory", "1.2 × write", against(all[1]), all[1].took.median(), 1.2*base.median()),
		{What: "the same, where the command changed a file (the end looks at the host's tree)", Figure: against(all[2])},
		within("the same, `state: persistent`", "1.5 × write", against(all[3]), all[3].took.median(), 1.5*base.median()),
		{What: "the same, where the command changed a file", Figure: against(all[4])},
	}, nil
}

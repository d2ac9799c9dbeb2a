package main

import (
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// unfinished refuses keys of the policy that this program reads and does not
// carry out yet: an option that does nothing would be worse than none.
func unfinished(p policy.Policy) error {
	var ps policy.Problems
	refuse := func(key string, asked bool) {
		if asked {
			ps = append(ps, policy.Problem{Pos: p.Where[key], Path: key, What: "this version does not carry it out", Hint: "remove the key"})
		}
	}
	refuse("state", p.State == "persistent" && (p.Workspace.Access == policy.AccessCow || len(p.Filesystem.Cow) > 0))
	if len(ps) > 0 {
		return ps
	}
	return nil
}

package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// What an agent wrote in one run must not widen the next one: a symlink or a
// file in a writable tree is no reason to show what it names.

// writable tells whether the agent can write at a real path of the host.
func (c *compiler) writable(real string) bool {
	_, write, _ := c.v.rights(real)
	return write && !c.isProtected(real)
}

// isProtected tells whether a path lies at or below a protected entry, by the
// entry's own name or by what it resolves to.
func (c *compiler) isProtected(path string) bool {
	for _, p := range c.p.Filesystem.Protect {
		names, err := expand(strings.TrimSuffix(p.Abs, "/**"), p.Glob)
		if err != nil {
			continue
		}
		for _, name := range names {
			entry, _ := resolve(name)
			dir, _ := resolve(filepath.Dir(name))
			if within(path, entry.real) || within(path, filepath.Join(dir.real, filepath.Base(name))) {
				return true
			}
		}
	}
	return false
}

// leaksOut refuses a granted path that reaches its place through a symlink that
// the agent can write and that leads out of what it can write: an earlier run
// could have turned it to any directory.
func (c *compiler) leaksOut() error {
	var problems policy.Problems
	for path := range c.v.links {
		root, ok := c.v.writableAbove(path)
		if !ok || path == root || c.isProtected(path) {
			continue
		}
		r, err := resolve(path)
		if err == nil && within(r.real, root) {
			continue
		}
		problem := policy.Problem{
			Path: "filesystem", What: fmt.Sprintf("%q is a symlink in a writable tree and leads to %q outside of it", path, r.real),
			Hint: fmt.Sprintf("grant %q itself", r.real),
		}
		for _, t := range c.v.trees {
			if slices.Contains(linkPaths(t.res), path) {
				problem.Pos, problem.Path = t.pos, t.rule
			}
		}
		problems = append(problems, problem)
	}
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b policy.Problem) int { return strings.Compare(a.What, b.What) })
	return problems
}

// keepPolicy protects the files that the policy was read from, so that the
// agent does not write the policy of the next run.
func (c *compiler) keepPolicy() error {
	for _, s := range c.p.Sources {
		r, err := resolve(s.Name)
		if _, writable := c.v.writableAbove(r.real); err != nil || !filepath.IsAbs(s.Name) || !writable {
			continue
		}
		if err := c.v.keepOut(policy.Path{Text: s.Name, Abs: s.Name}, "the policy itself"); err != nil {
			return err
		}
	}
	return nil
}

package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// A protected directory is obeyed through the symlinks in it too: git runs what
// .git/hooks/pre-commit leads to. Looking for them is bounded, as for sockets.
const (
	linkDepth   = 2
	linkEntries = 2000
)

// keepLinked protects what the symlinks in a protected directory lead to.
func (v *view) keepLinked(top resolved, rule string, pos policy.Pos) error {
	if _, writable := v.writableAbove(top.real); !writable || !top.isDir() {
		return nil
	}
	budget := linkEntries
	for _, r := range linksBelow(top.real, linkDepth, &budget) {
		// A link to what holds the directory would protect everything around it.
		if _, writable := v.writableAbove(r.real); !writable || within(r.real, top.real) || within(top.real, r.real) {
			continue
		}
		if r.nlink > 1 && r.mode.IsRegular() {
			return hardLinked(rule, r)
		}
		if r.ino != 0 {
			v.protect = append(v.protect, tree{res: r, rule: rule, pos: pos})
		}
		v.warnings = append(v.warnings, fmt.Sprintf("%s: %s: %q is protected too, because %q leads there", pos, rule, r.real, r.literal))
		for _, name := range append(linkPaths(r), r.real) {
			if !within(name, top.real) {
				v.guardName(name, Guarded{Rule: rule, Pos: pos})
			}
		}
	}
	return nil
}

func hardLinked(rule string, r resolved) error {
	return fmt.Errorf("%s: %q has %d hard links, and a write through another name would pass the protection", rule, r.real, r.nlink)
}

// linksBelow resolves the symlinks near the top of a directory. One whose
// target is missing has no inode.
func linksBelow(dir string, depth int, budget *int) (out []resolved) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if *budget--; *budget < 0 {
			return out
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			if r, _ := resolve(path); r.real != "" {
				out = append(out, r)
			}
		case e.IsDir() && depth > 0:
			out = append(out, linksBelow(path, depth-1, budget)...)
		}
	}
	return out
}

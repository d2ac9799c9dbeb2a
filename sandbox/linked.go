package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// A protected directory is obeyed through the symlinks in it too: git runs what
// .git/hooks/pre-commit leads to. Looking for them is bounded, as for sockets.
const (
	linkDepth   = 2
	linkEntries = 2000
)

// keepLinked protects what the symlinks in a protected directory lead to, and
// refuses files of it that have another name.
func (v *view) keepLinked(top resolved, rule string, pos policy.Pos) error {
	if _, writable := v.writableAbove(top.real); !writable || !top.isDir() {
		return nil
	}
	budget := linkEntries
	links, err := linksBelow(top.real, linkDepth, &budget)
	if err != nil {
		return fmt.Errorf("%s: look for links in what is protected: %w", rule, err)
	}
	for _, r := range links {
		_, writable := v.writableAbove(r.real)
		if writable && r.nlink > 1 && r.mode.IsRegular() {
			return hardLinked(rule, r)
		}
		// A link to what holds the directory would protect everything around it.
		if !writable || within(r.real, top.real) || within(top.real, r.real) {
			continue
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

// linksBelow resolves the symlinks near the top of a directory, and the files
// there that have several names. A link whose target is missing has no inode.
func linksBelow(dir string, depth int, budget *int) (out []resolved, err error) {
	entries, err := os.ReadDir(dir)
	if !closedToAll(err) {
		return nil, err
	}
	for _, e := range entries {
		if *budget--; *budget < 0 {
			return out, nil
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0, e.Type().IsRegular() && shared(e):
			r, err := resolve(path)
			if !closedToAll(err) {
				return nil, err
			}
			if r.real != "" {
				out = append(out, r)
			}
		case e.IsDir() && depth > 0:
			below, err := linksBelow(path, depth-1, budget)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
	}
	return out, nil
}

// shared tells whether a file has several names.
func shared(e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return true // whoever resolves it finds out
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

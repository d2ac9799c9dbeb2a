package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The search for sockets of the host is bounded: a launch must not walk a whole
// source tree. What lies deeper can be connected to, as Landlock restricts
// pathname sockets from ABI 9 only.
const (
	socketDepth   = 2
	socketEntries = 2000
)

// systemTrees hold no sockets of the user's daemons.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/nix", "/gnu"}

// coverSockets covers the sockets that lie near the top of a granted tree: to
// read a tree is not to speak with the daemons that left sockets in it, and a
// read-only mount does not stop connect(2). The policy opens single ones under
// filesystem.sockets.
func (v *view) coverSockets(allowed []policy.Path) {
	budget := socketEntries
	for path, t := range v.trees {
		if t.res.isDir() && !slices.ContainsFunc(systemTrees, func(s string) bool { return within(path, s) }) {
			v.findSockets(path, t, 0, &budget, allowed)
		}
	}
}

func (v *view) findSockets(dir string, t *tree, depth int, budget *int, allowed []policy.Path) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if *budget--; *budget < 0 {
			return
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&fs.ModeSocket != 0:
			if !slices.ContainsFunc(allowed, func(p policy.Path) bool { return p.Abs == path }) {
				v.hidden = append(v.hidden, tree{
					res:  resolved{literal: path, real: path, mode: fs.ModeSocket},
					rule: "a socket of the host in a granted tree", pos: t.pos,
				})
			}
		case e.IsDir() && depth < socketDepth:
			v.findSockets(path, t, depth+1, budget, allowed)
		}
	}
}

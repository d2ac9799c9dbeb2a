package sandbox

import "slices"

// Changeable tells whether the confined process could change or replace what a
// path of the host leads to: the file, or any symlink on the way. What runs or is
// believed outside must not be changeable.
func (p Plan) Changeable(path string) bool {
	return p.anyOnTheWay(path, func(name string) bool {
		if !p.writableTree(name) {
			return false
		}
		_, refused := p.refusal(name, "write")
		return !refused || p.Weak != nil // nothing is covered there
	})
}

// InWritableTree tells whether a path leads through or to a tree that is writable
// inside, also where the path itself is protected: a cover goes when somebody
// outside replaces what it covers.
func (p Plan) InWritableTree(path string) bool { return p.anyOnTheWay(path, p.writableTree) }

// anyOnTheWay asks about each symlink on the way and what the path leads to, none
// of whose directories is a symlink.
func (p Plan) anyOnTheWay(path string, is func(name string) bool) bool {
	r, err := resolve(path)
	if r.real == "" {
		return err != nil // a loop of links can be anything in the next moment
	}
	return slices.ContainsFunc(append(linkPaths(r), r.real), is)
}

// writableTree judges a name for what it is and not for what it leads to.
func (p Plan) writableTree(name string) bool {
	for _, e := range p.View {
		if e.isHome() && e.Write && within(name, e.Source) {
			return true
		}
	}
	v := p.permission(name, "write")
	return v.Allowed && !v.Private
}

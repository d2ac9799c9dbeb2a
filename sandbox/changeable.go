package sandbox

import "slices"

// Changeable tells whether the confined process could change or replace what a
// path of the host leads to: the file, or any symlink on the way. What runs or is
// believed outside must not be changeable.
func (p Plan) Changeable(path string) bool {
	r, err := resolve(path)
	if r.real == "" {
		return err != nil // a loop of links can be anything in the next moment
	}
	return slices.ContainsFunc(append(linkPaths(r), r.real), p.writableName)
}

// writableName judges a name whose directory holds no symlink, for what it is and
// not for what it leads to.
func (p Plan) writableName(name string) bool {
	for _, e := range p.View {
		if e.isHome() && e.Write && within(name, e.Source) {
			return true
		}
	}
	if v, ok := p.weakVerdict(name, "write"); ok {
		return v.Allowed
	}
	if _, refused := p.refusal(name, "write"); refused {
		return false
	}
	v := p.permission(name, "write")
	return v.Allowed && !v.Private
}

package policy

import (
	"fmt"
	"reflect"
	"slices"
)

// applyFloor puts the administrator's floor under a policy. What the floor
// denies is added; its limits hold where they are lower, its fixed values
// always; what it grants is the most that anything may grant.
func applyFloor(p Policy, l *layer) (Policy, Problems) {
	f := flooring{layer: l, where: p.Where}
	f.structs(reflect.ValueOf(&p).Elem(), reflect.ValueOf(l.pol), "")
	f.paths(p)
	f.names(p)
	f.network(p)
	f.routes(p)
	return p, f.problems
}

type flooring struct {
	layer *layer
	// where is the policy's own positions, for what the floor refuses.
	where    map[string]Pos
	problems Problems
}

// refuse reports a grant that the floor does not have.
func (f *flooring) refuse(pos Pos, path, what string) {
	f.problems = append(f.problems, Problem{
		Pos: pos, Path: path, What: what,
		Hint: fmt.Sprintf("the floor allows less (%v); only its administrator can change it", f.layer.at(path)),
	})
}

func (f *flooring) structs(dst, src reflect.Value, path string) {
	where := dst.Addr().Interface()
	for _, fd := range fieldsOf(dst.Type()) {
		p := join(path, fd.key)
		d, s := dst.Field(fd.index), src.Field(fd.index)
		if fd.tag.Get("tighten") == "" {
			f.structs(d, s, p)
		} else if f.layer.has(p) {
			f.field(fd, d, s, p)
		}
	}
	if p, root := where.(*Policy); root {
		f.positions(p)
	}
}

// positions makes the floor's line the one that is shown for what it decided.
func (f *flooring) positions(p *Policy) {
	where := map[string]Pos{}
	for k, pos := range p.Where {
		where[k] = pos
	}
	for _, k := range f.decided(*p) {
		where[k] = f.layer.at(k)
	}
	p.Where = where
}

// decided lists the limits and fixed values that now are the floor's.
func (f *flooring) decided(p Policy) []string {
	var keys []string
	eachLeaf(reflect.ValueOf(p), reflect.ValueOf(f.layer.pol), "", func(fd field, a, b reflect.Value, path string) {
		switch fd.tag.Get("tighten") {
		case "limit", "fixed", "higher", "lower":
			if f.layer.has(path) && reflect.DeepEqual(a.Interface(), b.Interface()) {
				keys = append(keys, path)
			}
		}
	})
	return keys
}

// eachLeaf visits the fields that have a direction, in two policies at once.
func eachLeaf(a, b reflect.Value, path string, visit func(fd field, a, b reflect.Value, path string)) {
	for _, fd := range fieldsOf(a.Type()) {
		p := join(path, fd.key)
		if fd.tag.Get("tighten") == "" {
			eachLeaf(a.Field(fd.index), b.Field(fd.index), p, visit)
			continue
		}
		visit(fd, a.Field(fd.index), b.Field(fd.index), p)
	}
}

// field applies one value of the floor. Grants ("subset") are compared later,
// when the whole policy is known.
func (f *flooring) field(fd field, d, s reflect.Value, path string) {
	switch fd.tag.Get("tighten") {
	case "superset":
		d.Set(reflect.AppendSlice(reflect.AppendSlice(reflect.MakeSlice(d.Type(), 0, 0), d), s))
	case "fixed":
		if path == "credentials" {
			f.credentials(d, s)
			return
		}
		if s.Kind() == reflect.Map {
			(&merger{}).maps(d, s)
			return
		}
		d.Set(s)
	case "higher":
		if rank(s, fd.tag) > rank(d, fd.tag) {
			d.Set(s)
		}
	case "limit":
		if rank(s, fd.tag) != 0 && (rank(d, fd.tag) == 0 || rank(s, fd.tag) < rank(d, fd.tag)) {
			d.Set(s)
		}
	case "lower":
		f.lower(fd, d, s, path)
	}
}

// lower caps a number; a switch or a level that is too high is refused with
// its line, since the command would fail in a way that nobody understands.
func (f *flooring) lower(fd field, d, s reflect.Value, path string) {
	if rank(d, fd.tag) <= rank(s, fd.tag) {
		return
	}
	if d.CanInt() {
		d.Set(s)
		return
	}
	f.problems = append(f.problems, Problem{
		Pos: f.where[path], Path: path, What: fmt.Sprintf("%v is more than the floor's %v", d, s),
		Hint: fmt.Sprintf("the floor's line is %v", f.layer.at(path)),
	})
}

// paths compares what becomes visible. Writable and executable trees are
// readable too, and so is the workspace.
func (f *flooring) paths(p Policy) {
	fl := f.layer.pol.Filesystem
	read := slices.Concat(fl.Read, fl.Write, fl.Exec, fl.Cow)
	ws := p.Workspace
	workspace := func(granted bool) []Path {
		if granted && ws.Access != AccessNone {
			return []Path{ws.Path}
		}
		return nil
	}
	fs := p.Filesystem
	f.trees("filesystem.read", read, fs.Read, fs.Write, fs.Exec, fs.Cow, workspace(true))
	f.trees("filesystem.write", fl.Write, fs.Write, workspace(ws.Access == AccessWrite))
	f.trees("filesystem.cow", slices.Concat(fl.Cow, fl.Write), fs.Cow)
	f.trees("filesystem.exec", fl.Exec, fs.Exec, workspace(ws.Exec))
	f.trees("filesystem.devices", fl.Devices, fs.Devices)
	f.trees("filesystem.sockets", fl.Sockets, fs.Sockets)
	f.trees("network.ca", f.layer.pol.Network.CA, p.Network.CA)
}

func (f *flooring) trees(key string, floor []Path, grants ...[]Path) {
	if !f.layer.has(key) {
		return
	}
	allowed := places(floor)
	for _, list := range grants {
		for _, g := range places(list) {
			if !anyOf(allowed, g, place.covers) {
				f.refuse(g.Pos, key, fmt.Sprintf("%q is outside of what the floor allows", g.Text))
			}
		}
	}
}

func anyOf[T any](floor []T, item T, covers func(f, p T) bool) bool {
	for _, f := range floor {
		if covers(f, item) {
			return true
		}
	}
	return false
}

// names compares the lists of names.
func (f *flooring) names(p Policy) {
	fl := f.layer.pol
	same := func(a, b Name) bool { return a.Text == b.Text }
	pattern := func(a, b Name) bool { return coversName(a.Text, b.Text) }
	f.texts("env.allow", fl.Env.Allow, p.Env.Allow, pattern)
	f.texts("env.secret", fl.Env.Secret, p.Env.Secret, pattern)
	f.texts("syscalls.allow", fl.Syscalls.Allow, p.Syscalls.Allow, same)
	f.published(p.Network.Publish)
	f.dockered(p.Network.Docker)
	if !f.layer.has("require.may_degrade") {
		return
	}
	for _, layer := range p.Require.MayDegrade {
		if !anyOf(fl.Require.MayDegrade, layer, func(a, b Layer) bool { return a == b }) {
			f.refuse(p.Where["require.may_degrade"], "require.may_degrade", fmt.Sprintf("the floor requires %q", layer))
		}
	}
}

// published compares entries as a whole: the floor lists what may be.
func (f *flooring) published(grants []Publish) {
	if !f.layer.has("network.publish") {
		return
	}
	same := func(a, b Publish) bool { return sameMeaning(reflect.ValueOf(a), reflect.ValueOf(b)) }
	for _, g := range grants {
		if !anyOf(f.layer.pol.Network.Publish, g, same) {
			f.refuse(g.Pos, "network.publish", fmt.Sprintf("the floor does not allow %q to be published", g.Listen))
		}
	}
}

func (f *flooring) texts(key string, floor, grants []Name, covers func(f, p Name) bool) {
	if !f.layer.has(key) {
		return
	}
	for _, g := range grants {
		if !anyOf(floor, g, covers) {
			f.refuse(g.Pos, key, fmt.Sprintf("%q is outside of what the floor allows", g.Text))
		}
	}
}

// network compares the rules and the opened ranges.
func (f *flooring) network(p Policy) {
	fl := f.layer.pol.Network
	for i, r := range fl.Rules {
		if len(r.Deny) > 0 {
			path := fmt.Sprintf("network.rules[%d].deny", i)
			f.problems = append(f.problems, Problem{Pos: f.layer.at(path), Path: path, What: "has no meaning in the floor", Hint: "list what the rule allows, or use network.deny"})
		}
	}
	if f.layer.has("network.rules") {
		for _, r := range p.Network.Rules {
			if !coversRule(fl.Rules, r) {
				f.refuse(r.Pos, "network.rules", fmt.Sprintf("the rule %q allows more than the floor", r.Name))
			}
		}
	}
	if f.layer.has("network.private") {
		for _, r := range p.Network.Private {
			if !anyOf(fl.Private, r, coversRange) {
				f.refuse(r.Pos, "network.private", fmt.Sprintf("%q is outside of what the floor allows", r.CIDR))
			}
		}
	}
}

// credentials puts the floor's entries in the place of those with the same
// name. Others of the floor are left out: nothing would use them.
func (f *flooring) credentials(d, s reflect.Value) {
	all := reflect.MakeMap(d.Type())
	for it := d.MapRange(); it.Next(); {
		v := it.Value()
		if own := s.MapIndex(it.Key()); own.IsValid() {
			v = own
		}
		all.SetMapIndex(it.Key(), v)
	}
	d.Set(all)
}

// routes compares the ways to models. Where the floor has none, a route is what
// it stands for: a rule for its host.
func (f *flooring) routes(p Policy) {
	fl := f.layer.pol
	for _, r := range p.Inference.Routes {
		switch {
		case f.layer.has("inference.routes"):
			if !anyOf(fl.Inference.Routes, r, coversRoute) {
				f.refuse(r.Pos, "inference.routes", fmt.Sprintf("the route %q allows more than the floor", r.Name))
			}
		case f.layer.has("network.rules"):
			if !coversRule(fl.Network.Rules, r.asRule()) {
				f.refuse(r.Pos, "network.rules", fmt.Sprintf("the route %q leads to a host that the floor's rules do not allow", r.Name))
			}
		}
	}
	upstream := p.Network.Upstream.Certificates
	if f.layer.has("network.upstream.certificates") {
		for _, c := range upstream {
			if !anyOf(fl.Network.Upstream.Certificates, c, coversCertificate) {
				f.refuse(c.Pos, "network.upstream.certificates", fmt.Sprintf("%q is outside of what the floor allows", c.Cert.Text))
			}
		}
	}
}

// coversCertificate compares two uses of a client certificate.
func coversCertificate(f, c ClientCertificate) bool {
	return f.Cert.Abs == c.Cert.Abs && f.Key.Abs == c.Key.Abs && everyOf(c.Hosts, func(h Name) bool {
		return anyOf(f.Hosts, h, func(f, h Name) bool { return coversHost(f.Text, h.Text) })
	})
}

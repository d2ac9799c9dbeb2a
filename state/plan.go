package state

import (
	"slices"
)

// CommitOptions choose what of a layer is committed.
type CommitOptions struct {
	// Paths are relative to the tree; none mean everything.
	Paths []string
	// Force overwrites what changed on the host meanwhile.
	Force bool
	// AcceptExec commits files that the host executes later; ExceptExec commits
	// all others. With neither such files refuse the commit.
	AcceptExec, ExceptExec bool
	// AcceptLinks and ExceptLinks are the same for symbolic links out of the tree.
	AcceptLinks, ExceptLinks bool
}

// Plan is a commit that was decided and not begun.
type Plan struct {
	// Chosen are the changes that it makes, with the directories they need.
	Chosen []Change
	// Held are chosen changes that cannot be committed; they stay in the layer.
	Held []Change
	// Conflicts, Exec and Links refuse the commit.
	Conflicts, Exec, Links []Change

	rest []Change // what stays in the layer
}

// Refused tells whether the commit may not be done.
func (p Plan) Refused() bool { return len(p.Conflicts)+len(p.Exec)+len(p.Links) > 0 }

// Plan decides a commit of changes that Diff gave.
func (l *Layer) Plan(changes []Change, o CommitOptions) (p Plan) {
	chosen, stays := map[string]bool{}, o.stays(changes)
	for _, c := range changes {
		switch {
		case !under(c.Path, o.Paths), o.except(c), stays(c):
			continue
		case c.Held != "":
			p.Held = append(p.Held, c)
			continue
		}
		chosen[c.Path] = true
		if c.Conflict != "" && !o.Force {
			p.Conflicts = append(p.Conflicts, c)
		}
		if c.Runs != "" && !o.AcceptExec {
			p.Exec = append(p.Exec, c)
		}
		if c.Leads && !o.AcceptLinks {
			p.Links = append(p.Links, c)
		}
	}
	needed(changes, chosen)
	for _, c := range changes {
		if chosen[c.Path] {
			p.Chosen = append(p.Chosen, c)
		} else {
			p.rest = append(p.rest, c)
		}
	}
	return p
}

// except tells whether a change is to be left out.
func (o CommitOptions) except(c Change) bool {
	return c.Held == "" && (c.Runs != "" && o.ExceptExec || c.Leads && o.ExceptLinks)
}

// stays tells which deletions belong to changes that are left out, since what took
// the entry's place, or has its content, would be in the layer alone: all below a
// directory that was replaced, and what was renamed.
func (o CommitOptions) stays(changes []Change) func(Change) bool {
	renamed, replaced := map[string]bool{}, map[string]bool{}
	for _, c := range changes {
		if !o.except(c) {
			continue
		}
		renamed[c.From] = true
		if c.Old.Type == Dir && c.New.Type != Dir {
			replaced[c.Path] = true
		}
	}
	return func(c Change) bool {
		if c.Kind != Deleted {
			return false
		}
		for dir, _ := split(c.Path); dir != ""; dir, _ = split(dir) {
			if replaced[dir] {
				return true
			}
		}
		return renamed[c.Path]
	}
}

// needed adds the directories that chosen changes lie in, where those are new.
func needed(changes []Change, chosen map[string]bool) {
	fresh := map[string]bool{}
	for _, c := range changes {
		if c.New.Type == Dir && c.Old.Type != Dir {
			fresh[c.Path] = true
		}
	}
	for _, path := range slices.Collect(keys(chosen)) {
		for dir, _ := split(path); dir != ""; dir, _ = split(dir) {
			if fresh[dir] {
				chosen[dir] = true
			}
		}
	}
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// retained gives the directories of the layer that must stay, because something
// below them does.
func retained(keep [][]byte) map[string]bool {
	dirs := map[string]bool{}
	for _, k := range keep {
		dirs[string(k)] = true
		for dir, _ := split(string(k)); ; dir, _ = split(dir) {
			if dirs[dir] {
				break
			}
			if dirs[dir] = true; dir == "" {
				break
			}
		}
	}
	return dirs
}

// journal turns a plan into steps.
func (l *Layer) journal(p Plan) journal {
	j := newJournal()
	j.keep(p.rest)
	stay := retained(j.Keep)
	for _, c := range p.Chosen {
		j.Steps = append(j.Steps, l.steps(c, stay)...)
	}
	return j
}

// keep notes what stays in the layer.
func (j *journal) keep(rest []Change) {
	for _, c := range rest {
		j.Keep = append(j.Keep, []byte(c.Path))
		if c.Held != "" {
			j.Held = append(j.Held, []byte(c.Path))
		}
	}
}

// steps gives the steps of one change.
func (l *Layer) steps(c Change, stay map[string]bool) (steps []step) {
	path, makeRoom := []byte(c.Path), c.Old.Type == Dir && c.New.Type != Dir
	s := step{Path: path, Old: c.Old.id, New: c.New.id, Mode: plainMode(c.New), Late: makeRoom && c.Kind != Deleted}
	if s.Late {
		steps = append(steps, step{Do: stepRmdir, Path: path})
		s.Old = identity{}
	}
	switch {
	case c.Kind == Deleted && c.Old.Type == Dir:
		s.Do = stepRmdir
	case c.Kind == Deleted:
		s.Do = stepRemove
	case c.New.Type == Dir && c.Old.Type == Dir:
		s.Do = stepMode
	case c.New.Type == Dir:
		s.Do = stepMkdir
		if s.Mode&0o700 != 0o700 {
			steps = append(steps, step{Do: stepMode, Path: path, Mode: s.Mode})
		}
	case c.New.Type == Symlink:
		s.Do, s.Target = stepLink, []byte(c.New.Target)
	default:
		// A file with another name in the layer would be changed through that name,
		// and capabilities can only be left behind.
		s.Do, s.Move = stepFile, l.Method == Overlay && c.links == 1 && !slices.Contains(c.Dropped, "capability") && !l.hiding(c.Path, stay)
	}
	return append(steps, s)
}

// hiding tells that a path lies in a directory that stays and hides the host's:
// what is taken out of it would be gone from the merged tree.
func (l *Layer) hiding(path string, stay map[string]bool) bool {
	for dir, _ := split(path); dir != ""; dir, _ = split(dir) {
		if l.opaque[dir] && stay[dir] {
			return true
		}
	}
	return false
}

package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// judge looks at a whole policy for what is almost surely a mistake.
func judge(p Policy, o Options) (problems Problems, warnings []Problem) {
	j := judging{policy: p, homes: []place{newPlace(Path{Abs: "/"})}, places: map[string]place{}}
	for _, h := range o.homes() {
		j.homes = append(j.homes, newPlace(Path{Abs: h}))
	}
	j.homeMismatch(o)
	j.grants()
	if len(j.problems) == 0 {
		j.auditFile()
		j.outside()
	}
	j.credentials()
	j.inference()
	j.supervise()
	j.published()
	j.docker()
	return j.problems, j.warnings
}

type judging struct {
	policy   Policy
	homes    []place // and the root
	places   map[string]place
	problems Problems
	warnings []Problem
}

func (j *judging) refuse(pos Pos, path, what, hint string) {
	j.problems = append(j.problems, Problem{Pos: pos, Path: path, What: what, Hint: hint})
}

func (j *judging) warn(pos Pos, path, what, hint string) {
	j.warnings = append(j.warnings, Problem{Pos: pos, Path: path, What: what, Hint: hint})
}

func (j *judging) homeMismatch(o Options) {
	real := o.passwdHome()
	if real != "" && o.Home != "" && filepath.Clean(real) != filepath.Clean(o.Home) {
		j.warn(Pos{File: "HOME"}, "", fmt.Sprintf("is %q, but the password database says %q", o.Home, real),
			`"~" means the first; sudo with -H sets it`)
	}
}

// grants refuses writing to the root or to a home directory as a whole. A layer
// over one shows all that is read there, and a commit writes to it.
func (j *judging) grants() {
	p := j.policy
	const hint = "grant the directories that are needed, not everything around them"
	j.written("filesystem.write", p.Filesystem.Write, hint)
	j.written("filesystem.cow", p.Filesystem.Cow, hint)
	ws := p.Workspace
	if dir := j.swallows(ws.Path); dir != "" && ws.Access != AccessNone {
		j.refuse(ws.Path.Pos, "workspace.path", fmt.Sprintf("the workspace %q holds all of %q", ws.Path.Abs, dir),
			"start in a project directory, or name one as workspace.path")
	}
	for _, r := range slices.Concat(p.Filesystem.Read, p.Filesystem.Exec) {
		if dir := j.swallows(r); dir != "" {
			j.warn(r.Pos, "filesystem", fmt.Sprintf("%q makes all of %q readable, secrets too", r.Text, dir), hint)
		}
	}
}

func (j *judging) written(key string, trees []Path, hint string) {
	for _, w := range trees {
		if dir := j.swallows(w); dir != "" && (dir == "/" || !j.policy.Filesystem.WholeHome) {
			j.refuse(w.Pos, key, fmt.Sprintf("%q would make %q writable", w.Text, dir), hint)
		}
	}
}

// swallows gives the directory of importance that lies at or below a path, by
// its literal or its resolved name, or "".
func (j *judging) swallows(p Path) string {
	g := j.place(p)
	for _, dir := range j.homes {
		for _, d := range []string{dir.Abs, dir.real} {
			// A pattern that takes any name in a directory takes the directory.
			if g.holds(d) || g.Glob && g.holds(filepath.Join(d, ".any-name")) {
				return dir.Abs
			}
		}
	}
	return ""
}

// place resolves each path once: that is most of the work here.
func (j *judging) place(p Path) place {
	g, ok := j.places[p.Abs]
	if !ok || g.Glob != p.Glob {
		g = newPlace(p)
		j.places[p.Abs] = g
	}
	return g
}

// resolve follows the symlinks of a path as far as it exists.
func resolve(path string) string {
	rest := ""
	for dir := path; ; {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if _, err := os.Lstat(dir); err == nil || dir == "/" || dir == "." {
			return path // a dangling or circular link
		}
		rest = filepath.Join(filepath.Base(dir), rest)
		dir = filepath.Dir(dir)
	}
}

// auditFile keeps the record outside of everything that is visible inside.
func (j *judging) auditFile() {
	file := j.policy.Audit.File
	if file.Abs == "" {
		j.refuse(file.Pos, "audit.file", "there is no place for the record", "set audit.file, or HOME")
		return
	}
	j.hidden("audit.file", file)
}

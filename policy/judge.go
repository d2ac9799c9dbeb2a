package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// judge looks at a whole policy for what is almost surely a mistake.
func judge(p Policy, o Options) (problems Problems, warnings []Problem) {
	j := judging{policy: p, homes: o.homes()}
	j.homeMismatch(o)
	j.grants()
	j.tlsModes()
	j.auditFile()
	return j.problems, j.warnings
}

type judging struct {
	policy   Policy
	homes    []string
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

// grants refuses writing to the root or to a home directory as a whole.
func (j *judging) grants() {
	p := j.policy
	const hint = "grant the directories that are needed, not everything around them"
	for _, w := range p.Filesystem.Write {
		if dir := j.swallows(w); dir != "" {
			j.refuse(w.Pos, "filesystem.write", fmt.Sprintf("%q would make %q writable", w.Text, dir), hint)
		}
	}
	ws := p.Workspace
	if dir := j.swallows(ws.Path); dir != "" && ws.Access != AccessNone {
		j.refuse(ws.Path.Pos, "workspace.path", fmt.Sprintf("the workspace %q holds all of %q", ws.Path.Abs, dir),
			"start in a project directory, or name one as workspace.path")
	}
	for key, list := range map[string][]Path{"filesystem.exec": p.Filesystem.Exec, "filesystem.read": p.Filesystem.Read} {
		for _, r := range list {
			if dir := j.swallows(r); dir != "" {
				j.warn(r.Pos, key, fmt.Sprintf("%q makes all of %q readable, secrets too", r.Text, dir), hint)
			}
		}
	}
}

// swallows gives the directory of importance that lies at or below a path, by
// its literal or its resolved name, or "".
func (j *judging) swallows(p Path) string {
	for _, dir := range append([]string{"/"}, j.homes...) {
		for _, d := range []string{dir, resolve(dir)} {
			// A pattern that takes any name in a directory takes the directory.
			if covers(p, d) || p.Glob && covers(p, filepath.Join(d, ".any-name")) {
				return dir
			}
		}
	}
	return ""
}

// covers tells whether a path, as written or with its symlinks resolved, is
// the directory or lies above it.
func covers(p Path, dir string) bool {
	for up := dir; ; up = filepath.Dir(up) {
		if p.Glob {
			if ok, err := doublestar.Match(p.Abs, up); ok || err != nil {
				return true
			}
		} else if p.Abs == up || resolve(p.Abs) == up {
			return true
		}
		if up == "/" || up == "." {
			return false
		}
	}
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

// tlsModes refuses two rules that want the same connection passed through and
// inspected: the second cannot be kept.
func (j *judging) tlsModes() {
	type key struct {
		host string
		port int
	}
	pass, inspect := map[key]Rule{}, map[key]Rule{}
	for _, r := range j.policy.Network.Rules {
		for _, host := range r.hosts() {
			for _, port := range r.Ports {
				k := key{host, port}
				switch {
				case r.TLS == TLSPass:
					pass[k] = r
				case r.Inspected():
					inspect[k] = r
				}
			}
		}
	}
	reported := map[string]bool{}
	for k, r := range inspect {
		other, both := pass[k]
		if id := r.Name + " " + other.Name; both && !reported[id] {
			reported[id] = true
			j.refuse(r.Pos, "network.rules", fmt.Sprintf("the rule %q inspects %s:%d, which the rule %q (%v) passes through", r.Name, k.host, k.port, other.Name, other.Pos),
				"give both rules the same tls mode")
		}
	}
	slices.SortFunc(j.problems, func(a, b Problem) int { return strings.Compare(a.Error(), b.Error()) })
}

// Inspected tells whether a rule needs to see requests inside TLS.
func (r Rule) Inspected() bool {
	return r.TLS == TLSInspect || r.Access != "" || r.AllowSet || len(r.Allow) > 0 || len(r.Deny) > 0
}

// hosts lists what the rule matches; "" stands for any.
func (r Rule) hosts() []string {
	if r.Any {
		return []string{""}
	}
	if len(r.Hosts) == 0 {
		return []string{r.Host}
	}
	var hs []string
	for _, h := range r.Hosts {
		hs = append(hs, h.Text)
	}
	return hs
}

// auditFile keeps the record outside of everything that is visible inside.
func (j *judging) auditFile() {
	file := j.policy.Audit.File
	if file.Abs == "" {
		j.refuse(file.Pos, "audit.file", "there is no place for the record", "set audit.file, or HOME")
		return
	}
	for _, g := range j.policy.Granted() {
		if covers(g, file.Abs) || covers(g, resolve(file.Abs)) {
			pos := file.Pos
			if pos == (Pos{}) {
				pos = g.Pos
			}
			j.refuse(pos, "audit.file", fmt.Sprintf("%q lies under %q, which is visible inside", file.Abs, g.Text), "keep the record elsewhere: audit.file")
		}
	}
}

package view

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// tree is a place that is visible, with what the policy opens there.
type tree struct {
	path        string
	write, exec bool
}

// model is what the policy's text says about files, worked out without the
// package that compiles plans.
type model struct {
	host      []tree // trees of the host
	private   []tree // the sandbox's own, empty at first
	made      []string
	hidden    []string
	protected []string
	own       map[string]string // path → kind and rights of the fixed entries
}

// madeFiles are the launcher's own small files.
var madeFiles = []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/machine-id"}

// javaStore is made where a Java trust store lies in view and TLS is inspected.
const javaStore = "/run/hermes-wrap/cacerts"

// covers are what lies over hidden entries: empty, and closed to everybody.
var covers = map[string]string{
	"/run/hermes-wrap": "d r", "/run/hermes-wrap/hidden-file": "f -", "/run/hermes-wrap/hidden-directory": "d -", "/run/hermes-wrap/no-landlock-rule": "f -",
}

// devEntries is the whole of /dev. /dev/tty cannot be opened without a
// controlling terminal.
var devEntries = map[string]string{
	"/dev": "d r", "/dev/null": "c rw", "/dev/zero": "c rw", "/dev/full": "c rw", "/dev/random": "c rw", "/dev/urandom": "c rw",
	"/dev/tty": "c -", "/dev/pts": "d r", "/dev/pts/ptmx": "c rw", "/dev/shm": "d rw", "/dev/mqueue": "d rw",
	"/dev/ptmx": "l -", "/dev/fd": "l -", "/dev/stdin": "l -", "/dev/stdout": "l -", "/dev/stderr": "l -",
}

func newModel(p policy.Policy, home, runtime, program string, inspects bool) model {
	m := model{own: devEntries}
	add := func(list []policy.Path, write, exec bool) {
		for _, path := range list {
			for _, real := range places(path) {
				m.host = append(m.host, tree{real, write, exec})
			}
		}
	}
	f := p.Filesystem
	add(f.Read, false, false)
	add(f.Write, true, false)
	add(f.Exec, false, true)
	if p.Workspace.Access != policy.AccessNone && p.Workspace.Access != "" {
		add([]policy.Path{p.Workspace.Path}, p.Workspace.Access == policy.AccessWrite, p.Workspace.Exec)
	}
	// The command itself can always be executed.
	m.host = append(m.host, tree{program, false, true})
	for _, path := range []string{"/tmp", "/var/tmp", runtime} {
		m.private = append(m.private, tree{path, true, f.TmpExec})
	}
	if f.Home == "private" {
		m.private = append(m.private, tree{home, true, f.TmpExec})
	}
	for _, path := range f.Hide {
		m.hidden = append(m.hidden, places(path)...)
	}
	for _, path := range f.Protect {
		m.protected = append(m.protected, places(path)...)
	}
	m.made = slices.Clone(madeFiles)
	if inspects {
		m.made = append(m.made, "/run/hermes-wrap/ca-bundle.pem")
	}
	return m
}

// places gives the real paths that exist on the host for one path of a policy.
func places(p policy.Path) (out []string) {
	paths := []string{p.Abs}
	if p.Glob {
		paths, _ = filepath.Glob(strings.TrimSuffix(p.Abs, "/**"))
	}
	for _, path := range paths {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			out = append(out, real)
		}
	}
	return out
}

func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

func underAny(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(path, r) })
}

// rights adds up what the host's trees open at a path.
func (m model) rights(path string) (visible, write, exec bool) {
	for _, t := range m.host {
		if within(path, t.path) {
			visible, write, exec = true, write || t.write, exec || t.exec
		}
	}
	return visible, write && !underAny(path, m.protected), exec
}

// want gives the kind and the rights that an entry must have inside; "" means
// that it must not be there. outside is what the account can do with the same
// entry of the host.
func (m model) want(e entry, outside map[string]entry) string {
	if fixed, ok := m.own[e.path]; ok {
		return fixed
	}
	if underAny(e.path, m.hidden) {
		if slices.Contains(m.hidden, e.path) {
			return e.kind + " -"
		}
		return ""
	}
	if visible, write, exec := m.rights(e.path); visible {
		return inHostTree(outside, e.path, write, exec)
	}
	for _, t := range m.private {
		if within(e.path, t.path) {
			return m.inPrivate(e, t)
		}
	}
	switch {
	case e.kind == "l" && sameLink(e.path):
		return "l -"
	case covers[e.path] != "":
		return covers[e.path]
	case slices.Contains(m.made, e.path) || e.path == javaStore:
		return "f r"
	case m.leadsTo(e.path):
		return "d r"
	}
	return ""
}

func inHostTree(outside map[string]entry, path string, write, exec bool) string {
	o, ok := outside[path]
	if !ok {
		return ""
	}
	can := ""
	if strings.Contains(o.can, "r") {
		can = "r"
	}
	if write && strings.Contains(o.can, "w") {
		can += "w"
		if o.kind == "d" && exec {
			can += "X"
		}
	}
	if exec && strings.Contains(o.can, "x") {
		can += "x"
	}
	return o.kind + " " + orNone(can)
}

// inPrivate holds nothing but the directories that lead to something granted.
func (m model) inPrivate(e entry, t tree) string {
	if e.path != t.path && !m.leadsTo(e.path) {
		return ""
	}
	if t.exec {
		return "d rwX"
	}
	return "d rw"
}

// leadsTo tells whether something visible lies below a directory.
func (m model) leadsTo(dir string) bool {
	below := func(path string) bool { return within(path, dir) && path != dir }
	isTree := func(t tree) bool { return below(t.path) }
	if slices.ContainsFunc(m.host, isTree) || slices.ContainsFunc(m.private, isTree) || slices.ContainsFunc(m.made, below) {
		return true
	}
	return dir == "/" || dir == "/proc" || dir == "/dev"
}

// sameLink accepts a symlink that the host has at the same place: it opens
// nothing by itself.
func sameLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// mayMove tells whether renaming an entry is within the policy: its directory
// can be written, and nothing at or below it is covered.
func (m model) mayMove(path string) bool {
	covered := func(c string) bool { return within(c, path) }
	if slices.ContainsFunc(m.hidden, covered) || slices.ContainsFunc(m.protected, covered) {
		return false
	}
	return m.mayChange(filepath.Dir(path))
}

// mayChange tells whether an entry's own attributes are the sandbox's to change.
func (m model) mayChange(path string) bool {
	if underAny(path, m.hidden) {
		return false
	}
	if visible, write, _ := m.rights(path); visible {
		return write
	}
	if underAny(path, []string{"/dev/pts", "/dev/shm", "/dev/mqueue"}) {
		return true
	}
	return slices.ContainsFunc(m.private, func(t tree) bool { return within(path, t.path) })
}

func orNone(can string) string {
	if can == "" {
		return "-"
	}
	return can
}

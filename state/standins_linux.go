package state

import (
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// standIn is a path of the tree that stands for one that the table knows, since
// a link of the host or git's configuration leads there. Both are folded.
type standIn struct{ path, as string }

// standIns are those of one tree.
type standIns []standIn

// runs is Runs for the path itself and for what it stands for.
func (s standIns) runs(rel string) string {
	if by := Runs(rel); by != "" || len(s) == 0 {
		return by
	}
	p := fold(rel)
	for _, one := range s {
		if under(p, []string{one.path}) {
			if by := Runs(one.as + p[len(one.path):]); by != "" {
				return by
			}
		}
	}
	return ""
}

// above tells whether an entry of the table, or what stands for one, may lie
// below a path. A link in that place puts all of it there at once.
func (s standIns) above(rel string) bool {
	p := fold(rel)
	_, last := split(p)
	if inProgramDir(last) || table().above[last] || strings.Contains("/"+p, "/.git/") {
		return true
	}
	for _, one := range s {
		if under(one.path, []string{p}) {
			return true
		}
	}
	return false
}

// Bounds of the search for what stands for entries of the table.
const (
	standInEntries = 20_000 // of one directory
	standInHops    = 40
	standInMost    = 1000 // each is compared with each change
	gitConfigDepth = 5
	gitConfigBytes = 64 << 10
)

// hostTree is the host's tree while it is searched for them.
type hostTree struct {
	root  int
	path  string
	found standIns
}

// findStandIns follows the host's links at the top of the tree and in the
// directories of the table, and git's configuration.
func findStandIns(root int, at string) standIns {
	t := hostTree{root: root, path: at}
	t.links("")
	for dir := range table().above {
		t.links(dir)
	}
	t.config(".git/config", 0)
	return t.found
}

// links looks at the links of one directory.
func (t *hostTree) links(dir string) {
	fd, err := openBelow(t.root, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	entries, _ := readEntries(fd, standInEntries)
	for _, e := range entries {
		if rel := below(dir, e.Name()); e.Type() == os.ModeSymlink && (Runs(rel) != "" || standIns(nil).above(rel)) {
			t.follow(rel, rel)
		}
	}
}

// follow notes each place that a path leads to.
func (t *hostTree) follow(rel, as string) {
	var done []string
	todo := strings.Split(rel, "/")
	for hops := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && len(done) == 0:
			return
		case part == "..":
			done = done[:len(done)-1]
			continue
		}
		at := path.Join(append(done[:len(done):len(done)], part)...)
		target, is := t.link(at)
		if !is {
			done = append(done, part)
			continue
		}
		if hops++; hops > standInHops {
			return
		}
		if target, is = t.inTree(target); !is {
			return
		}
		if strings.HasPrefix(target, "/") {
			done = nil
		}
		todo = append(strings.Split(target, "/"), todo...)
		t.note(path.Join(path.Join(done...), path.Join(todo...)), as)
	}
	t.note(path.Join(done...), as)
}

func (t *hostTree) note(rel, as string) {
	if len(t.found) < standInMost && rel != "" && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") && rel != as {
		t.found = append(t.found, standIn{fold(rel), fold(as)})
	}
}

// inTree gives an absolute path as one from the tree's top, with a slash before it.
func (t *hostTree) inTree(target string) (string, bool) {
	if !strings.HasPrefix(target, "/") {
		return target, true
	}
	rest, ok := strings.CutPrefix(target, strings.TrimSuffix(t.path, "/"))
	return "/" + strings.TrimLeft(rest, "/"), ok && (rest == "" || rest[0] == '/')
}

func (t *hostTree) link(rel string) (target string, is bool) {
	dir, name := split(rel)
	fd, err := openBelow(t.root, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	target, err = readLink(fd, name)
	return target, err == nil
}

// config follows what a configuration of git names.
func (t *hostTree) config(rel string, depth int) {
	f, err := openFile(t.root, rel, unix.O_RDONLY)
	if err != nil || depth > gitConfigDepth {
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, gitConfigBytes))
	if err != nil {
		return
	}
	for _, s := range parseGitConfig(string(b)) {
		target, in := t.inTree(s.value)
		switch {
		case !in || target == "":
		case s.section == "core" && s.key == "hookspath":
			t.follow(path.Clean(target), ".git/hooks")
		case strings.HasPrefix(s.section, "include") && s.key == "path":
			if target[0] != '/' {
				target = path.Join(path.Dir(rel), target)
			}
			target = strings.TrimPrefix(target, "/")
			t.follow(target, ".git/config")
			t.config(target, depth+1)
		}
	}
}

package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// chain is what a command needs in view to start: the file itself, its
// interpreter, that one's loader and libraries, and the installations they
// belong to (a virtual environment, a Node or Python prefix). The first-run
// failure of comparable tools is an allowed launcher whose interpreter lies
// somewhere else.
type chain struct {
	program string   // as found on PATH, symlinks kept
	paths   []string // to grant for reading and execution, in order
	missing []string // what a link of the chain names and the host lacks
	seen    map[string]bool

	home, search string
	// writable tells whether an earlier run could have written a file. What
	// such a file names is no reason to show a directory: one line in a .pth
	// file of the workspace would open any directory to the next run.
	writable func(real string) bool
}

// ErrNotFound and ErrNotExecutable tell the two ends of a failed look-up apart
// (exit codes 127 and 126).
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("not executable")
)

// lookup finds a command as execvp(3) would with the given PATH.
func lookup(name, path, cwd string) (string, error) {
	if name == "" {
		return "", ErrNotFound
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		return name, executable(name)
	}
	found := ErrNotFound
	for _, dir := range filepath.SplitList(path) {
		if dir == "" || !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
		candidate := filepath.Join(dir, name)
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if errors.Is(err, ErrNotExecutable) {
			found = err
		}
	}
	return "", found
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return ErrNotFound
	}
	if st.IsDir() || unix.Access(path, unix.X_OK) != nil {
		return ErrNotExecutable
	}
	return nil
}

// followChain resolves everything that program needs to start. search is the
// PATH inside.
func followChain(program, home, search string, writable func(real string) bool) chain {
	c := chain{program: program, seen: map[string]bool{}, home: home, search: search, writable: writable}
	c.follow(program, 0)
	return c
}

const maxChain = 8 // shebang of a shebang of a shim …

func (c *chain) follow(path string, depth int) {
	if depth > maxChain || c.seen[path] {
		return
	}
	c.seen[path] = true
	r, err := resolve(path)
	if err != nil {
		c.missing = append(c.missing, path)
		return
	}
	// Whatever names it, only a program is shown: a "#!" line can name a secret.
	if executable(r.real) != nil {
		return
	}
	c.add(path)
	// Each symlink of the way may itself be the door to an installation: a
	// virtual environment is found from the link, its prefix from the target.
	for _, p := range append(linkPaths(r), path, r.real) {
		for _, dir := range c.installation(p) {
			c.add(dir)
		}
	}
	head, err := readHead(r.real)
	if err != nil {
		return
	}
	next := interpreters(head, c.search)
	for _, p := range next {
		c.follow(p, depth+1)
	}
	for _, p := range shimTargets(head) {
		if executable(p) == nil { // the line may be one that never runs
			c.follow(p, depth+1)
		}
	}
	if len(next) == 0 {
		c.followELF(r.real)
	}
}

func (c *chain) followELF(path string) {
	loader, dirs := elfNeeds(path)
	if executable(loader) == nil {
		c.add(loader)
	}
	if c.writable(path) {
		return
	}
	for _, dir := range dirs {
		c.add(dir)
	}
}

func (c *chain) add(path string) {
	if !slices.Contains(c.paths, path) {
		c.paths = append(c.paths, path)
	}
}

func linkPaths(r resolved) (out []string) {
	for _, l := range r.links {
		out = append(out, l.path)
	}
	return out
}

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// interpreters gives the programs of a "#!" line: the interpreter and, with
// env(1), what env will find on the search path.
func interpreters(head []byte, search string) (out []string) {
	if !bytes.HasPrefix(head, []byte("#!")) {
		return nil
	}
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	fields := strings.Fields(string(line))
	for _, f := range fields {
		if filepath.IsAbs(f) {
			out = append(out, f)
		}
	}
	if len(out) != 1 || filepath.Base(fields[0]) != "env" {
		return out
	}
	for _, f := range fields[1:] {
		if strings.HasPrefix(f, "-") || strings.Contains(f, "=") {
			continue
		}
		if found, err := lookup(f, search, "/"); err == nil {
			f = found
		}
		return append(out, f)
	}
	return out
}

// shimTargets finds what a short shell shim executes: an "exec /absolute/path"
// line, as installers write into ~/.local/bin.
func shimTargets(head []byte) (out []string) {
	if len(head) == 4096 {
		return nil // not a shim
	}
	s := bufio.NewScanner(bytes.NewReader(head))
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) >= 2 && f[0] == "exec" {
			if p := strings.Trim(f[1], `"'`); filepath.IsAbs(p) {
				out = append(out, filepath.Clean(p))
			}
		}
	}
	return out
}

// elfNeeds gives the loader and the directories of libraries that lie outside
// the system's own places (RPATH and RUNPATH).
func elfNeeds(path string) (loader string, dirs []string) {
	loader, lists := readELF(path)
	origin := strings.NewReplacer("${ORIGIN}", filepath.Dir(path), "$ORIGIN", filepath.Dir(path))
	for _, list := range lists {
		for _, dir := range filepath.SplitList(list) {
			if dir = origin.Replace(dir); filepath.IsAbs(dir) {
				dirs = append(dirs, filepath.Clean(dir))
			}
		}
	}
	return loader, dirs
}

// installation gives the directories that belong to a program in some bin/: a
// virtual environment with its base interpreter and its editable sources, or a
// prefix with a Python or Node library. It never gives a home directory, the
// root or a shared place such as ~/.local.
func (c *chain) installation(program string) (out []string) {
	bin := filepath.Dir(program)
	prefix := filepath.Dir(bin)
	if c.shared(prefix) {
		return nil
	}
	config := filepath.Join(prefix, "pyvenv.cfg")
	if b, err := os.ReadFile(config); err == nil {
		out = append(out, prefix)
		if base := venvHome(b); base != "" {
			out = append(out, c.installation(filepath.Join(base, "python3"))...)
		}
		if r, err := resolve(config); err != nil || c.writable(r.real) {
			return out
		}
		return append(out, editableSources(prefix)...)
	}
	if filepath.Base(bin) != "bin" {
		return nil
	}
	for _, mark := range []string{"lib/python3*", "lib/node_modules", "lib/jvm", "lib/modules"} {
		if m, err := filepath.Glob(filepath.Join(prefix, mark)); err == nil && len(m) > 0 {
			return append(out, prefix)
		}
	}
	return out
}

// shared tells whether a prefix holds much more than one installation. It is
// judged by what it is: a symlink of another name leads to the same directory.
func (c *chain) shared(prefix string) bool {
	p, err := resolve(prefix)
	if err != nil || slices.Contains([]string{"/", "/usr", "/usr/local"}, p.real) {
		return true
	}
	home, _ := resolve(c.home)
	local, _ := resolve(filepath.Join(c.home, ".local"))
	return within(home.real, p.real) || within(c.home, p.real) || p.real == local.real
}

// venvHome reads the "home" key of pyvenv.cfg (PEP 405).
func venvHome(cfg []byte) string {
	for line := range strings.Lines(string(cfg)) {
		k, v, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(k) == "home" && filepath.IsAbs(strings.TrimSpace(v)) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// editableSources gives the directories that .pth files of a virtual
// environment add to the path: where an editable install keeps its code.
func editableSources(venv string) (out []string) {
	files, err := filepath.Glob(filepath.Join(venv, "lib/python3*/site-packages/*.pth"))
	if err != nil {
		return nil
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || len(b) > 64<<10 {
			continue
		}
		for line := range strings.Lines(string(b)) {
			dir := strings.TrimSpace(line)
			if st, err := os.Stat(dir); filepath.IsAbs(dir) && err == nil && st.IsDir() && dir != "/" {
				out = append(out, filepath.Clean(dir))
			}
		}
	}
	return out
}

// explainMissing says which link of the chain is broken.
func (c chain) explainMissing() error {
	if len(c.missing) == 0 {
		return nil
	}
	return fmt.Errorf("%q needs %q, which does not exist: %w", c.program, c.missing[0], fs.ErrNotExist)
}

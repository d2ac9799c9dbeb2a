package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// secretFiles are the files of the home directory with a token each.
var secretFiles = strings.Fields(`.ssh/id_ed25519 .aws/credentials .netrc .npmrc .pypirc .docker/config.json .kube/config
 .git-credentials .gnupg/private .config/gh/hosts.yml .cargo/credentials.toml .bash_history .hermes/.env .hermes/auth.json .zshrc`) //nolint:gochecknoglobals // a constant

// place is the directory of one run and what is in it.
type place struct {
	Dir     string // all of it; readable bare, not granted
	Home    string // HOME, with the secrets
	Work    string // the workspace, and where the host script starts
	Outside string // a directory that is nobody's business inside
	State   string // XDG directories of the launcher

	tokens  tokens
	home    tree
	outside tree
	guarded tree
}

// newPlace makes everything new, with new tokens.
func newPlace(base, name string, a account) (*place, error) {
	dir := filepath.Join(base, name)
	p := &place{Dir: dir, tokens: tokens{}}
	p.Home, p.Work = filepath.Join(dir, "home"), filepath.Join(dir, "ws")
	p.Outside, p.State = filepath.Join(dir, "outside"), filepath.Join(dir, "state")
	m := maker{}
	for _, file := range secretFiles {
		m.write(filepath.Join(p.Home, file), "token = "+p.tokens.fresh("home/"+file)+"\n", 0o600)
	}
	m.write(filepath.Join(p.Outside, "secret"), p.tokens.fresh("outside/secret")+"\n", 0o644)
	m.write(filepath.Join(p.Outside, "file"), "as it was\n", 0o644)
	for _, name := range []string{"api", "llm"} {
		p.tokens.fresh("credential " + name)
		p.tokens.fresh("placeholder " + name)
	}
	for name, text := range repository {
		m.write(filepath.Join(p.Work, name), text, 0o644)
	}
	m.chmod(filepath.Join(p.Work, ".git/hooks/pre-commit"), 0o755)
	for _, d := range []string{".git/objects/info", ".git/objects/pack", ".git/refs/heads", ".git/refs/tags"} {
		m.dir(filepath.Join(p.Work, d))
	}
	for _, d := range []string{"run", "config", "state", "cache", "data"} {
		m.dir(filepath.Join(p.State, d))
		m.chmod(filepath.Join(p.State, d), 0o700)
	}
	m.chmod(p.Home, 0o700)
	m.own(dir, a)
	return p, errors.Join(m.errs...)
}

// repository is what git takes for one of its own, without starting git.
var repository = map[string]string{ //nolint:gochecknoglobals // a constant
	"README.md":             "A project.\n",
	"src/main.py":           "print('hello')\n",
	".git/HEAD":             "ref: refs/heads/main\n",
	".git/config":           "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[user]\n\tname = n\n\temail = e@example.org\n",
	".git/description":      "a project\n",
	".git/info/exclude":     "probe/\n",
	".git/hooks/pre-commit": "#!/bin/sh\nexit 0\n",
}

// arm notes how things are: from here on a change counts.
func (p *place) arm() error {
	var err, err2, err3 error
	p.home, err = snapshot(p.Home, nil)
	p.outside, err2 = snapshot(p.Outside, nil)
	p.guarded, err3 = guarded(p.Work)
	return errors.Join(err, err2, err3)
}

// touched says which canaries of the file system were touched since.
func (p *place) touched(configuration string) ([]string, error) {
	var out []string
	note := func(where string, was tree, now tree) {
		for _, what := range was.changed(now) {
			if overlooked(configuration, where, what) {
				continue
			}
			out = append(out, where+"/"+what)
		}
	}
	home, err := snapshot(p.Home, nil)
	note("home", p.home, home)
	outside, err2 := snapshot(p.Outside, nil)
	note("outside", p.outside, outside)
	git, err3 := guarded(p.Work)
	note("workspace", p.guarded, git)
	for _, where := range p.tokens.leaked(p.Work) {
		if strings.HasPrefix(where, "placeholder ") {
			continue
		}
		out = append(out, "the token of "+where+" in the workspace")
	}
	return out, errors.Join(err, err2, err3)
}

// remove clears the place away, read-only directories included.
func (p *place) remove() { removeAll(p.Dir) }

func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // #nosec: a directory of this run
		}
		return nil //nolint:nilerr // what is gone is gone
	})
	_ = os.RemoveAll(dir)
}

// maker makes files and collects what went wrong.
type maker struct{ errs []error }

func (m *maker) add(err error) {
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) dir(path string) { m.add(os.MkdirAll(path, 0o755)) }

func (m *maker) write(path, text string, mode fs.FileMode) {
	m.dir(filepath.Dir(path))
	m.add(os.WriteFile(path, []byte(text), mode))
}

func (m *maker) chmod(path string, mode fs.FileMode) { m.add(os.Chmod(path, mode)) }

// own gives a tree to the account.
func (m *maker) own(dir string, a account) {
	if a.credential() == nil {
		return
	}
	m.add(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.UID, a.GID)
	}))
}

// install copies a file, by a link where both are on one file system.
func install(from, to string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		return fmt.Errorf("install %q: %w", from, err)
	}
	return os.Chmod(to, mode)
}

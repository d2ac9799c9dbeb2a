package escape

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
)

// tokens are the secrets of one run, by where they lie.
type tokens map[string]string

// fresh makes a token that was never there before. Small letters and digits
// survive in a DNS name.
func (t tokens) fresh(where string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	t[where] = "canary" + hex.EncodeToString(b)
	return t[where]
}

// in says which secrets stand in the bytes.
func (t tokens) in(b []byte) []string {
	if !bytes.Contains(b, []byte("canary")) {
		return nil
	}
	var out []string
	for where, token := range t {
		if bytes.Contains(b, []byte(token)) {
			out = append(out, where)
		}
	}
	sort.Strings(out)
	return out
}

// entry is all of a file that must not change. Times of reading are no change.
type entry struct {
	Mode  fs.FileMode
	UID   uint32
	GID   uint32
	Links uint64
	Time  syscall.Timespec
	Size  int64
	Sum   string
}

// tree is what lies below a directory, by relative path.
type tree map[string]entry

// snapshot looks at everything below a directory that skip does not name.
func snapshot(dir string, skip func(rel string) bool) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if relErr != nil {
			return relErr
		}
		if skip != nil && skip(rel) {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if err != nil {
			t[rel] = entry{Sum: err.Error()}
			return nil //nolint:nilerr // what cannot be looked at is a state too
		}
		t[rel] = look(path)
		return nil
	})
	return t, err
}

func look(path string) entry {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{Sum: err.Error()}
	}
	e := entry{Mode: info.Mode(), Size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID, e.Links, e.Time = st.Uid, st.Gid, uint64(st.Nlink), st.Mtim
	}
	switch {
	case info.Mode().IsRegular() && info.Size() < 1<<20:
		b, _ := os.ReadFile(path)
		sum := sha256.Sum256(b)
		e.Sum = hex.EncodeToString(sum[:8])
	case info.Mode()&fs.ModeSymlink != 0:
		e.Sum, _ = os.Readlink(path)
	}
	return e
}

// changed says what is different in the second tree.
func (t tree) changed(now tree) []string {
	var out []string
	for path, was := range t {
		is, there := now[path]
		switch {
		case !there:
			out = append(out, path+" removed")
		case is != was:
			out = append(out, path+" changed"+difference(was, is))
		}
	}
	for path := range now {
		if _, there := t[path]; !there {
			out = append(out, path+" created")
		}
	}
	sort.Strings(out)
	return out
}

func difference(was, is entry) string {
	switch {
	case was.Mode != is.Mode:
		return fmt.Sprintf(" (mode %v, was %v)", is.Mode, was.Mode)
	case was.UID != is.UID || was.GID != is.GID:
		return " (owner)"
	case was.Sum != is.Sum || was.Size != is.Size:
		return ""
	case was.Links != is.Links:
		return " (links)"
	}
	return " (time)"
}

// leaked says which secrets lie in regular files below a directory.
func (t tokens) leaked(dir string) []string {
	var out []string
	budget := int64(32 << 20)
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || budget < 0 {
			return nil //nolint:nilerr // a file that went away holds nothing
		}
		b, err := readStart(path, 1<<20)
		budget -= int64(len(b))
		if err == nil {
			out = append(out, t.in(b)...)
		}
		return nil
	})
	sort.Strings(out)
	return slices.Compact(out)
}

// readStart reads a regular file; one that became a pipe meanwhile does not
// hold us up.
func readStart(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(&limited{f, most})
	return b.Bytes(), err
}

type limited struct {
	f    *os.File
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("read %q: too long", l.f.Name())
	}
	n, err := l.f.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// protected are the entries of a workspace that something outside executes or
// obeys later.
var protected = strings.Fields(`.git/hooks .git/config .git/config.worktree .git/commondir .git/modules .githooks .husky
 .pre-commit-config.yaml lefthook.yml .envrc .mise.toml mise.toml .mise .tool-versions .vscode .idea .devcontainer
 .devcontainer.json .zed .nvim.lua .nvimrc .exrc .hermes .hermes-wrap.yaml .mcp.json .claude CLAUDE.md AGENTS.md GEMINI.md
 .codex .cursor .cursorrules .gemini .opencode opencode.json .aider.conf.yml`) //nolint:gochecknoglobals // a constant

// guarded looks at the protected entries of a workspace.
func guarded(ws string) (tree, error) {
	all := tree{}
	for _, name := range protected {
		if _, err := os.Lstat(filepath.Join(ws, name)); err != nil {
			continue
		}
		t, err := snapshot(filepath.Join(ws, name), nil)
		if err != nil {
			return nil, err
		}
		for path, e := range t {
			if strings.HasPrefix(e.Mode.String(), "d") {
				e.Time, e.Links = syscall.Timespec{}, 0
			}
			all[filepath.Join(name, path)] = e
		}
	}
	return all, nil
}

package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// gitFileSize bounds what is read of a .git file: a path and a few words.
const gitFileSize = 16 << 10

// keepPointed protects for an entry below a .git the same entry wherever else
// git looks for it (gitrepository-layout(5)). Where .git is a file, as in a linked
// worktree, that is in the directory that the file names and in the one whose
// configuration and hooks that one shares, and the file itself is protected too.
// What each linked worktree has of its own lies in a directory of its own: the
// worktree may be outside, where the user runs git.
func (v *view) keepPointed(literal, rule string, pos policy.Pos) error {
	at := strings.Index(literal, "/.git/")
	if at < 0 {
		return nil
	}
	pointer, rest := literal[:at+len("/.git")], literal[at+len("/.git/"):]
	dirs := gitDirs(pointer)
	names := []string{}
	for _, dir := range dirs {
		names = append(names, filepath.Join(dir, rest))
	}
	if len(names) > 0 {
		names = append(names, pointer)
	}
	for _, dir := range append(dirs, pointer) {
		names = append(names, ofWorktrees(dir, rest)...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		r, err := resolve(name)
		// A repository may hold hard links anywhere that is read-only inside.
		if _, writable := v.writableAbove(r.real); !writable {
			continue
		}
		if err := v.keepEntry(r, err, rule, pos); err != nil {
			return err
		}
	}
	return nil
}

// ofWorktrees gives an entry as the linked worktrees of a repository have it,
// none when they share it.
func ofWorktrees(dir, entry string) (out []string) {
	if entry != "commondir" && entry != "config.worktree" {
		return nil
	}
	// One that cannot be read has none that git could use.
	entries, _ := os.ReadDir(filepath.Join(dir, "worktrees"))
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, "worktrees", e.Name(), entry))
		}
	}
	return out
}

// gitDirs gives the directories that a .git file leads to, none when it is no
// such file.
func gitDirs(pointer string) []string {
	text, ok := strings.CutPrefix(readLine(pointer), "gitdir: ")
	if !ok || text == "" {
		return nil
	}
	dir := below(filepath.Dir(pointer), text)
	if shared := readLine(filepath.Join(dir, "commondir")); shared != "" {
		return []string{dir, below(dir, shared)}
	}
	return []string{dir}
}

func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// readLine gives a small regular file without its line end, "" for anything
// else: whoever wrote the workspace may have left a FIFO there.
func readLine(path string) string {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, gitFileSize))
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(b), "\r\n")
}

package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// gitFileSize bounds what is read of a .git file: a path and a few words.
const gitFileSize = 16 << 10

// keepPointed protects for an entry below a .git that is a file, as in a linked
// worktree (gitrepository-layout(5)), the file itself and the same entry where
// git looks for it: in the directory that the file names, and in the one whose
// configuration and hooks that one shares.
func (v *view) keepPointed(literal, rule string, pos policy.Pos) error {
	at := strings.Index(literal, "/.git/")
	if at < 0 {
		return nil
	}
	pointer, rest := literal[:at+len("/.git")], literal[at+len("/.git/"):]
	names := []string{}
	for _, dir := range gitDirs(pointer) {
		names = append(names, filepath.Join(dir, rest))
	}
	if len(names) > 0 {
		names = append(names, pointer)
	}
	for _, name := range names {
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

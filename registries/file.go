package registries

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// file reads a configuration file. One that does not exist is empty.
func (r *reading) file(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", nil
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	for _, p := range []string{filepath.Clean(path), real} {
		if r.inWorkspace(p) {
			return "", Trouble{fmt.Sprintf("%q lies in the workspace, where the agent could write it", path), "keep it elsewhere"}
		}
	}
	f, err := os.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	if err := ownAlone(path, f); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	if len(text) > maxFile {
		return "", Trouble{fmt.Sprintf("%q is longer than %d bytes", path, maxFile), ""}
	}
	r.believe = append(r.believe, path)
	return string(text), nil
}

// ownAlone wants a file that only the user and root can change.
func ownAlone(path string, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.Mode().IsRegular() || !ok:
		return Trouble{fmt.Sprintf("%q is not a regular file", path), ""}
	case sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		return Trouble{fmt.Sprintf("%q belongs to another user", path), "make it yours, or remove it"}
	case st.Mode().Perm()&0o002 != 0:
		return Trouble{fmt.Sprintf("%q is writable by everybody", path), "chmod o-w it"}
	}
	return nil
}

func (r *reading) inWorkspace(path string) bool {
	for _, ws := range []string{filepath.Clean(r.Workspace), realOf(r.Workspace)} {
		if r.Workspace != "" && (path == ws || strings.HasPrefix(path, strings.TrimSuffix(ws, "/")+"/")) {
			return true
		}
	}
	return false
}

func realOf(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// installed gives the directory that holds a program's file, links followed, or
// "". What lies in the workspace is no installed program.
func (r *reading) installed(name string) string {
	for _, dir := range filepath.SplitList(r.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err == nil && !r.inWorkspace(dir) && !r.inWorkspace(real) {
			return filepath.Dir(real)
		}
	}
	return ""
}

// entry is one "key = value" of a file in lines.
type entry struct {
	section, key, value string
	line                int
}

// ini reads "key = value" lines under "[section]" headers, with ";" and "#" for
// comments. A line that begins with a space goes on with the value before it.
func ini(text string) (entries []entry) {
	section := ""
	for i, raw := range strings.Split(text, "\n") {
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = strings.TrimSpace(line[1 : len(line)-1])
		case (raw[0] == ' ' || raw[0] == '\t') && len(entries) > 0 && !strings.Contains(line, " = "):
			entries[len(entries)-1].value += "\n" + line
		default:
			key, value, _ := strings.Cut(line, "=")
			value = strings.TrimSpace(value)
			if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
				value = value[1 : n-1]
			}
			entries = append(entries, entry{section, strings.TrimSpace(key), value, i + 1})
		}
	}
	return entries
}

// config is the user's configuration directory.
func (r *reading) config() string {
	if d := r.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return d
	}
	return filepath.Join(r.Home, ".config")
}

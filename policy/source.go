package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// text is the bytes of one policy and where they came from.
type text struct {
	// name is "builtin:strict" or an absolute path.
	name string
	// label is how positions name the file: as the user wrote it.
	label string
	data  []byte
	// id tells whether two names are one file; nil for built-ins.
	id os.FileInfo
	// warnings are findings about the file itself.
	warnings []Problem
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// find locates the policy that the command line asked for.
func (o Options) find() (text, error) {
	arg := o.Arg
	if arg == "" {
		if o.Given {
			return text{}, Problems{{Pos: Pos{File: "flag --policy"}, What: "the value is empty", Hint: "name a policy file or a policy"}}
		}
		return o.findName(o.defaultName())
	}
	path := arg
	if !filepath.IsAbs(path) {
		path = filepath.Join(o.Cwd, path)
	}
	if strings.Contains(arg, "/") || arg == "." || arg == ".." {
		return o.readPolicy(path, arg)
	}
	if name, ok := strings.CutPrefix(arg, "builtin:"); ok {
		return o.builtin(name)
	}
	fi, err := os.Stat(path)
	if err == nil && !fi.IsDir() {
		return o.readPolicy(path, arg)
	}
	// A directory called "ci" does not hide the policy called "ci".
	return o.findName(arg)
}

// findName looks a name up in the search directories, then in the built-ins,
// with or without its ".yaml".
func (o Options) findName(name string) (text, error) {
	stem := strings.TrimSuffix(name, ".yaml")
	for _, dir := range o.searchDirs() {
		path := filepath.Join(dir, stem+".yaml")
		switch _, err := os.Lstat(path); {
		case err == nil:
			return o.readPolicy(path, path)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return text{}, fileProblem(path, err)
		}
	}
	if t, err := o.builtin(stem); err == nil {
		return t, nil
	}
	return text{}, Problems{{
		Pos: Pos{File: name}, What: "no such policy",
		Hint: "it is neither a file here nor a name in " + strings.Join(o.searchDirs(), ", ") + " or among the built-ins",
	}}
}

func (o Options) builtin(name string) (text, error) {
	if o.Builtin != nil {
		if data, ok := o.Builtin(name); ok {
			return text{name: "builtin:" + name, label: "builtin:" + name, data: data}, nil
		}
	}
	return text{}, Problems{{Pos: Pos{File: "builtin:" + name}, What: "no such built-in policy", Hint: "check the spelling"}}
}

// readPolicy reads a user's policy file, which must be nobody else's.
func (o Options) readPolicy(path, label string) (text, error) {
	data, fi, err := readRegular(path, 0)
	if err != nil {
		return text{}, fileProblem(label, err)
	}
	t := text{name: filepath.Clean(path), label: label, data: data, id: fi}
	st, _ := fi.Sys().(*syscall.Stat_t)
	refuse, warn := judgeOwner(fi.Mode(), st, []int{0, o.Uid})
	if refuse != "" {
		return text{}, Problems{{Pos: Pos{File: label}, What: refuse, Hint: "only you and root may be able to change a policy: chmod go-w, chown"}}
	}
	if warn != "" {
		t.warnings = []Problem{{Pos: Pos{File: label}, What: warn, Hint: "chmod g-w"}}
	}
	return t, nil
}

// judgeOwner tells whether somebody else could have written the file.
func judgeOwner(mode fs.FileMode, st *syscall.Stat_t, owners []int) (refuse, warn string) {
	switch {
	case st == nil:
		return "the owner is not known", ""
	case !slices.Contains(owners, int(st.Uid)):
		return fmt.Sprintf("belongs to user %d", st.Uid), ""
	case mode.Perm()&0o002 != 0:
		return fmt.Sprintf("is writable by everybody (mode %04o)", mode.Perm()), ""
	case mode.Perm()&0o020 != 0:
		return "", fmt.Sprintf("is writable by its group (mode %04o)", mode.Perm())
	}
	return "", ""
}

// readFloor reads the administrator's floor; absent is fine.
func readFloor(path string) (text, bool, error) {
	data, fi, err := readRegular(path, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return text{}, false, nil
	}
	if err != nil {
		return text{}, false, fileProblem(path, err)
	}
	st, _ := fi.Sys().(*syscall.Stat_t)
	refuse, warn := judgeOwner(fi.Mode(), st, []int{0})
	if refuse == "" {
		refuse = warn
	}
	if refuse != "" {
		return text{}, false, Problems{{Pos: Pos{File: path}, What: refuse, Hint: "the floor must belong to root and be writable by root alone"}}
	}
	return text{name: path, label: path, data: data, id: fi}, true, nil
}

// readProject reads a project's file; absent is fine. Whoever wrote the
// project wrote it, so a symlink is refused: what it names could be shown in
// an error.
func readProject(path string) (text, bool, error) {
	data, fi, err := readRegular(path, syscall.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return text{}, false, nil
	}
	if errors.Is(err, syscall.ELOOP) {
		err = errors.New("is a symlink")
	}
	if err != nil {
		return text{}, false, fileProblem(path, err)
	}
	return text{name: path, label: path, data: data, id: fi}, true, nil
}

// readRegular reads a file once, through the descriptor that was checked.
// O_NONBLOCK keeps a FIFO from blocking the open.
func readRegular(path string, flags int) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if fi.IsDir() {
		return nil, nil, errors.New("is a directory")
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, errors.New("is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	return data, fi, nil
}

// fileProblem says what is wrong with a file as a whole.
func fileProblem(label string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	hint := "name a policy file that you can read"
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		hint = "let each process open more files: ulimit -n"
	}
	return Problems{{Pos: Pos{File: label}, What: "read policy: " + err.Error(), Hint: hint}}
}

// Package overlaytest makes real overlays for tests, in a user namespace as the
// launcher does, and changes files through them. A test binary that uses it calls
// Main first.
package overlaytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const marker = "HERMES_OVERLAY_JOB"

// Op is one change through the overlay. What cannot be done is left out.
type Op struct {
	Do   string // write, append, mkdir, remove, rename, symlink, link, chmod, fifo, xattr
	Path string
	To   string // of rename, link and symlink, and content of write and append
	Mode uint32
}

// Job is what happens in one namespace.
type Job struct {
	Lower, Upper, Work, Mount string
	Ops                       []Op
}

// Main runs the inner half where a job was given, and does not return then.
func Main() {
	if os.Getenv(marker) == "" {
		return
	}
	if err := inner(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Apply mounts layer/upper over lower, makes the changes, and gives the merged
// tree as the namespace saw it.
func Apply(t testing.TB, lower, layer string, ops []Op) map[string]string {
	t.Helper()
	j := Job{lower, filepath.Join(layer, "upper"), filepath.Join(layer, "work"), filepath.Join(layer, "mnt"), ops}
	for _, dir := range []string{j.Upper, j.Work, j.Mount} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(j.Upper, mode(lower)); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errs
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("change files through an overlay: %v: %s", err, errs.String())
	}
	merged := map[string]string{}
	if err := json.Unmarshal(out.Bytes(), &merged); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(j.Mount); err != nil {
		t.Fatal(err)
	}
	return merged
}

func mode(dir string) fs.FileMode {
	fi, err := os.Stat(dir)
	if err != nil {
		return 0o755
	}
	return fi.Mode().Perm()
}

func inner() error {
	var j Job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr,redirect_dir=nofollow,metacopy=off,index=off", j.Lower, j.Upper, j.Work)
	if err := unix.Mount("overlay", j.Mount, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	unix.Umask(0o022)
	if err := os.Chdir(j.Mount); err != nil {
		return err
	}
	for _, op := range j.Ops {
		_ = Do(op)
	}
	merged, err := Manifest(".")
	if err != nil {
		return err
	}
	_ = os.Chmod(filepath.Join(j.Work, "work"), 0o700)
	return json.NewEncoder(os.Stdout).Encode(merged)
}

// Root makes a directory for a test where syncing costs nothing, if an overlay can
// keep its notes there, and removes it at the end.
func Root() (dir string, remove func(), err error) {
	for _, base := range []string{"/dev/shm", os.TempDir()} {
		if dir, err = os.MkdirTemp(base, "state-"); err != nil {
			continue
		}
		remove := func() {
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
				if d != nil && d.IsDir() {
					_ = os.Chmod(path, 0o700)
				}
				return nil
			})
			_ = os.RemoveAll(dir)
		}
		if err = unix.Setxattr(dir, "user.probe", []byte("x"), 0); err == nil {
			return dir, remove, nil
		}
		remove()
	}
	return "", nil, err
}

// Do makes one change, relative to the working directory.
func Do(op Op) error {
	switch op.Do {
	case "write":
		return os.WriteFile(op.Path, []byte(op.To), 0o644)
	case "append":
		f, err := os.OpenFile(op.Path, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(op.To)
		return err
	case "mkdir":
		return os.MkdirAll(op.Path, 0o755)
	case "remove":
		return os.RemoveAll(op.Path)
	case "rename":
		return Move(op.Path, op.To)
	case "symlink":
		return os.Symlink(op.To, op.Path)
	case "link":
		return os.Link(op.Path, op.To)
	case "chmod":
		// A directory stays one that its owner can look into.
		fi, err := os.Lstat(op.Path)
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		if fi.IsDir() {
			op.Mode |= 0o500
		}
		return unix.Chmod(op.Path, op.Mode)
	case "fifo":
		return unix.Mkfifo(op.Path, 0o644)
	case "xattr":
		return unix.Setxattr(op.Path, op.To, []byte("v"), 0)
	}
	return fmt.Errorf("unknown change %q", op.Do)
}

// Move is mv(1): an overlay refuses to rename a directory of the lower tree.
func Move(from, to string) error {
	err := os.Rename(from, to)
	if errno, ok := errno(err); !ok || errno != unix.EXDEV {
		return err
	}
	if err := exec.Command("cp", "-a", "--no-target-directory", from, to).Run(); err != nil {
		return err
	}
	return os.RemoveAll(from)
}

func errno(err error) (unix.Errno, bool) {
	var link *os.LinkError
	if l, ok := err.(*os.LinkError); ok {
		link = l
	} else {
		return 0, false
	}
	e, ok := link.Err.(unix.Errno)
	return e, ok
}

// Manifest describes every entry of a tree: type, mode, and content or target.
func Manifest(root string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		all[rel], err = describe(path, d)
		return err
	})
	return all, err
}

func describe(path string, d fs.DirEntry) (string, error) {
	fi, err := d.Info()
	if err != nil {
		return "", err
	}
	s := fi.Mode().String()
	switch {
	case fi.Mode().IsRegular():
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(b)
		s += " " + hex.EncodeToString(sum[:8])
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		s = "link " + target
	}
	return s, nil
}

// Difference lists where two manifests differ.
func Difference(got, want map[string]string) string {
	var lines []string
	for path, w := range want {
		if g, ok := got[path]; !ok {
			lines = append(lines, fmt.Sprintf("%q: got nothing, want %s", path, w))
		} else if g != w {
			lines = append(lines, fmt.Sprintf("%q: got %s, want %s", path, g, w))
		}
	}
	for path, g := range got {
		if _, ok := want[path]; !ok {
			lines = append(lines, fmt.Sprintf("%q: got %s, want nothing", path, g))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// walker prints one line for each entry: its kind (f d l c b s p), a space,
// what can be done with it, a space, its quoted path. Each right is tried and
// not computed:
//
//	r  opened for reading, or listed; in /proc: read, and a link resolved
//	w  opened for writing or truncated; a directory: an entry was made in it
//	x  the kernel would execute it
//	X  a directory: a file that was just written there would be executed
//	v  renamed, and back
//	m  its mode was set (to what it was)
type walker struct {
	w        *bufio.Writer
	readOnly bool // outside: touch nothing
}

// temp is not a name that anything else has.
const temp = ".hermes-wrap-probe-temp"

func walk(out *bufio.Writer, args []string) error {
	w := walker{w: out}
	if len(args) > 0 && args[0] == "-read" {
		w.readOnly, args = true, args[1:]
	}
	if err := dropCaps(); err != nil {
		return err
	}
	for _, root := range args {
		w.visit(root)
	}
	return nil
}

// dropCaps makes a control that runs as root count by file modes alone.
func dropCaps() error {
	runtime.LockOSThread() // capabilities are a thread's
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&head, &none[0])
}

func (w walker) visit(path string) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		fmt.Fprintf(w.w, "? - %s\n", strconv.Quote(path))
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		w.dir(path, st)
	case unix.S_IFREG:
		w.line("f", w.file(path, st), path)
	case unix.S_IFLNK:
		w.line("l", resolves(path)+w.moves(path), path)
	case unix.S_IFCHR:
		w.line("c", w.file(path, st), path)
	case unix.S_IFBLK:
		w.line("b", w.file(path, st), path)
	case unix.S_IFSOCK:
		w.line("s", w.moves(path)+w.modes(path, st), path)
	case unix.S_IFIFO:
		w.line("p", w.moves(path)+w.modes(path, st), path)
	}
}

func (w walker) line(kind, can, path string) {
	if can == "" {
		can = "-"
	}
	fmt.Fprintf(w.w, "%s %s %s\n", kind, can, strconv.Quote(path))
}

func opens(path string, flags int) bool {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func (w walker) file(path string, st unix.Stat_t) (can string) {
	if opens(path, unix.O_RDONLY) && (!inProc(path) || gives(path)) {
		can += "r"
	}
	if !w.readOnly && (opens(path, unix.O_WRONLY) || st.Mode&unix.S_IFMT == unix.S_IFREG && !inProc(path) && unix.Truncate(path, st.Size) == nil) {
		can += "w"
	}
	if w.readOnly && unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil {
		can += "w"
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 && executes(path) {
		can += "x"
	}
	return can + w.moves(path) + w.modes(path, st)
}

// gives reads: in /proc the verdict on another process often comes only then.
func gives(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 1))
	return err == nil
}

// resolves tells whether a link of /proc says where it leads; any other link
// does.
func resolves(path string) string {
	if !inProc(path) {
		return ""
	}
	if _, err := os.Readlink(path); err != nil {
		return ""
	}
	return "r"
}

func inProc(path string) bool { return strings.HasPrefix(path, "/proc/") }

// checkOnly is AT_EXECVE_CHECK, since Linux 6.14.
const checkOnly = 0x10000

// executes asks the kernel for the whole verdict without running anything.
func executes(path string) bool {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return false
	}
	argv := []*byte{p, nil}
	_, _, no := unix.RawSyscall6(unix.SYS_EXECVEAT, ^uintptr(99), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[1])), checkOnly, 0)
	return no == 0
}

func (w walker) moves(path string) string {
	if w.readOnly || path == "/" || inProc(path) {
		return ""
	}
	other := filepath.Join(filepath.Dir(path), temp+"-moved")
	if unix.Rename(path, other) != nil {
		return ""
	}
	if err := unix.Rename(other, path); err != nil {
		fail(fmt.Sprintf("rename %q back: %v", other, err))
	}
	return "v"
}

func (w walker) modes(path string, st unix.Stat_t) string {
	if w.readOnly || unix.Chmod(path, st.Mode&0o7777) != nil {
		return ""
	}
	return "m"
}

func (w walker) dir(path string, st unix.Stat_t) {
	can := ""
	f, err := os.Open(path)
	var names []string
	if err == nil {
		names, err = f.Readdirnames(-1)
		f.Close()
	}
	if err == nil || errors.Is(err, io.EOF) {
		can = "r"
	}
	w.line("d", can+w.entries(path)+w.moves(path)+w.modes(path, st), path)
	for _, n := range names {
		if !strings.HasPrefix(n, temp) {
			w.visit(filepath.Join(path, n))
		}
	}
}

// entries tries every kind of entry, since Landlock has a right for each.
func (w walker) entries(dir string) (can string) {
	if w.readOnly {
		if unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil {
			return "w"
		}
		return ""
	}
	name := filepath.Join(dir, temp)
	made := false
	if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o700); err == nil {
		made = true
		unix.Close(fd)
		if executes(name) {
			can = "X"
		}
		remove(name, unix.Unlink)
	}
	if unix.Mkdir(name, 0o700) == nil {
		made = true
		remove(name, unix.Rmdir)
	}
	if unix.Symlink("x", name) == nil || unix.Mkfifo(name, 0o600) == nil || unix.Link("/proc/self/exe", name) == nil || binds(name) {
		made = true
		remove(name, unix.Unlink)
	}
	if made {
		can = "w" + can
	}
	return can
}

func binds(name string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: name}) == nil
}

func remove(name string, how func(string) error) {
	if err := how(name); err != nil {
		fail(fmt.Sprintf("remove %q: %v", name, err))
	}
}

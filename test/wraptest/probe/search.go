package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// search prints where a token can be read: in file contents, names and link
// targets, through every process's files in /proc. Files that last changed
// before the token was planted (nobody can set a change time back) are passed
// over; the token comes as hex, so that it is in no argument.
func search(out *bufio.Writer, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: probe search HEXTOKEN UNIXTIME ROOT…")
	}
	token, err := hex.DecodeString(args[0])
	if err != nil {
		return err
	}
	planted, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	s := searcher{out, token, planted}
	for _, kv := range os.Environ() {
		s.text("own environment", kv)
	}
	for _, root := range args[2:] {
		s.tree(root)
	}
	return nil
}

type searcher struct {
	w       *bufio.Writer
	token   []byte
	planted int64
}

func (s searcher) tree(root string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d == nil {
			return nil
		}
		if inProc(path) {
			return s.proc(path, d)
		}
		s.text("name of "+path, d.Name())
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			if to, err := os.Readlink(path); err == nil {
				s.text(path, to)
			}
		case d.Type().IsRegular():
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil && since(s.planted, st.Ctim.Sec) {
				s.content(path)
			}
		}
		return nil
	})
}

// never are files of /proc that wait, or that are as large as memory.
var never = []string{"mem", "kmsg", "kcore", "pagemap", "kpagecount", "kpageflags", "clear_refs", "trace_pipe"} //nolint:gochecknoglobals // constant

func (s searcher) proc(path string, d fs.DirEntry) error {
	for _, n := range never {
		if d.Name() == n {
			return nil
		}
	}
	// The same files again for each thread, and the network's per process.
	if d.IsDir() && (d.Name() == "task" || strings.Count(path, "/") > 2 && d.Name() == "net") {
		return fs.SkipDir
	}
	if d.Type()&fs.ModeSymlink != 0 {
		s.link(path, d.Name())
		return nil
	}
	if d.Type().IsRegular() {
		s.content(path)
	}
	return nil
}

// link follows what leads into another process's view.
func (s searcher) link(path, name string) {
	to, err := os.Readlink(path)
	if err != nil {
		return
	}
	s.text(path, to)
	pid := strings.Split(path, "/")[2]
	if pid == "self" || pid == "thread-self" || pid == strconv.Itoa(os.Getpid()) {
		return
	}
	switch {
	case name == "root" || name == "cwd":
		// Where the same lies in this view it is searched anyway.
		if !sameDir(path, to) {
			s.tree(path + "/.")
		}
	case strings.Contains(path, "/fd/") && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/"):
		s.content(path)
	}
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

func (s searcher) content(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// By plain reads: an os.File would wait where there is nothing to read.
	var all []byte
	part := make([]byte, 64<<10)
	for len(all) < 16<<20 {
		n, err := unix.Read(fd, part)
		if err != nil || n <= 0 {
			break
		}
		all = append(all, part[:n]...)
	}
	s.text(path, string(all))
}

// text prints the token with the letters that follow it: which canary it is.
func (s searcher) text(where, text string) {
	b := []byte(text)
	for {
		i := bytes.Index(b, s.token)
		if i < 0 {
			return
		}
		b = b[i+len(s.token):]
		n := 0
		for n < len(b) && (b[n] == '-' || b[n] >= 'a' && b[n] <= 'z') {
			n++
		}
		fmt.Fprintf(s.w, "%s %s\n", b[:n], where)
	}
}

// since allows for a clock of the file system that is a tick behind.
func since(sec, ctime int64) bool { return ctime >= sec-1 }

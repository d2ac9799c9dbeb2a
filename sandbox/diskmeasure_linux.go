package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// measure adds up what the layers hold, and what processes below init hold open
// of files that were removed already. It stops at the first limit that is
// passed.
func measure(ctx context.Context, tops []*os.File, c Cow, init int) (usage, error) {
	w := walker{cow: c, seen: map[inode]bool{}}
	err := w.all(tops)
	if errors.Is(err, unix.EACCES) {
		// Inside, a directory can be closed to its own owner.
		w.usage, err = measureClosed(ctx, tops, c)
	}
	if err == nil && w.judge(c) == nil {
		w.removed(init)
	}
	return w.usage, err
}

// walker walks layers.
type walker struct {
	usage
	cow  Cow
	seen map[inode]bool // files with several names
}

// layerDepth bounds how deep directories are followed: each takes a descriptor.
const layerDepth = 2048

func (w *walker) all(tops []*os.File) error {
	for _, top := range tops {
		fd, err := openDirAt(int(top.Fd()), ".")
		if err == nil {
			err = w.walk(fd, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walk counts below a directory, and closes it. What vanishes meanwhile is not
// there.
func (w *walker) walk(fd, depth int) error {
	dir := os.NewFile(uintptr(fd), "layer")
	defer dir.Close()
	if depth > layerDepth {
		return fmt.Errorf("directories lie more than %d deep", layerDepth)
	}
	below, err := w.list(dir)
	if err != nil {
		return err
	}
	for _, name := range below {
		if w.judge(w.cow) != nil {
			return nil
		}
		next, err := openDirAt(fd, name)
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
			continue
		}
		if err == nil {
			err = w.walk(next, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list counts what is in a directory and gives the directories in it.
func (w *walker) list(dir *os.File) (below []string, err error) {
	for w.judge(w.cow) == nil {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if err == unix.EACCES {
				return nil, err
			}
			if err != nil {
				continue
			}
			w.add(st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				below = append(below, name)
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	return below, nil
}

func (w *walker) add(st unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		key := inode{st.Dev, st.Ino}
		if w.seen[key] {
			return
		}
		w.seen[key] = true
	}
	w.Files++
	w.Bytes += st.Blocks * 512
}

// removed adds regular files without a name that processes inside hold open:
// they take space until they are closed. What only a mapping or a socket's queue
// holds is not seen.
func (w *walker) removed(init int) {
	pids, err := processTree(init)
	if err != nil {
		return
	}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			var st unix.Stat_t
			if unix.Stat(filepath.Join(dir, e.Name()), &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			key := inode{st.Dev, st.Ino}
			if !w.seen[key] {
				w.seen[key] = true
				w.add(st)
			}
		}
	}
}

// measureOrder is what measureClosed asks for, of the descriptors from 3 on.
type measureOrder struct {
	Cow  Cow `json:"cow"`
	Tops int `json:"tops"`
}

const measureArg0 = "hermes-wrap-measure"

// measureClosed measures from a user namespace of its own, where our modes do
// not bind us.
func measureClosed(ctx context.Context, tops []*os.File, c Cow) (usage, error) {
	order, err := json.Marshal(measureOrder{c, len(tops)})
	if err != nil {
		return usage{}, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Dir = []string{measureArg0}, []string{"GOMAXPROCS=1"}, "/"
	cmd.ExtraFiles, cmd.Stdin, cmd.Stdout = tops, bytes.NewReader(order), &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return usage{}, fmt.Errorf("measure closed directories: %w", err)
	}
	var u usage
	err = json.Unmarshal(out.Bytes(), &u)
	return u, err
}

// runMeasure is the process of measureClosed, and returns in every other.
func runMeasure() {
	if len(os.Args) != 1 || os.Args[0] != measureArg0 {
		return
	}
	var order measureOrder
	var tops []*os.File
	err := json.NewDecoder(os.Stdin).Decode(&order)
	for i := range order.Tops {
		tops = append(tops, os.NewFile(uintptr(3+i), "layer"))
	}
	w := walker{cow: order.Cow, seen: map[inode]bool{}}
	if err == nil {
		err = w.all(tops)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(w.usage)
	}
	if err != nil {
		os.Exit(exitFailed)
	}
	os.Exit(0)
}

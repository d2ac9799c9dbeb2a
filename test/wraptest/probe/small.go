package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// posture prints what only a process itself can tell: its namespaces and its
// descriptors.
func posture(out *bufio.Writer) error {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(dir), "fd")
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	var fds []int
	for _, n := range names {
		if i, err := strconv.Atoi(n); err == nil && i != dir {
			fds = append(fds, i)
		}
	}
	sort.Ints(fds)
	fmt.Fprintln(out, "fds", strings.Trim(fmt.Sprint(fds), "[]"))
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		to, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			to = "unreadable"
		}
		fmt.Fprintln(out, "ns", ns, to)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	death := 0
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&death)), 0, 0, 0); err != nil {
		return err
	}
	fmt.Fprintln(out, "dumpable", dumpable)
	fmt.Fprintln(out, "pdeathsig", death)
	fmt.Fprintln(out, "cwd-reachable", reachable())
	return nil
}

// reachable tells whether the working directory lies in the view at all.
func reachable() bool {
	dir, err := os.Getwd()
	return err == nil && filepath.IsAbs(dir) && !strings.HasPrefix(dir, "(unreachable)")
}

// signals prints each signal that arrives until its standard input ends.
func signals() {
	list := []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGALRM, unix.SIGWINCH}
	got := make(chan os.Signal, 64)
	signal.Notify(got, list...)
	end := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(end)
	}()
	fmt.Println("ready")
	for {
		select {
		case s := <-got:
			fmt.Println(unix.SignalName(s.(unix.Signal)))
		case <-end:
			fmt.Println("end")
			os.Exit(7)
		}
	}
}

// create tries to bring names into existence, each in five ways, and prints
// those that worked; what worked is removed again.
func create(out *bufio.Writer, paths []string) {
	for _, path := range paths {
		source := filepath.Join(filepath.Dir(filepath.Dir(path)), temp+"-source")
		for _, way := range []struct {
			name string
			do   func() error
		}{
			{"open", func() error {
				fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				if err == nil {
					unix.Close(fd)
				}
				return err
			}},
			{"mkdir", func() error { return unix.Mkdir(path, 0o700) }},
			{"symlink", func() error { return unix.Symlink("x", path) }},
			{"link", func() error { made(source); return unix.Link(source, path) }},
			{"rename", func() error { made(source); return unix.Rename(source, path) }},
		} {
			err := way.do()
			_ = os.Remove(source)
			if err == nil {
				fmt.Fprintln(out, way.name, path)
				_ = os.Remove(path)
			}
		}
	}
}

func made(path string) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		fail(err.Error())
	}
}

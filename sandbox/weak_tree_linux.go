package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// How long the end of a tree is waited for: a process in an uninterruptible
// wait cannot be ended by anybody.
const (
	endPause = time.Millisecond
	endLimit = 10 * time.Second
)

// endDescendants kills everything below a reaper, which must be this process
// for the orphans to be adopted by it, until nothing is left. Children in spare
// are left alone, with all below them, and so are our proxies. A tree that forks
// faster than it is found is bounded by RLIMIT_NPROC only, and by the time limit
// here.
func endDescendants(reaper int, spare []int) {
	for end := time.Now().Add(endLimit); time.Now().Before(end); time.Sleep(endPause) {
		over := false
		proxies.look(func(pids []int) { over = killDescendants(reaper, slices.Concat(spare, pids)) })
		if over {
			return
		}
	}
}

// killDescendants is one look at the tree; it gives true when there is no more to
// be done.
func killDescendants(reaper int, spare []int) bool {
	table, err := processTable()
	if err != nil {
		return true
	}
	left := descendants(table, reaper, spare)
	for _, pid := range left {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range table[reaper] {
		if !slices.Contains(spare, pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	return len(left) == 0
}

// processTable lists the children of every process.
func processTable() (map[int][]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		if parent, err := parseParent(b); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children, nil
}

// parseParent reads the parent in /proc/PID/stat. The name before it is in
// parentheses and may hold anything, parentheses too.
func parseParent(stat []byte) (int, error) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, errors.New("read stat: no name in parentheses")
	}
	fields := bytes.Fields(stat[i+1:])
	if len(fields) < 2 {
		return 0, errors.New("read stat: no parent")
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0, fmt.Errorf("read stat: %w", err)
	}
	return parent, nil
}

// descendants lists everything below pid except what is spared.
func descendants(children map[int][]int, pid int, spare []int) []int {
	var all []int
	for _, kid := range children[pid] {
		if slices.Contains(spare, kid) {
			continue
		}
		all = append(append(all, kid), descendants(children, kid, nil)...)
	}
	return all
}

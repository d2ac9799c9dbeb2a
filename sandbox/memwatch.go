package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The watcher looks more often the nearer the tree is to its limit. watchRate is
// how fast a tree is assumed to be able to grow: about what one core can touch.
const (
	watchFastest = 25 * time.Millisecond
	watchSlowest = 250 * time.Millisecond
	watchRate    = 4 << 30 // bytes a second
	watchShare   = 20      // looking takes one part in watchShare of a processor, where watchSlowest leaves it the time
)

// WatchMemory sums the resident memory of the process tree below pid1, the
// host's pid of the sandbox's init, and calls kill once when it is over limit.
// It returns nil after that, when ctx ends and when the tree is gone; an error
// means that the tree could not be measured, and the caller must end the run.
//
// Pages that processes share are counted once (Pss) as soon as counting them for
// each process reaches the limit. A tree can exceed the limit between two looks.
// Memory in a tmpfs that no process maps is not seen; the size of each tmpfs
// bounds it.
func WatchMemory(ctx context.Context, pid1 int, limit int64, kill func(rss int64)) error {
	timer := time.NewTimer(watchFastest) // a short command has ended by then
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		start := time.Now()
		used, err := treeMemory(pid1, limit)
		if err != nil {
			return fmt.Errorf("measure memory of the sandbox: %w", err)
		}
		if used == 0 {
			return nil // init has exited, and with it the whole namespace
		}
		if used > limit {
			kill(used)
			return nil
		}
		timer.Reset(watchInterval(limit-used, time.Since(start)))
	}
}

// watchInterval is the time until the next look: no longer than it takes to use
// up the room that is left, and not so short that looking becomes the load. What
// a look cost is also what the tree made it wait for, so watchSlowest bounds that
// too: a tree that keeps every processor busy would be left alone for minutes.
func watchInterval(room int64, cost time.Duration) time.Duration {
	d := time.Duration(float64(room) / watchRate * float64(time.Second))
	return min(max(d, watchFastest, cost*watchShare), watchSlowest)
}

// treeMemory is the memory of a tree in bytes: the plain sum while that is
// within the limit, else with shared pages counted once. 0: no such process.
func treeMemory(pid1 int, limit int64) (int64, error) {
	pids, err := processTree(pid1)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	sum, err := sumProcesses(pids, residentBytes)
	if err != nil || sum <= limit {
		return sum, err
	}
	return sumProcesses(pids, proportionalBytes)
}

func sumProcesses(pids []int, measure func(pid int) (int64, error)) (int64, error) {
	var sum int64
	for _, pid := range pids {
		n, err := measure(pid)
		if err != nil && !isGone(err) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func residentBytes(pid int) (int64, error) {
	return measureFile(pid, "statm", parseStatm)
}

// proportionalBytes falls back to the larger resident size where the kernel
// does not let us read more: the stricter answer.
func proportionalBytes(pid int) (int64, error) {
	n, err := measureFile(pid, "smaps_rollup", parseSmapsRollup)
	if err == nil || isGone(err) {
		return n, err
	}
	return residentBytes(pid)
}

func measureFile(pid int, name string, parse func(io.Reader) (int64, error)) (int64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
	if err != nil {
		return 0, err
	}
	return parse(bytes.NewReader(b))
}

// processTree lists pid1 and everything below it. Processes whose parent died
// are children of init, so nothing of the namespace lies outside the tree.
func processTree(pid1 int) ([]int, error) {
	if unix.Kill(pid1, 0) == unix.ESRCH {
		return nil, nil
	}
	pids := []int{pid1}
	for i := 0; i < len(pids); i++ {
		children, err := childrenOf(pids[i])
		if err != nil {
			return nil, err
		}
		pids = append(pids, children...)
	}
	return pids, nil
}

// childrenOf asks every thread: a child belongs to the thread that forked it.
func childrenOf(pid int) ([]int, error) {
	task := "/proc/" + strconv.Itoa(pid) + "/task"
	d, err := os.Open(task)
	if err != nil {
		return nil, unlessGone(err)
	}
	tids, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, unlessGone(err)
	}
	var all []int
	for _, tid := range tids {
		b, err := os.ReadFile(task + "/" + tid + "/children")
		if isGone(err) && pidExists(task+"/"+tid) {
			return nil, fmt.Errorf("read children of process %d: the kernel lacks CONFIG_PROC_CHILDREN: %w", pid, err)
		}
		if err != nil {
			if isGone(err) {
				continue
			}
			return nil, err
		}
		kids, err := parseChildren(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		all = append(all, kids...)
	}
	return all, nil
}

func pidExists(dir string) bool {
	_, err := os.Stat(dir + "/status")
	return err == nil
}

// isGone tells the races with a process that ends from real errors.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func unlessGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// parseChildren reads /proc/PID/task/TID/children.
func parseChildren(r io.Reader) ([]int, error) {
	var pids []int
	s := bufio.NewScanner(r)
	s.Split(bufio.ScanWords)
	for s.Scan() {
		pid, err := strconv.Atoi(s.Text())
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("read children: %q is no process id", s.Text())
		}
		pids = append(pids, pid)
	}
	return pids, s.Err()
}

// parseStatm reads the resident size in /proc/PID/statm, in bytes.
func parseStatm(r io.Reader) (int64, error) {
	var size, resident int64
	if _, err := fmt.Fscan(r, &size, &resident); err != nil {
		return 0, fmt.Errorf("read statm: %w", err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// parseSmapsRollup reads Pss in /proc/PID/smaps_rollup, in bytes. A process
// that is about to end has an empty file.
func parseSmapsRollup(r io.Reader) (int64, error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		text, ok := strings.CutPrefix(s.Text(), "Pss:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read smaps_rollup: %w", err)
		}
		return kib << 10, nil
	}
	return 0, s.Err()
}

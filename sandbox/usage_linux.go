package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what the tree of a sandbox uses, its init included.
type Usage struct {
	// Memory is resident memory in bytes; pages that processes share are counted
	// once where the kernel lets us see that.
	Memory int64
	// CPU is the processor time so far, with that of processes that ended.
	CPU time.Duration
	// Processes and Tasks are how many there are; threads are tasks.
	Processes, Tasks int
}

// Usage measures the tree.
func (s *Sandbox) Usage() (u Usage, err error) {
	pids, err := processTree(s.r.box.pid())
	if err != nil {
		return u, fmt.Errorf("measure the sandbox: %w", err)
	}
	if len(pids) == 0 {
		return u, errors.New("measure the sandbox: it has ended")
	}
	if u.Memory, err = sumProcesses(pids, proportionalBytes); err != nil {
		return u, fmt.Errorf("measure the sandbox: %w", err)
	}
	for _, pid := range pids {
		cpu, tasks, err := processorOf(pid)
		if isGone(err) {
			continue
		}
		if err != nil {
			return u, fmt.Errorf("measure the sandbox: %w", err)
		}
		u.CPU += cpu
		u.Processes++
		u.Tasks += tasks
	}
	return u, nil
}

func processorOf(pid int) (time.Duration, int, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	return parseStat(f)
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on
// every architecture that we run on.
const clockTick = time.Second / 100

// parseStat reads the processor time of a process and of its children that were
// waited for, and its number of threads, in /proc/PID/stat. The program's name,
// the second field, may hold anything.
func parseStat(r io.Reader) (cpu time.Duration, tasks int, err error) {
	b, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return 0, 0, err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, cstime, threads = 11, 14, 17 // the third field is the first here
	if len(fields) <= threads {
		return 0, 0, fmt.Errorf("read stat: got %d fields behind the name", len(fields))
	}
	for _, f := range fields[utime : cstime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read stat: %w", err)
		}
		cpu += time.Duration(n) * clockTick
	}
	tasks, err = strconv.Atoi(fields[threads])
	if err != nil {
		return 0, 0, fmt.Errorf("read stat: %w", err)
	}
	return cpu, tasks, nil
}

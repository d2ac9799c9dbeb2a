package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is what /proc says of one process.
type process struct {
	pid, parent int
	title       string // its command line
	cpu         float64
}

// ticks is the unit of CPU times in /proc (USER_HZ is 100 on every
// architecture that we build for).
const ticks = 100

// descendants gives a process and everything below it.
func descendants(pid int) []process {
	all := map[int]process{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		id, _ := strconv.Atoi(filepath.Base(entry))
		if p, ok := readProcess(id); ok {
			all[id] = p
		}
	}
	var found []process
	for _, p := range all {
		for at := p; ; {
			if at.pid == pid {
				found = append(found, p)
				break
			}
			next, ok := all[at.parent]
			if !ok {
				break
			}
			at = next
		}
	}
	return found
}

func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return process{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return process{pid: pid, parent: parent, title: strings.ReplaceAll(string(title), "\x00", " "), cpu: (user + system) / ticks}, true
}

func (p process) isProxy() bool { return strings.HasPrefix(p.title, "hermes-wrap: proxy") }

// proxyOf finds the proxy of a running sandbox.
func proxyOf(launcher int) (process, error) {
	for _, p := range descendants(launcher) {
		if p.isProxy() {
			return p, nil
		}
	}
	return process{}, fmt.Errorf("find the proxy of process %d: none", launcher)
}

// memoryOf gives the PSS of a process in KiB; where that may not be read, its
// resident memory, which is never less.
func (s *shop) memoryOf(pid int) (kib float64, exact bool) {
	if kib := pssOf(pid); kib >= 0 {
		return kib, true
	}
	if s.memory != nil {
		_, _ = fmt.Fprintln(s.memory, pid)
		_ = s.memory.Flush()
		line, err := s.memory.ReadString('\n')
		if kib, err2 := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil && err2 == nil && kib >= 0 {
			return kib, true
		}
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return max(fieldKiB(string(text), "VmRSS:"), 0), false
}

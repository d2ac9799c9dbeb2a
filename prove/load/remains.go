package load

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// What may be more afterwards, in what no process accounts for: other programs of
// the machine mount and write as well, and every run keeps a record.
const (
	slackKernel = 256 << 20
	slackFiles  = 10_000
	settleLimit = 60 * time.Second
)

// adopt has every process of our runs that loses its parent become a child of this
// one, so that none can be missed. It gives how to end that.
func adopt() (end func(), err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("adopt what runs leave: %w", err)
	}
	return func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }, nil
}

// bury waits for what runs left to us and what has ended: until then it counts as
// a process of the account, whose number the bare bomb bounds.
func bury() {
	for _, pid := range descendants(os.Getpid()) {
		if _, ours := started.Load(pid); !ours {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// holding is what is held that no process shows: memory that only the kernel
// accounts for (files in memory, its own structures, as those of namespaces), and
// files of ours on disk.
type holding struct{ kernel, files, available int64 }

func (y *yard) holding() (h holding) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "Shmem:", "SUnreclaim:", "VmallocUsed:", "Percpu:":
			h.kernel += n << 10
		case "MemAvailable:":
			h.available = n << 10
		}
	}
	_ = filepath.WalkDir(y.dir, func(string, fs.DirEntry, error) error {
		h.files++
		return nil
	})
	return h
}

// left lists what is still there of our runs: processes, run directories, mounts
// and control groups. It is asked for when nothing of ours runs any more.
func (y *yard) left() (out []string) {
	for _, pid := range descendants(os.Getpid()) {
		if words, ok := alive(pid); ok {
			out = append(out, "process "+words)
		}
	}
	runs, _ := os.ReadDir(filepath.Join(y.runtime, "hermes-wrap"))
	for _, r := range runs {
		out = append(out, "run directory "+r.Name())
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, y.dir) {
			out = append(out, "mount "+strings.TrimSpace(line))
		}
	}
	return append(out, groups()...)
}

// descendants are the processes below one.
func descendants(of int) (out []int) {
	children := map[int][]int{}
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "stat"))
		rest := stat[bytes.LastIndexByte(stat, ')')+1:] // a name may hold anything, also this
		if f := strings.Fields(string(rest)); len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	}
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		out, next = append(out, pid), append(next[1:], children[pid]...)
	}
	return out
}

// alive gives the words of a process, unless it has ended: one that was adopted
// waits for us then.
func alive(pid int) (words string, ok bool) {
	if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err == nil && got == pid {
		return "", false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%d %s", pid, strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " ")), true
}

var groupName = regexp.MustCompile(`^hermes-wrap-([0-9]+)-`)

// groups are the control groups of launchers that we started and that are gone.
func groups() (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // it went meanwhile
		}
		m := groupName.FindStringSubmatch(d.Name())
		if m == nil {
			return nil
		}
		pid, _ := strconv.Atoi(m[1])
		_, ours := started.Load(pid)
		if _, err := os.Stat("/proc/" + m[1]); ours && err != nil {
			out = append(out, "control group "+path)
		}
		return fs.SkipDir
	})
	return out
}

// returned compares what is held with what was held before. It has patience to
// settle: the kernel takes namespaces apart in its own time.
func (s *strain) returned(ctx context.Context, before holding) report.Table {
	var after holding
	var left, more []string
	for end := time.Now().Add(settleLimit); ; {
		left, after = s.left(), s.holding()
		more = grown(before, after)
		if len(left)+len(more) == 0 || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	for _, what := range append(left, more...) {
		s.part.Failed = append(s.part.Failed, "left behind: "+what)
	}
	row := func(what string, a, b int64, slack string) []string {
		return []string{what, fmt.Sprint(a), fmt.Sprint(b), slack}
	}
	return report.Table{
		Title: "What is held, before and after", Columns: []string{"", "Before", "After", "Slack"},
		Rows: [][]string{
			row("processes below this proof, run directories, mounts and control groups of its runs", 0, int64(len(left)), "0"),
			row("memory that belongs to no process: files in memory and the kernel's own, of the whole machine, MiB", before.kernel>>20, after.kernel>>20, fmt.Sprint(slackKernel>>20)),
			row("files of the account's runs on disk, records among them", before.files, after.files, fmt.Sprint(slackFiles)),
			row("memory available to all programs of the machine, MiB", before.available>>20, after.available>>20, "not judged: others use it too"),
		},
	}
}

func grown(before, after holding) (out []string) {
	if d := after.kernel - before.kernel; d > slackKernel {
		out = append(out, fmt.Sprintf("%d MiB of memory that belongs to no process", d>>20))
	}
	if d := after.files - before.files; d > slackFiles {
		out = append(out, fmt.Sprintf("%d files", d))
	}
	return out
}

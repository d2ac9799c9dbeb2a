// Package storm launches the binary many times, at once and with parts of it
// killed at random moments, and looks for what is left behind: processes,
// mounts, control groups, state and stray files. Exit codes, signals and
// streams are tried the same way, one launch each.
package storm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) {
	// What is orphaned below the test comes to it and not to the host's init.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become the reaper of orphans:", err)
		os.Exit(1)
	}
	os.Exit(wraptest.Main(m))
}

// scaled is how often something is done: HERMES_STORM is in percent (100), and
// -short does a twentieth.
func scaled(n int) int {
	percent := 100
	if testing.Short() {
		percent = 5
	}
	if p, err := strconv.Atoi(os.Getenv("HERMES_STORM")); err == nil {
		percent = p
	}
	return max(1, n*percent/100)
}

// patience bounds each wait for something that takes a moment, also on a
// machine that has other things to do.
const patience = time.Minute

// ground is a world with a workspace, and how the host looked before.
type ground struct {
	wraptest.World
	dir    string
	before []string
	// atOnce is how many runs there are at a time (1).
	atOnce int
}

func newGround(t *testing.T) ground {
	t.Helper()
	g := ground{World: wraptest.New(t), atOnce: 1}
	g.dir = g.Dir(t, "ws")
	g.Write(t, filepath.Join(g.dir, "file"), "text\n")
	g.Program(t, g.dir)
	// The state directory and its audit file stay; they are there beforehand.
	if r := wraptest.Run(t, g.Wrap(g.dir, "strict", "true"), time.Minute); r.Exit != 0 {
		t.Fatalf("first launch: got exit %d, want 0\n%s", r.Exit, r.Err)
	}
	g.before = g.traces()
	return g
}

// traces are all names that a run could leave on the host. Records of runs are
// not among them: see sessions.
func (g ground) traces() []string {
	var out []string
	records, _ := g.records()
	_ = filepath.WalkDir(g.Home, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && !records[path] {
			out = append(out, path)
		}
		return nil
	})
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.Contains(e.Name(), "runc") || strings.Contains(e.Name(), "libcontainer") {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, g.Home) {
			out = append(out, "mount "+line)
		}
	}
	slices.Sort(out)
	return out
}

// records gives the paths of the records that runs leave by design, and what is
// wrong with them: each is a directory with one file, which was half written at
// most if the launcher was killed; none belongs to a run; and every launch keeps
// the newest session.Kept, and not many more, beside its own.
func (g ground) records() (paths map[string]bool, wrong []string) {
	paths = map[string]bool{}
	all, err := session.List(filepath.Join(g.Home, ".local/state"))
	if err != nil {
		return paths, []string{"sessions " + err.Error()}
	}
	for _, e := range all {
		paths[e.Path], paths[filepath.Join(e.Path, "session.json")] = true, true
		switch e.Status() {
		case session.StatusEnded:
		case session.StatusKilled, session.StatusBroken:
			paths[filepath.Join(e.Path, "session.json.new")] = true
		default:
			wrong = append(wrong, "session "+e.Name+" "+e.Status())
		}
	}
	if most := session.Kept + session.Slack + g.atOnce; len(all) > most {
		wrong = append(wrong, fmt.Sprintf("session records: %d, want at most %d", len(all), most))
	}
	return paths, wrong
}

// clean waits until nothing is left, and reports what is.
func (g ground) clean(t *testing.T, when string) {
	t.Helper()
	var left []string
	ok := within(patience, func() bool {
		left = g.left()
		return len(left) == 0
	})
	if !ok {
		t.Errorf("%s: left behind after %v:\n%s", when, patience, strings.Join(left, "\n"))
	}
}

// within asks again until it is so or the time is over.
func within(d time.Duration, so func() bool) bool {
	over := time.After(d)
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if so() {
			return true
		}
		select {
		case <-over:
			return so()
		case <-again.C:
		}
	}
}

func (g ground) left() (left []string) {
	for _, p := range descendants(true) {
		left = append(left, "process "+p.String())
	}
	for _, trace := range g.traces() {
		if !slices.Contains(g.before, trace) {
			left = append(left, trace)
		}
	}
	_, wrong := g.records()
	return slices.Concat(left, wrong, g.cgroups())
}

// cgroups gives the control groups that bear the number of a run in the audit.
func (g ground) cgroups() (left []string) {
	runs := g.runs()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.ContainsFunc(runs, func(id string) bool { return strings.Contains(d.Name(), id) }) {
			left = append(left, "control group "+path)
		}
		return nil
	})
	return left
}

func (g ground) runs() (ids []string) {
	events, err := audit.ReadFile(filepath.Join(g.Home, ".local/state/hermes-wrap/audit.jsonl"))
	if err != nil {
		return nil
	}
	for _, e := range events {
		if !slices.Contains(ids, e.Run) {
			ids = append(ids, e.Run)
		}
	}
	return ids
}

// process is one line of /proc.
type process struct {
	pid, parent int
	state, name string
}

func (p process) String() string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return fmt.Sprintf("%d %s (%s) %q", p.pid, p.name, p.state, strings.ReplaceAll(string(args), "\x00", " "))
}

// descendants are all processes below the test. Zombies that have come to it are
// reaped on the way, unless a command still runs: its own belongs to its Wait.
func descendants(reap bool) (out []process) {
	all := processes()
	mine := map[int]bool{os.Getpid(): true}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if mine[p.parent] && !mine[p.pid] {
				mine[p.pid], grew = true, true
			}
		}
	}
	for _, p := range all {
		if !mine[p.pid] || p.pid == os.Getpid() {
			continue
		}
		if p.state == "Z" && p.parent == os.Getpid() {
			if reap {
				_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
			}
			continue
		}
		out = append(out, p)
	}
	return out
}

func processes() (out []process) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		text := string(b)
		open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		if open < 0 || end < 0 {
			continue
		}
		f := strings.Fields(text[end+1:])
		pid, _ := strconv.Atoi(strings.TrimSpace(text[:open]))
		parent, _ := strconv.Atoi(f[1])
		out = append(out, process{pid, parent, f[0], text[open+1 : end]})
	}
	return out
}

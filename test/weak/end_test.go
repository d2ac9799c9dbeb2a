package weak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// alive tells whether some process has a word in its command line.
func alive(t *testing.T, word string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(strings.ReplaceAll(string(text), "\x00", " "), word) {
			return true
		}
	}
	return false
}

// eventually waits for a condition.
func eventually(what func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if what() {
			return true
		}
	}
	return false
}

// unique gives a number of seconds that no other sleep has.
func unique(n int) string { return strconv.Itoa(100_000_000 + os.Getpid()*10 + n) }

func TestDaemonsEndWithTheCommand(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "daemon", base+files)
	word := "sleep " + unique(1)
	script := "setsid sh -c '" + word + " & " + word + " & wait' >/dev/null 2>&1 & while ! test -e up; do sleep 0.01; test -n \"$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '" + word + "')\" && touch up; done; exit 3"
	control := b.Bare(b.work, "sh", "-c", script)
	if got := wraptest.Run(t, control, limit); got.Exit != 3 || !alive(t, word) {
		t.Fatalf("control: got %d, want a daemon that outlives its parent", got.Exit)
	}
	kill := exec.Command("sh", "-c", "for p in $(grep -l "+unique(1)+" /proc/[0-9]*/cmdline 2>/dev/null); do kill -9 $(basename $(dirname $p)); done").Args
	// One that forks meanwhile is found the next time.
	if !eventually(func() bool { _ = exec.Command(kill[0], kill[1:]...).Run(); return !alive(t, word) }) {
		t.Fatal("control: the daemon does not end")
	}
	_ = os.Remove(filepath.Join(b.work, "up"))
	if got := wraptest.Run(t, b.wrap(policy, "sh", "-c", script), limit); got.Exit != 3 {
		t.Errorf("got exit %d, want 3: %s", got.Exit, got.Err)
	}
	if alive(t, word) {
		t.Error("got a daemon alive after the run, want none")
	}
}

func TestKillOfTheLauncherEndsTheTree(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "kill", base+files)
	for i, whole := range []bool{false, true} {
		word := "sleep " + unique(2+i)
		cmd := b.wrap(policy, "sh", "-c", "setsid "+word+" & touch up-"+word[6:]+"; "+word)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		up := filepath.Join(b.work, "up-"+word[6:])
		if !eventually(func() bool { _, err := os.Stat(up); return err == nil }) {
			t.Fatal("the tree does not start")
		}
		// With its whole group, as a supervisor does; the keeper has its own.
		pid := cmd.Process.Pid
		if whole {
			pid = -pid
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if !eventually(func() bool { return !alive(t, word) }) {
			t.Errorf("whole group %v: got the tree alive after the launcher was killed, want it ended", whole)
		}
		if !eventually(func() bool { left, _ := os.ReadDir(b.RunBase()); return len(left) == 0 }) {
			t.Errorf("whole group %v: got the run's directory left behind", whole)
		}
	}
}

// TestKillOfTheKeeperEndsTheTree: what the keeper leaves comes to the launcher.
func TestKillOfTheKeeperEndsTheTree(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "keeper", base+files)
	word := "sleep " + unique(5)
	cmd := b.wrap(policy, "sh", "-c", "setsid "+word+" & touch up; "+word)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { _, err := os.Stat(filepath.Join(b.work, "up")); return err == nil }) {
		t.Fatal("the tree does not start")
	}
	keeper := 0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if line, _ := os.ReadFile("/proc/" + child + "/cmdline"); strings.Contains(string(line), "keeper") {
				keeper, _ = strconv.Atoi(child)
			}
		}
	}
	if keeper == 0 {
		t.Fatal("found no keeper")
	}
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := wraptest.Exit(t, cmd.Wait()); got != 125 {
		t.Errorf("got exit %d, want 125", got)
	}
	if alive(t, word) {
		t.Error("got the tree alive after the keeper was killed, want it ended")
	}
}

func TestTimeLimit(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "time", base+files+"limits: {time: 1s}\n")
	word := "sleep " + unique(6)
	got := wraptest.Run(t, b.wrap(policy, "sh", "-c", "setsid "+word+" & "+word), limit)
	if got.Exit != 124 || alive(t, word) {
		t.Errorf("got exit %d %s, alive %v, want 124 and nothing left", got.Exit, got.Err, alive(t, word))
	}
}

func TestTerminal(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "terminal", base+files)
	c := harness.Command{Dir: b.work, Limit: limit, Argv: []string{
		"unshare", "-U", "--map-current-user", "--keep-caps", b.refuse, b.Bin, "--policy", policy, "--",
		"sh", "-c", "test -t 0 && test -t 1 && echo terminal; trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done",
	}}
	got, err := b.Dialogue(c, harness.Size{Rows: 24, Cols: 80}, []harness.Action{
		{Expect: regexp.MustCompile("terminal[\r\n]+ready")}, {Send: "\x03"}, {Expect: regexp.MustCompile("interrupted")},
	})
	if err != nil || got.Exit != 9 {
		t.Errorf("got %d, %v %s, want the trap's 9", got.Exit, err, got.Stdout)
	}
}

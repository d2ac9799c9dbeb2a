package storm

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestInARow launches one after the other: nothing grows.
func TestInARow(t *testing.T) {
	g := newGround(t)
	failed := 0
	for i := range scaled(1000) {
		r := wraptest.Run(t, g.Wrap(g.dir, "strict", "true"), time.Minute)
		if r.Exit != 0 || r.Err != "" {
			t.Errorf("launch %d: got exit %d and %q, want 0 and nothing", i, r.Exit, r.Err)
			failed++
		}
		if failed == 5 {
			break
		}
	}
	g.clean(t, "after all")
}

// TestAtOnce starts many at the same moment: all run, and nothing is left.
func TestAtOnce(t *testing.T) {
	g := newGround(t)
	cmds := make([]*exec.Cmd, scaled(50))
	g.atOnce = len(cmds)
	errs := make([]bytes.Buffer, len(cmds))
	for i := range cmds {
		cmds[i] = g.Wrap(g.dir, "strict", "true")
		cmds[i].Stderr = &errs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range cmds {
		if code := wraptest.Exit(t, cmd.Wait()); code != 0 {
			t.Errorf("launch %d: got exit %d, want 0\n%s", i, code, errs[i].String())
		}
	}
	g.clean(t, "after all")
	// The next launch has only itself to add to what is kept of the others.
	if r := wraptest.Run(t, g.Wrap(g.dir, "strict", "true"), time.Minute); r.Exit != 0 {
		t.Errorf("one more: got exit %d, want 0\n%s", r.Exit, r.Err)
	}
	g.atOnce = 1
	g.clean(t, "after one more")
}

// victims are the parts of one run that are killed.
var victims = []string{"launcher", "proxy", "init"}

// TestKilled kills a part of the run at a random moment of the launch or of the
// run: in the end nothing is left, and the exit code says that it failed.
func TestKilled(t *testing.T) {
	g := newGround(t)
	// A launcher that is killed before it pruned adds one until the next launch.
	g.atOnce = 2
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed)) // #nosec: not a secret
	span := g.span(t)
	hit, early := map[string]int{}, 0
	for range scaled(200) {
		if t.Failed() {
			break
		}
		// The one that was missed most, since some live shorter than others.
		victim := slices.MinFunc(victims, func(a, b string) int { return hit[a] - hit[b] })
		delay := time.Duration(r.Int63n(int64(span)))
		killed, left := g.killOne(t, victim, delay)
		if killed {
			hit[victim]++
		}
		early += left
	}
	t.Logf("run directories that stayed until the next launch: %d", early)
	if most := max(1, hit["launcher"]/10); early > most {
		t.Errorf("run directories that stayed until the next launch: got %d, want at most %d", early, most)
	}
	t.Logf("killed in time: %v, delays up to %v", hit, span)
	for _, v := range victims {
		if scaled(200) >= 100 && hit[v] < scaled(200)/12 {
			t.Errorf("%s: got %d kills, want at least %d", v, hit[v], scaled(200)/12)
		}
	}
}

// job leaves a process of another session behind, clears nothing up, and says
// when it has come to its end.
const job = `setsid sh -c 'while :; do :; done' & read line < /dev/zero & i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill %2; echo > done`

// span is how long one run takes here and now.
func (g ground) span(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if r := wraptest.Run(t, g.Wrap(g.dir, "strict", "sh", "-c", job), time.Minute); r.Exit != 0 {
		t.Fatalf("run: got exit %d, want 0\n%s", r.Exit, r.Err)
	}
	g.finished()
	return time.Since(began)
}

// finished tells whether the job came to its end, and forgets it.
func (g ground) finished() bool {
	return os.Remove(filepath.Join(g.dir, "done")) == nil
}

// sweptLater lets the next launch sweep what the proxy of a killed launcher
// could not: the run directory, if the launcher died before its proxy ran (then
// it gives 1), and, as root, control groups directly below a hierarchy's root,
// which only a capability may remove. The proxy has none. What is there when no
// process of the run is left stays until then.
func (g ground) sweptLater(t *testing.T, when string) (early int) {
	t.Helper()
	var left []string
	within(patience, func() bool {
		left = g.left()
		return !slices.ContainsFunc(left, func(l string) bool { return strings.HasPrefix(l, "process ") })
	})
	for _, l := range left {
		switch {
		case strings.HasPrefix(l, g.RunBase()+"/"):
			early = 1
		case !strings.HasPrefix(l, "control group "):
			return 0
		}
	}
	if len(left) == 0 {
		return 0
	}
	if r := wraptest.Run(t, g.Wrap(g.dir, "strict", "true"), time.Minute); r.Exit != 0 {
		t.Errorf("%s: the next launch: got exit %d, want 0\n%s", when, r.Exit, r.Err)
	}
	return early
}

// killOne kills one part of one run. early is 1 when a run directory stayed
// until the next launch.
func (g ground) killOne(t *testing.T, victim string, delay time.Duration) (killed bool, early int) {
	t.Helper()
	var errs bytes.Buffer
	cmd := g.Wrap(g.dir, "strict", "sh", "-c", job)
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	over := false
	select {
	case <-time.After(delay):
	case err = <-ended:
		over = true
	}
	for !over && !killed {
		if pid := find(cmd.Process.Pid, victim); pid > 0 && unix.Kill(pid, unix.SIGKILL) == nil {
			killed = true
			break
		}
		select {
		case err = <-ended:
			over = true
		default:
		}
	}
	when := fmt.Sprintf("%s killed after %v", victim, delay)
	if !over {
		select {
		case err = <-ended:
		case <-time.After(patience):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			err = <-ended
			t.Errorf("%s: the launcher did not end\n%s", when, errs.String())
		}
	}
	code, finished := wraptest.Exit(t, err), g.finished()
	if killed && code == 0 && !finished {
		t.Errorf("%s: got exit 0, want a failure\n%s", when, errs.String())
	}
	if !killed && code != 0 {
		t.Errorf("nothing killed: got exit %d, want 0\n%s", code, errs.String())
	}
	if victim == "launcher" && killed {
		early = g.sweptLater(t, when)
	}
	g.clean(t, when)
	if !finished && g.finished() {
		t.Errorf("%s: the command went on", when)
	}
	return killed, early
}

// find gives the pid of a part of the run, 0 while there is none.
func find(launcher int, victim string) int {
	if victim == "launcher" {
		return launcher
	}
	for _, p := range descendants(false) {
		switch victim {
		case "proxy":
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			if strings.HasPrefix(string(args), "hermes-wrap: proxy") {
				return p.pid
			}
		case "init":
			if p.state != "Z" && isInit(p.pid) {
				return p.pid
			}
		}
	}
	return 0
}

// isInit tells whether a process is PID 1 of a namespace of its own.
func isInit(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(rest)
			return len(f) > 1 && slices.Index(f, "1") == len(f)-1
		}
	}
	return false
}

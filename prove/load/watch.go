package load

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// longestPause is how long the host or another sandbox may stand still while
// some sandbox does its worst.
const longestPause = 5 * time.Second

// busy is how many times longer a pause may be for what it is without any load of
// ours: a machine that others keep busy makes pauses of its own.
const busy = 10

// bareTimes is how many times longer a pause may be for what it was under the same
// load without a sandbox: how processes share a CPU is the kernel's affair.
const bareTimes = 2

// watcher beats all the time, in a sandbox of its own or on the bare host.
type watcher struct {
	name string
	cmd  *exec.Cmd
	idle time.Duration // its longest pause with no load
	bare time.Duration // its longest pause in the load before, if that was a twin

	mu   sync.Mutex
	last time.Time
	took []time.Duration // of each beat since the last mark
	gap  time.Duration   // the longest between two since the last mark
}

func (y *yard) watch(name string, cmd *exec.Cmd) (*watcher, error) {
	w := &watcher{name: name, cmd: cmd, last: time.Now()}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started.Store(cmd.Process.Pid, nil)
	first := make(chan struct{})
	var once sync.Once
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var us int64
			if _, err := fmt.Sscan(lines.Text(), &us); err != nil {
				continue
			}
			now := time.Now()
			w.mu.Lock()
			w.took = append(w.took, time.Duration(us)*time.Microsecond)
			w.gap, w.last = max(w.gap, now.Sub(w.last)), now
			w.mu.Unlock()
			once.Do(func() { close(first) })
		}
	}()
	select {
	case <-first:
		w.mark()
		return w, nil
	case <-time.After(20 * time.Second):
		w.stop()
		return nil, fmt.Errorf("the %s does not beat", name)
	}
}

func (w *watcher) stop() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// mark begins a new stretch.
func (w *watcher) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took, w.gap, w.last = nil, 0, time.Now()
}

// stretch says how it beat since the mark.
func (w *watcher) stretch() (median, worst, gap time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap = max(w.gap, time.Since(w.last))
	if len(w.took) == 0 {
		return 0, 0, gap
	}
	slices.Sort(w.took)
	return w.took[len(w.took)/2], w.took[len(w.took)-1], gap
}

// watchers starts the second sandbox and the bare probe.
func (y *yard) watchers(ctx context.Context) (list []*watcher, err error) {
	quiet, err := y.policy("neighbour", "")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(y.dir, "home")
	for name, cmd := range map[string]*exec.Cmd{
		"host":      y.bare(ctx, filepath.Join(y.ws, "load"), "beat", dir, "3600"),
		"neighbour": y.inside(ctx, quiet, "beat", "/tmp", "3600"),
	} {
		w, err := y.watch(name, cmd)
		if err != nil {
			return list, err
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *watcher) int { return len(a.name) - len(b.name) })
	return list, nil
}

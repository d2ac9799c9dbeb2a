package sandbox

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// freezer stops everything inside but init: for a moment while a cover is put
// back, and for as long as the launcher likes when a run is paused. The zero
// value has nothing stopped.
type freezer struct {
	stopped atomic.Bool

	mu     sync.Mutex // held for as long as a cover is put back
	paused bool
	before map[int]bool // had been stopped when the pause began

	// resumed: a SIGCONT came during the pause, and continues those too.
	resumed atomic.Bool
}

// How long a pause waits for processes to stop, and for those in an
// uninterruptible wait: a write that the kernel has in hand is finished first.
// Longer waits are not held against the pause, since the parent of a vfork(2)
// waits for a child that is stopped.
const (
	freezeLook  = time.Millisecond
	freezeLimit = 10 * time.Second
	freezeDisk  = 200 * time.Millisecond
)

// frozen tells whether a process that is stopped may be so because of us.
func (f *freezer) frozen() bool { return f.stopped.Load() }

// begin stops everything at once, and end continues it unless the run is paused.
func (f *freezer) begin() {
	f.mu.Lock()
	f.stopped.Store(true)
	_ = unix.Kill(-1, unix.SIGSTOP)
}

func (f *freezer) end() {
	defer f.mu.Unlock()
	if !f.paused {
		_ = unix.Kill(-1, unix.SIGCONT)
		f.stopped.Store(false)
	}
}

// later tells that a SIGCONT has to wait for the end of a pause.
func (f *freezer) later() bool {
	if !f.stopped.Load() {
		return false
	}
	f.resumed.Store(true)
	return true
}

// pause stops everything and returns when nothing runs any more. The kernel
// holds kill(-1) against forks; looking again holds it against surprises.
func (f *freezer) pause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused {
		return nil
	}
	all, err := processes()
	if err != nil {
		return err
	}
	f.before = map[int]bool{}
	for _, p := range all {
		f.before[p.pid] = p.state == 'T'
	}
	f.resumed.Store(false)
	f.stopped.Store(true)
	f.paused = true
	for began := time.Now(); ; time.Sleep(freezeLook) {
		_ = unix.Kill(-1, unix.SIGSTOP)
		all, err := processes()
		waited := time.Since(began)
		if err == nil && !slices.ContainsFunc(all, func(p process) bool { return p.runs() || p.state == 'D' && waited < freezeDisk }) {
			return nil
		}
		if waited > freezeLimit {
			f.lockedContinue()
			return errors.Join(errors.New("not everything inside could be stopped; it goes on"), err)
		}
	}
}

// unpause continues what pause stopped. It gives true when the command stays
// stopped, as it was before.
func (f *freezer) unpause(command int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.paused {
		return false
	}
	stays := f.before[command] && !f.resumed.Load()
	f.lockedContinue()
	return stays
}

// lockedContinue goes from the youngest to the oldest: a parent that looks
// after its children finds them running again.
func (f *freezer) lockedContinue() {
	all, err := processes()
	if err != nil {
		_ = unix.Kill(-1, unix.SIGCONT)
	}
	slices.SortFunc(all, func(a, b process) int {
		return cmp.Or(cmp.Compare(b.began, a.began), cmp.Compare(b.pid, a.pid))
	})
	for _, p := range all {
		if !f.before[p.pid] || f.resumed.Load() {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
	f.paused, f.before = false, nil
	f.stopped.Store(false)
}

// process is one process inside as /proc/PID/stat shows it.
type process struct {
	pid   int
	state byte
	began uint64 // in clock ticks
}

// runs tells whether it may execute code of its own. One that waits in the
// kernel (D) stops before it does: the parent of a vfork(2) waits for a child
// that is stopped.
func (p process) runs() bool { return p.state == 'R' || p.state == 'S' }

// goesOn tells that a process is not stopped.
func goesOn(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	p, err := parseProcess(b)
	return err == nil && (p.runs() || p.state == 'D')
}

// processes lists everything inside but init.
func processes() ([]process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		p, err := parseProcess(b)
		if err != nil {
			return nil, err
		}
		p.pid = pid
		all = append(all, p)
	}
	return all, nil
}

// parseProcess reads the state and the start time in /proc/PID/stat, see proc(5).
// The name before them is in parentheses and may hold anything.
func parseProcess(stat []byte) (process, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, errors.New("read stat: too short")
	}
	began, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return process{}, err
	}
	return process{state: fields[0][0], began: began}, nil
}

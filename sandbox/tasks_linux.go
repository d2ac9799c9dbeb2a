package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tasks are the processes that init had started after the command. Like the
// command they are init's own children.
type tasks struct {
	mu   sync.Mutex
	byID map[int]*task
}

// task is one of them; pid is 0 until it is known to run.
type task struct {
	pid    int
	master *os.File // of its terminal, until the launcher has it
	sweep  bool     // its process group ends with it
}

func (t *tasks) add(id int, master *os.File, sweep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[int]*task{}
	}
	t.byID[id] = &task{master: master, sweep: sweep}
}

// started notes the pid, and gives the master to hand over.
func (t *tasks) started(id, pid int) (master *os.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.byID[id]; k != nil {
		master, k.pid, k.master = k.master, pid, nil
	}
	return master
}

// drop forgets a task that did not start.
func (t *tasks) drop(id int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.byID[id]; k != nil && k.master != nil {
		k.master.Close()
	}
	delete(t.byID, id)
}

// wait reaps one child of init's: any, or while a task is being started only
// one that is known. The task may have ended before the starter has said which
// pid it is; it stays a zombie until then, and its pid nobody else's.
func (t *tasks) wait(known ...int) (pid int, ws unix.WaitStatus, task int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pids := []int{-1}
	for _, k := range t.byID {
		if k.pid == 0 {
			pids = slices.Clone(known)
			for _, k := range t.byID {
				if k.pid != 0 {
					pids = append(pids, k.pid)
				}
			}
			break
		}
	}
	for _, of := range pids {
		got, err := unix.Wait4(of, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		for err == unix.EINTR {
			got, err = unix.Wait4(of, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		}
		if err == nil && got > 0 {
			return got, ws, t.lockedEnded(got, ws)
		}
	}
	return 0, 0, 0
}

// lockedEnded forgets the task with a pid and gives its id, 0 if it is none or
// was stopped.
func (t *tasks) lockedEnded(pid int, ws unix.WaitStatus) int {
	for id, k := range t.byID {
		if k.pid == pid && !ws.Stopped() {
			if k.sweep {
				// What is left keeps the group's number. If nothing is, the number
				// comes round again only after all others.
				_ = unix.Kill(-pid, unix.SIGKILL)
			}
			delete(t.byID, id)
			return id
		}
	}
	return 0
}

// signal reaches one task, or with id 0 all of them. Each has a session and
// with it a process group of its own.
func (t *tasks) signal(id int, sig unix.Signal, group bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, k := range t.byID {
		switch {
		case k.pid == 0 || id != 0 && i != id:
		case group:
			_ = unix.Kill(-k.pid, sig)
		default:
			_ = unix.Kill(k.pid, sig)
		}
	}
}

// signal carries out a signal to the command or a task. Without a command it
// goes to every task.
func (p *pidOne) signal(m message) {
	sig := unix.Signal(m.Signal)
	if sig == unix.SIGCONT && p.freezer.later() {
		return
	}
	switch {
	case m.Id != 0 || p.agent == 0:
		p.tasks.signal(m.Id, sig, m.Group)
	case m.Group:
		_ = unix.Kill(-p.group, sig)
	default:
		_ = unix.Kill(p.agent, sig)
	}
}

// answer carries out a request and answers it. A start is answered when the
// starter has said how it went.
func (p *pidOne) answer(m message) {
	defer closeAll(m.files)
	a := message{Op: opAnswer, Id: m.Id}
	var err error
	var f *os.File
	switch {
	case m.Op == opStart:
		if err = p.startTask(m); err == nil {
			return
		}
	case p.s.Plan.Weak != nil:
		err = errNoNamespaces // kill(-1) would stop the host
	default:
		f, err = p.carryOutAnswered(m)
	}
	if err != nil {
		a = failure(a, err)
	}
	if f != nil {
		defer f.Close()
		a.files = []*os.File{f}
	}
	p.say(a)
}

// say sends an answer, or at least that it did not get through.
func (p *pidOne) say(a message) {
	if err := p.c.send(a); err != nil {
		_ = p.c.send(failure(message{Op: a.Op, Id: a.Id}, err))
	}
}

func (p *pidOne) carryOutAnswered(m message) (f *os.File, err error) {
	switch m.Op {
	case opPause:
		err = p.freezer.pause()
	case opUnpause:
		// Without an id it is the run's end that asks.
		if p.freezer.unpause(p.agent) && m.Id != 0 {
			_ = p.c.send(message{Op: opStopped, Signal: int(unix.SIGSTOP)})
		}
	case opSocket:
		f, err = newSocket(m.Family)
	case opListen:
		f, err = p.listenAt(m.Path, m.Datagram)
	case opDial:
		f, err = dialAt(m.Path)
	}
	return f, err
}

// failure makes an answer one of a request that failed.
func failure(a message, err error) message {
	a.Error = err.Error()
	if se := (*StepError)(nil); errors.As(err, &se) {
		a.Step, a.Error = string(se.Step), se.Err.Error()
	}
	if no := unix.Errno(0); errors.As(err, &no) {
		a.Errno = int(no)
	}
	return a
}

// startTask orders a task.
func (p *pidOne) startTask(m message) error {
	if p.starter == nil {
		return errors.New("BUG: no starter")
	}
	if len(m.files) == 0 {
		return errors.New("BUG: a task without a block")
	}
	o := order{id: m.Id, block: m.files[0], tty: -1, session: true}
	streams, err := p.taskStreams(m, &o)
	defer closeAll(streams)
	if err == nil {
		err = p.starter.send(o)
	}
	if err != nil {
		p.tasks.drop(m.Id)
	}
	return err
}

// taskStreams lays out the standard streams: what the launcher passed, the task's
// terminal, or /dev/null. The files are to be closed.
func (p *pidOne) taskStreams(m message, o *order) (open []*os.File, err error) {
	var master *os.File
	slave := -1
	if m.Terminal {
		if master, slave, err = openPair(p.ptmx); err != nil {
			return nil, stepErr(StepTerminal, err)
		}
		open = append(open, os.NewFile(uintptr(slave), "terminal"))
	}
	p.tasks.add(m.Id, master, m.Sweep)
	if m.Terminal {
		if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: m.Rows, Col: m.Cols}); err != nil {
			return open, stepErr(StepTerminal, fmt.Errorf("set the terminal's size: %w", err))
		}
	}
	own, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return open, err
	}
	open = append(open, own)
	given := m.files[1:]
	for i := range o.stdio {
		o.stdio[i] = int(own.Fd())
		switch {
		case m.Streams[i]:
			if len(given) == 0 {
				return open, errors.New("BUG: a stream is missing")
			}
			o.stdio[i] = int(given[0].Fd())
			if device, ok := ownDevice(o.stdio[i]); ok {
				open, o.stdio[i] = append(open, os.NewFile(uintptr(device), "device")), device
			}
			given = given[1:]
		case m.Terminal:
			o.tty, o.stdio[i] = i, slave
		}
	}
	return open, nil
}

// told passes on what the starter says to an order.
func (p *pidOne) told(w word) {
	if w.err != nil {
		p.tasks.drop(w.id)
		_ = p.c.send(failure(message{Op: opAnswer, Id: w.id}, w.err))
		return
	}
	a := message{Op: opAnswer, Id: w.id, Pid: w.pid}
	if master := p.tasks.started(w.id, w.pid); master != nil {
		defer master.Close()
		a.files = []*os.File{master}
	}
	p.say(a)
}

// lastWords is how long the command has to be found dead beside the starter.
const lastWords = time.Second

// withCommand tells that the command has ended too, as when it was killed with
// everything else (kill -9 -1): then its end is what the run ends with.
func (p *pidOne) withCommand() bool {
	for end := time.Now().Add(lastWords); p.agent != 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(p.agent, &ws, unix.WNOHANG, nil)
		if err == nil && pid == p.agent {
			return p.commandChanged(ws)
		}
	}
	return false
}

// commandChanged passes on that the command ended or was stopped. It gives true
// when it ended.
func (p *pidOne) commandChanged(ws unix.WaitStatus) (over bool) {
	if !ws.Stopped() {
		_ = p.c.send(message{Op: opExited, Status: int(ws)})
		return true
	}
	if !p.freezer.frozen() && !goesOn(p.agent) {
		_ = p.c.send(message{Op: opStopped, Signal: int(ws.StopSignal())})
	}
	return false
}

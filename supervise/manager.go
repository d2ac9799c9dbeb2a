package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Process is one start of a service.
type Process interface {
	// Wait blocks until it ended and everything that it printed was taken. An
	// error means that nothing runs any more, this process included.
	Wait() (Exit, error)
	// Signal sends a signal to it, or to its whole process group.
	Signal(sig syscall.Signal, group bool) error
}

// What an Event is about.
const (
	EventStart     = "start"     // it runs
	EventReady     = "ready"     // it is up
	EventExit      = "exit"      // it ended
	EventRestart   = "restart"   // it is to be started again, after Delay
	EventGiveUp    = "give up"   // it is not started again although it should run
	EventUnhealthy = "unhealthy" // it did not answer as it should
	EventStop      = "stop"      // it was asked to end
	EventKill      = "kill"      // it did not end in time
)

// Event is something that happened to a service.
type Event struct {
	Kind    string
	Service string
	// Exit is how it ended (exit).
	Exit Exit
	// Delay is the pause before the restart, or the time left to end.
	Delay time.Duration
	// Reason explains it (restart, give up, unhealthy, stop).
	Reason string
}

// killWait is how long a process may take to go after SIGKILL. One that is
// stuck in the kernel for longer is left to the end of the sandbox.
const killWait = 10 * time.Second

// ErrGone is what everything runs in being gone.
var ErrGone = errors.New("what the services run in is gone")

// Manager runs services until the command is done with.
type Manager struct {
	Services []Service
	// Start starts a service by name and returns once it runs. ErrGone means that
	// nothing can be started any more.
	Start func(name string) (Process, error)
	// Tell is told what happens, one event after the other. It must not block.
	Tell func(Event)
	// Dial connects to a port of the services' own loopback.
	Dial Dialer
	// Paused tells whether everything is stopped, so that no answer means nothing.
	// Nil: it never is.
	Paused func() bool
	// Stop asks for the end, in order, and says why. Whatever comes after the
	// first is taken for impatience: everything is killed.
	Stop <-chan string

	units []*unit
	inbox chan func()
	over  chan struct{} // closed when Run returns
	// ending: services are stopped and nothing is started any more.
	ending bool
	gone   error // nothing runs any more, whatever we think
}

// NewManager gives a manager whose exported fields are still to be set.
func NewManager(services []Service) *Manager {
	m := &Manager{Services: services, inbox: make(chan func(), 16), over: make(chan struct{})}
	for _, s := range services {
		m.units = append(m.units, &unit{Service: s, machine: Machine{Rules: s.Rules}})
	}
	return m
}

// phase is what a unit is doing.
type phase int

const (
	waiting  phase = iota // for what it comes after
	running               // it was started
	stopping              // it was asked to end
	pausing               // it ended and is to be started again
	ended                 // for good
)

// unit is one service as the manager sees it.
type unit struct {
	Service
	machine   Machine
	phase     phase
	start     int  // counts starts, so that a late message is known as such
	up        bool // once: what comes after it need not wait
	ready     bool // since the last start
	unhealthy bool
	process   Process
	timer     *time.Timer
	uncheck   context.CancelFunc
	last      Exit
}

// Run starts the services and gives how the command ended. An error means that
// nothing runs any more for another reason.
func (m *Manager) Run() (Exit, error) {
	defer close(m.over)
	defer m.release()
	m.startDue()
	for m.gone == nil && !m.finished() {
		select {
		case do := <-m.inbox:
			do()
		case reason := <-m.Stop:
			if m.ending {
				m.killAll()
			}
			m.end(reason)
		}
	}
	return m.unit(Main).last, m.gone
}

// Ready tells that a service says it is up.
func (m *Manager) Ready(name string) {
	m.post(func() {
		if u := m.unit(name); u != nil && u.phase == running {
			m.ready(u)
		}
	})
}

// Signal passes a signal on to a service, if it runs.
func (m *Manager) Signal(name string, sig syscall.Signal, group bool) {
	m.post(func() {
		if u := m.unit(name); u != nil && u.process != nil {
			_ = u.process.Signal(sig, group)
		}
	})
}

// post has something done by Run; it is dropped when Run is over.
func (m *Manager) post(do func()) {
	select {
	case m.inbox <- do:
	case <-m.over:
	}
}

func (m *Manager) unit(name string) *unit {
	i := slices.IndexFunc(m.units, func(u *unit) bool { return u.Name == name })
	if i < 0 {
		return nil
	}
	return m.units[i]
}

func (m *Manager) finished() bool {
	return !slices.ContainsFunc(m.units, func(u *unit) bool { return u.phase != ended })
}

// release ends what still waits.
func (m *Manager) release() {
	for _, u := range m.units {
		u.disarm()
	}
}

// startDue starts what has waited for others and need not wait any longer.
func (m *Manager) startDue() {
	for again := true; again && !m.ending && m.gone == nil; {
		again = false
		for _, u := range m.units {
			if u.phase != waiting || m.ending || m.gone != nil {
				continue
			}
			if lost := m.blockedBy(u); lost != "" {
				again = true
				u.last = Exit{Err: fmt.Errorf("%s, which it comes after, never was up", lost)}
				m.giveUp(u, u.last.Err.Error())
			} else if m.due(u) {
				again = true
				m.begin(u)
			}
		}
	}
}

func (m *Manager) due(u *unit) bool {
	return !slices.ContainsFunc(u.After, func(name string) bool { return !m.unit(name).up })
}

// blockedBy names a service that will never be up.
func (m *Manager) blockedBy(u *unit) string {
	i := slices.IndexFunc(u.After, func(name string) bool { a := m.unit(name); return a.phase == ended && !a.up })
	if i < 0 {
		return ""
	}
	return u.After[i]
}

// begin starts a service.
func (m *Manager) begin(u *unit) {
	u.disarm()
	u.start++
	u.unhealthy, u.ready = false, false
	process, err := m.Start(u.Name)
	u.machine.Started(time.Now())
	if errors.Is(err, ErrGone) {
		m.gone = err
		return
	}
	if err != nil {
		u.phase = running
		m.exited(u, Exit{Err: err})
		return
	}
	u.phase, u.process = running, process
	m.Tell(Event{Kind: EventStart, Service: u.Name})
	start := u.start
	go func() {
		e, err := process.Wait()
		m.post(func() {
			switch {
			case u.start != start:
			case err != nil:
				m.gone = err
			default:
				m.exited(u, e)
			}
		})
	}()
	if u.Health.Port != 0 {
		m.watch(u)
	} else if !u.Notify {
		m.ready(u)
	}
}

// watch asks a service whether it works for as long as it runs.
func (m *Manager) watch(u *unit) {
	ctx, cancel := context.WithCancel(context.Background())
	u.uncheck = cancel
	start := u.start
	go u.Health.Watch(ctx, m.Dial, m.Paused, func(failed int, err error) {
		m.post(func() {
			if u.start == start && u.phase == running {
				m.answered(u, failed, err)
			}
		})
	})
}

// answered takes the result of one check; failed is the number in a row.
func (m *Manager) answered(u *unit, failed int, err error) {
	switch {
	case err == nil && !u.Notify:
		m.ready(u)
	case err != nil:
		m.Tell(Event{Kind: EventUnhealthy, Service: u.Name, Reason: fmt.Sprintf("%v (%d of %d)", err, failed, u.Health.Failures)})
		if failed >= u.Health.Failures {
			u.unhealthy = true
			m.stop(u, "it does not answer")
		}
	}
}

// ready notes that a service is up; what waits for it can start.
func (m *Manager) ready(u *unit) {
	if u.ready {
		return
	}
	u.up, u.ready = true, true
	m.Tell(Event{Kind: EventReady, Service: u.Name})
	m.startDue()
}

// exited decides what becomes of a service that ended.
func (m *Manager) exited(u *unit, e Exit) {
	u.disarm()
	u.process, u.phase = nil, ended
	e.Unhealthy = u.unhealthy
	u.last = e
	m.Tell(Event{Kind: EventExit, Service: u.Name, Exit: e})
	if m.ending {
		m.stopDue()
		return
	}
	d := u.machine.Ended(time.Now(), e)
	switch d.Verdict {
	case Again:
		reason := ""
		if d.Asked {
			reason = "it asked for it"
		}
		u.phase = pausing
		m.Tell(Event{Kind: EventRestart, Service: u.Name, Delay: d.Delay, Reason: reason})
		u.after(m, d.Delay, func() { m.begin(u) })
		return
	case GiveUp:
		m.giveUp(u, d.Reason)
	}
	if u.Name == Main {
		m.end("the command is over")
		return
	}
	m.startDue()
}

// giveUp notes that a service is not started any more. The run goes on unless it
// is the command.
func (m *Manager) giveUp(u *unit, reason string) {
	u.phase = ended
	m.Tell(Event{Kind: EventGiveUp, Service: u.Name, Reason: reason})
	if u.Name == Main {
		m.end("the command is over")
	}
}

// end stops everything, in order. It does nothing the second time.
func (m *Manager) end(reason string) {
	if m.ending {
		return
	}
	m.ending = true
	for _, u := range m.units {
		if u.phase == waiting || u.phase == pausing {
			u.disarm()
			u.phase = ended
		}
		if u.uncheck != nil {
			u.uncheck()
		}
	}
	m.stopReason(reason)
}

// stopDue asks those to end that nothing which still runs comes after.
func (m *Manager) stopDue() { m.stopReason("") }

func (m *Manager) stopReason(reason string) {
	for _, u := range m.units {
		if u.phase == running && !m.needed(u) {
			m.stop(u, reason)
		}
	}
}

// needed tells whether something that still runs comes after a service.
func (m *Manager) needed(u *unit) bool {
	return slices.ContainsFunc(m.units, func(o *unit) bool {
		return (o.phase == running || o.phase == stopping) && slices.Contains(o.After, u.Name)
	})
}

// stop asks one service to end, and kills it when it does not.
func (m *Manager) stop(u *unit, reason string) {
	u.disarm()
	u.phase = stopping
	m.Tell(Event{Kind: EventStop, Service: u.Name, Delay: u.StopGrace, Reason: reason})
	_ = u.process.Signal(syscall.SIGTERM, false)
	// One that is stopped would not hear it.
	_ = u.process.Signal(syscall.SIGCONT, true)
	u.after(m, u.StopGrace, func() { m.kill(u) })
}

func (m *Manager) kill(u *unit) {
	u.disarm()
	u.phase = stopping
	m.Tell(Event{Kind: EventKill, Service: u.Name})
	_ = u.process.Signal(syscall.SIGKILL, true)
	_ = u.process.Signal(syscall.SIGKILL, false)
	start := u.start
	u.after(m, killWait, func() {
		u.start = start + 1 // its end is not waited for any more
		m.exited(u, Exit{Signal: int(syscall.SIGKILL)})
	})
}

// killAll ends what is left without further ado.
func (m *Manager) killAll() {
	for _, u := range m.units {
		if u.process != nil {
			m.kill(u)
		}
	}
}

// after has something done later, unless the unit gets on with its life before.
func (u *unit) after(m *Manager, d time.Duration, do func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		m.post(func() {
			if u.timer == t {
				do()
			}
		})
	})
	u.timer = t
}

// disarm ends the unit's timer and its checks.
func (u *unit) disarm() {
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	if u.uncheck != nil {
		u.uncheck()
		u.uncheck = nil
	}
}

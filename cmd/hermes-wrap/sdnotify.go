package main

import (
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// What a service manager outside is told; see sd_notify(3).
const (
	sdReady    = daemon.SdNotifyReady
	sdStopping = daemon.SdNotifyStopping
	sdWatchdog = daemon.SdNotifyWatchdog
)

// serviceManager is the service manager that started us, if there is one. It is told
// things by one goroutine, since it may not listen.
type serviceManager struct {
	messages   chan string
	quit, done chan struct{}
	// watchdog is how often it wants a sign of life; 0: never.
	watchdog time.Duration
	// ours is until when we give that sign ourselves (Unix nanoseconds).
	ours atomic.Int64
	// paused tells whether the run is: then the sign is ours to give as well.
	paused func() bool
}

// managerRoom is how many messages may wait; the rest is dropped, as when the
// manager itself does not keep up.
const managerRoom = 64

// forever is a time that does not come.
const forever = int64(1<<63 - 1)

// newServiceManager finds it through the environment. Its end is close.
func newServiceManager(paused func() bool) *serviceManager {
	m := &serviceManager{paused: paused, messages: make(chan string, managerRoom), quit: make(chan struct{}), done: make(chan struct{})}
	if every, err := daemon.SdWatchdogEnabled(false); err == nil {
		m.watchdog = every
	}
	m.ours.Store(forever)
	go m.run()
	return m
}

func (m *serviceManager) run() {
	defer close(m.done)
	var tick <-chan time.Time
	if m.watchdog > 0 {
		t := time.NewTicker(m.watchdog / 2)
		defer t.Stop()
		tick = t.C
	}
	for {
		text := sdWatchdog
		select {
		case text = <-m.messages:
		case <-m.quit:
			for len(m.messages) > 0 {
				_, _ = daemon.SdNotify(false, <-m.messages)
			}
			return
		case now := <-tick:
			if now.UnixNano() > m.ours.Load() && !m.paused() {
				continue // the command gives it
			}
		}
		_, _ = daemon.SdNotify(false, text) // whoever asked to be told is there or is not
	}
}

// tell passes a message on; "" is none.
func (m *serviceManager) tell(text string) {
	if text == "" {
		return
	}
	select {
	case m.messages <- text:
	default:
	}
}

// close waits a moment for what was said last.
func (m *serviceManager) close() {
	close(m.quit)
	select {
	case <-m.done:
	case <-time.After(time.Second):
	}
}

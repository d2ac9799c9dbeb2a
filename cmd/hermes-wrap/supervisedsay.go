package main

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/supervise"
)

// told writes down what happens to a service. It is called by the manager, one
// event at a time, and does not block.
func (s *supervision) told(e supervise.Event) {
	text := e.Service + ": " + textOf(e)
	s.log.Say(launcherName, text)
	if e.Kind == supervise.EventGiveUp {
		s.warn(text)
	}
	s.manage(e)
	if err := s.record(e); err != nil {
		s.end(err, err.Error())
	}
}

func textOf(e supervise.Event) string {
	text := ""
	switch e.Kind {
	case supervise.EventStart:
		text = "started"
	case supervise.EventReady:
		text = "is up"
	case supervise.EventExit:
		text = e.Exit.String()
	case supervise.EventRestart:
		text = fmt.Sprintf("starts again in %v", e.Delay)
	case supervise.EventGiveUp:
		text = "given up"
	case supervise.EventUnhealthy:
		text = "does not answer"
	case supervise.EventStop:
		text = fmt.Sprintf("is asked to end within %v", e.Delay)
	case supervise.EventKill:
		text = "is killed"
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// record writes an event to the audit record. What says nothing new about what
// is running is left out.
func (s *supervision) record(e supervise.Event) error {
	if e.Kind == supervise.EventReady || e.Kind == supervise.EventStop {
		return nil
	}
	out := audit.Event{Kind: audit.KindService, Service: e.Service, Operation: e.Kind, Reason: e.Reason}
	switch e.Kind {
	case supervise.EventExit:
		code := exitCode(waitStatusOf(e.Exit))
		out.ExitCode = &code
		if e.Exit.Err != nil {
			out.Reason = e.Exit.String()
		}
	case supervise.EventRestart:
		out.Reason = strings.TrimPrefix(e.Reason+fmt.Sprintf(" in %v", e.Delay), " ")
	}
	return s.l.write(out)
}

// startWait is how long a command that notifies may take to say that it is up
// before nobody gives signs of life for it any longer.
const startWait = 90 * time.Second

// manage tells the service manager outside what it can use: that all services
// are up, and signs of life while the command cannot give them.
func (s *supervision) manage(e supervise.Event) {
	main := e.Service == supervise.Main && s.notify
	switch e.Kind {
	case supervise.EventReady, supervise.EventGiveUp, supervise.EventExit:
		if e.Kind != supervise.EventExit && len(s.unready) > 0 {
			s.unready = slices.DeleteFunc(s.unready, func(n string) bool { return n == e.Service })
			if len(s.unready) == 0 && !s.notify {
				s.outside.tell(sdReady)
			}
		}
		if main {
			s.outside.ours.Store(forever)
		}
		if main && e.Kind == supervise.EventReady {
			s.outside.ours.Store(0)
		}
	case supervise.EventStart:
		if main {
			s.outside.ours.Store(time.Now().Add(startWait).UnixNano())
		}
	}
}

// notifySocket is where the command says how it is, in its private runtime
// directory.
func (s *supervision) notifySocket() string {
	for _, kv := range s.env {
		if dir, ok := strings.CutPrefix(kv, "XDG_RUNTIME_DIR="); ok {
			return filepath.Join(dir, "notify")
		}
	}
	return "/tmp/notify"
}

// notifyEnv are the variables of sd_notify(3) as the command sees them.
func (s *supervision) notifyEnv() map[string]string {
	set := map[string]string{"NOTIFY_SOCKET": s.notifySocket()}
	if s.outside.watchdog > 0 {
		set["WATCHDOG_USEC"] = strconv.FormatInt(s.outside.watchdog.Microseconds(), 10)
	}
	return set
}

// listenNotify opens the socket that the command notifies, if it does.
func (s *supervision) listenNotify() error {
	if !s.notify {
		return nil
	}
	f, err := s.box.Listen("unixgram:" + s.notifySocket())
	if err != nil {
		return fmt.Errorf("open the socket for sd_notify: %w", err)
	}
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return fmt.Errorf("open the socket for sd_notify: %w", err)
	}
	go s.readNotify(c)
	return nil
}

// readNotify takes messages until the sandbox is gone; descriptors that come
// with them are closed by the kernel. Anybody inside can send some: what they
// say is as true as what the command prints.
func (s *supervision) readNotify(c net.PacketConn) {
	defer func() { _ = c.Close() }()
	said := map[string]bool{}
	b := make([]byte, supervise.MaxNotification+1)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		m, err := supervise.ParseNotification(b[:n])
		if err != nil {
			s.once(said, "a message of sd_notify is left out: "+err.Error())
			continue
		}
		for _, key := range m.Ignored {
			s.once(said, key+" of sd_notify is not passed on")
		}
		if m.Status != "" {
			s.log.Say(launcherName, supervise.Main+": status: "+m.Status)
		}
		s.outside.tell(m.Relay(s.ending.Load()))
		if m.Ready {
			s.manager.Ready(supervise.Main)
		}
	}
}

// maxOnce bounds what once remembers: keys are the sender's own.
const maxOnce = 64

// once says a thing the first time.
func (s *supervision) once(said map[string]bool, text string) {
	if said[text] || len(said) >= maxOnce {
		return
	}
	said[text] = true
	s.log.Say(launcherName, supervise.Main+": "+text)
}

// sayUnsupervised warns about services that the policy has and this run has not.
func (l *launch) sayUnsupervised() {
	if services := l.prep.policy.Supervise.Services; len(services) > 0 && l.unsupervised() && !l.flags.quiet {
		names := make([]string, 0, len(services))
		for name := range services {
			names = append(names, name)
		}
		slices.Sort(names)
		l.voice.warn("the command is run once and alone; not started: " + strings.Join(names, ", "))
	}
}

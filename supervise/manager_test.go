package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// behaviour is what a start of a service does.
type behaviour struct {
	runs time.Duration // 0: until it is signalled
	exit Exit
	err  error         // it cannot be started
	term time.Duration // how long SIGTERM takes; -1: it is ignored
}

// stage is a sandbox that is none.
type stage struct {
	t      *testing.T
	script map[string][]behaviour // by service, one a start; the last one repeats
	starts map[string]int
	log    []string
	began  time.Time
	m      *Manager
	stop   chan string
}

func newStage(t *testing.T, script map[string][]behaviour, services ...Service) *stage {
	s := &stage{t: t, script: script, starts: map[string]int{}, began: time.Now(), m: NewManager(services), stop: make(chan string)}
	s.m.Start, s.m.Stop = s.start, s.stop
	s.m.Tell = func(e Event) {
		what := e.Kind
		if e.Kind == EventExit {
			what = e.Exit.String()
		}
		s.log = append(s.log, fmt.Sprintf("%v %s %s", time.Since(s.began), e.Service, what))
	}
	s.m.Dial = func(context.Context, int) (net.Conn, error) { return nil, errors.New("nobody listens") }
	return s
}

type actor struct {
	do     behaviour
	signal chan syscall.Signal
}

func (s *stage) start(name string) (Process, error) {
	script := s.script[name]
	do := script[min(s.starts[name], len(script)-1)]
	s.starts[name]++
	if do.err != nil {
		return nil, do.err
	}
	return &actor{do: do, signal: make(chan syscall.Signal, 8)}, nil
}

func (a *actor) Signal(sig syscall.Signal, _ bool) error {
	a.signal <- sig
	return nil
}

func (a *actor) Wait() (Exit, error) {
	var over <-chan time.Time
	if a.do.runs > 0 {
		over = time.After(a.do.runs)
	}
	for {
		select {
		case <-over:
			return a.do.exit, nil
		case sig := <-a.signal:
			switch {
			case sig == syscall.SIGKILL:
				return Exit{Signal: 9}, nil
			case sig == syscall.SIGTERM && a.do.term >= 0:
				over = time.After(a.do.term)
			}
		}
	}
}

func service(name string, r Rules, after ...string) Service {
	return Service{Name: name, Rules: r.complete(), After: after, StopGrace: 75 * time.Second}
}

func (s *stage) want(lines ...string) {
	s.t.Helper()
	if !slices.Equal(s.log, lines) {
		s.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(s.log, "\n  "), strings.Join(lines, "\n  "))
	}
}

func TestRestartsUntilGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{Main: {{runs: time.Minute, exit: Exit{Signal: 9}}, {runs: time.Second, exit: Exit{Code: 75}}, {runs: time.Second, exit: Exit{Code: 78}}}},
			service(Main, rules(OnFailure)))
		e, err := s.m.Run()
		if err != nil || e.Code != 78 {
			t.Errorf("got %v, %v, want exit code 78", e, err)
		}
		s.want("0s main start", "0s main ready", "1m0s main ended by signal 9", "1m0s main restart",
			"1m1s main start", "1m1s main ready", "1m2s main exited with 75", "1m2s main restart",
			"1m2s main start", "1m2s main ready", "1m3s main exited with 78", "1m3s main give up")
	})
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := []behaviour{{term: time.Second}}
		s := newStage(t, map[string][]behaviour{Main: forever, "dashboard": forever, "database": forever, "other": {{term: 1500 * time.Millisecond}}},
			service(Main, rules(OnFailure), "database"), service("dashboard", rules(OnFailure), Main), service("database", rules(OnFailure)), service("other", rules(OnFailure)))
		go func() {
			time.Sleep(time.Minute)
			s.stop <- "asked to"
		}()
		if e, err := s.m.Run(); err != nil || e.Failed() {
			t.Errorf("got %v, %v, want success", e, err)
		}
		s.want("0s database start", "0s database ready", "0s main start", "0s main ready", "0s dashboard start", "0s dashboard ready", "0s other start", "0s other ready",
			"1m0s dashboard stop", "1m0s other stop", "1m1s dashboard exited with 0", "1m1s main stop",
			"1m1.5s other exited with 0", "1m2s main exited with 0", "1m2s database stop", "1m3s database exited with 0")
	})
}

func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{Main: {{term: 70 * time.Second, exit: Exit{Code: 3}}}, "stubborn": {{term: -1}}},
			service(Main, rules(OnFailure)), Service{Name: "stubborn", Rules: rules(Never), StopGrace: 10 * time.Second})
		go func() { s.stop <- "asked to" }()
		if e, err := s.m.Run(); err != nil || e.Code != 3 {
			t.Errorf("got %v, %v, want exit code 3", e, err)
		}
		s.want("0s main start", "0s main ready", "0s stubborn start", "0s stubborn ready", "0s main stop", "0s stubborn stop",
			"10s stubborn kill", "10s stubborn ended by signal 9", "1m10s main exited with 3")
	})
}

func TestSecondStopKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{Main: {{term: time.Hour}}}, service(Main, rules(OnFailure)))
		go func() {
			s.stop <- "asked to"
			time.Sleep(time.Second)
			s.stop <- "asked again"
		}()
		if e, err := s.m.Run(); err != nil || e.Signal != 9 {
			t.Errorf("got %v, %v, want it killed", e, err)
		}
	})
}

// A process that the kernel does not let go is left to the end of the sandbox.
func TestUnkillable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, service(Main, rules(OnFailure)))
		stuck := make(chan struct{})
		s.m.Start = func(string) (Process, error) { return deaf(stuck), nil }
		go func() { s.stop <- "asked to" }()
		if e, err := s.m.Run(); err != nil || e.Signal != 9 {
			t.Errorf("got %v, %v, want it given up as killed", e, err)
		}
		close(stuck)
	})
}

type deaf chan struct{}

func (d deaf) Wait() (Exit, error)               { <-d; return Exit{}, nil }
func (d deaf) Signal(syscall.Signal, bool) error { return nil }

func TestServiceGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{Main: {{runs: time.Hour}}, "broken": {{err: os.ErrNotExist}}, "late": {{}}},
			service(Main, rules(OnFailure)), Service{Name: "broken", Rules: rules(Never)}, service("late", rules(OnFailure), "broken"))
		if e, err := s.m.Run(); err != nil || e.Failed() {
			t.Errorf("got %v, %v, want the command's own success", e, err)
		}
		s.want("0s main start", "0s main ready", "0s broken not started: file does not exist", "0s broken give up", "0s late give up", "1h0m0s main exited with 0")
	})
}

// A command that waits for what never comes ends the run.
func TestMainWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{"broken": {{err: os.ErrNotExist}}, "fine": {{}}},
			service(Main, rules(OnFailure), "broken"), Service{Name: "broken", Rules: rules(Never)}, service("fine", rules(Always)))
		e, err := s.m.Run()
		if err != nil || e.Err == nil {
			t.Errorf("got %v, %v, want a failure", e, err)
		}
	})
}

func TestSandboxGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil, service(Main, rules(Always)))
		gone := errors.New("the sandbox ended")
		s.m.Start = func(string) (Process, error) { return lost{gone}, nil }
		if _, err := s.m.Run(); !errors.Is(err, gone) {
			t.Errorf("got %v, want %v", err, gone)
		}
	})
}

func TestNothingStartsAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, map[string][]behaviour{Main: {{runs: time.Second, exit: Exit{Code: 1}}, {err: ErrGone}}}, service(Main, rules(Always)))
		if _, err := s.m.Run(); !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want %v", err, ErrGone)
		}
	})
}

type lost struct{ err error }

func (l lost) Wait() (Exit, error)               { return Exit{}, l.err }
func (l lost) Signal(syscall.Signal, bool) error { return l.err }

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := service(Main, rules(OnFailure))
		main.Notify = true
		s := newStage(t, map[string][]behaviour{Main: {{runs: time.Minute}}, "dashboard": {{}}}, main, service("dashboard", rules(OnFailure), Main))
		go func() {
			time.Sleep(3 * time.Second)
			s.m.Ready(Main)
		}()
		if _, err := s.m.Run(); err != nil {
			t.Fatal(err)
		}
		s.want("0s main start", "3s main ready", "3s dashboard start", "3s dashboard ready", "1m0s main exited with 0", "1m0s dashboard stop", "1m0s dashboard exited with 0")
	})
}

// web answers like a service whose health changes with the time.
func web(healthy func() bool) Dialer {
	return func(context.Context, int) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			if _, err := there.Read(make([]byte, 4096)); err != nil {
				return
			}
			status := "200 OK"
			if !healthy() {
				status = "503 Busy"
			}
			_, _ = io.WriteString(there, "HTTP/1.1 "+status+"\r\nContent-Length: 0\r\n\r\n")
		}()
		return here, nil
	}
}

func TestUnhealthyIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main := service(Main, rules(OnFailure))
		main.Health = Check{URL: "http://127.0.0.1/", Port: 80, Interval: 10 * time.Second, Timeout: time.Second, Failures: 2, Grace: 30 * time.Second}
		s := newStage(t, map[string][]behaviour{Main: {{term: time.Second}, {runs: time.Minute}}, "dashboard": {{}}}, main, service("dashboard", rules(OnFailure), Main))
		s.m.Dial = web(func() bool {
			now := time.Since(s.began)
			return now >= 5*time.Second && now < 62*time.Second || now > 80*time.Second
		})
		if _, err := s.m.Run(); err != nil {
			t.Fatal(err)
		}
		s.want("0s main start", "5s main ready", "5s dashboard start", "5s dashboard ready",
			"1m5s main unhealthy", "1m15s main unhealthy", "1m15s main stop", "1m16s main exited with 0", "1m16s main restart",
			"1m17s main start", "1m20.5s main ready", "2m17s main exited with 0", "2m17s dashboard stop", "2m17s dashboard exited with 0")
	})
}

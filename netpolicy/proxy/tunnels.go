package proxy

import "sync"

// tunnels are the open connections that last longer than the decision they
// began with: raw bytes, TLS that is passed, and WebSockets.
type tunnels struct {
	mu   sync.Mutex
	held map[*tunnel]struct{}
}

// tunnel is one of them.
type tunnel struct {
	// judge tells whether rules that were loaded since still allow it.
	judge func(*Rules) bool
	// close ends it and records why.
	close func()
	once  sync.Once
}

// rejudge closes a tunnel that the rules forbid, and tells whether it did.
func (t *tunnel) rejudge(r *Rules) (closed bool) {
	if !t.judge(r) {
		t.once.Do(func() {
			closed = true
			t.close()
		})
	}
	return closed
}

// hold registers a tunnel until release is called. judge is asked with every
// set of rules that is loaded meanwhile, and close is called once if it says no.
// Both may run on another goroutine; neither may wait for the tunnel to end.
func (s *Server) hold(judge func(*Rules) bool, end func()) (release func()) {
	t := &tunnel{judge: judge, close: end}
	s.held.mu.Lock()
	if s.held.held == nil {
		s.held.held = map[*tunnel]struct{}{}
	}
	s.held.held[t] = struct{}{}
	s.held.mu.Unlock()
	// Rules may have been swapped between the decision and this line.
	t.rejudge(s.rules())
	return func() {
		s.held.mu.Lock()
		defer s.held.mu.Unlock()
		delete(s.held.held, t)
	}
}

// rejudgeTunnels closes the tunnels that the rules forbid. The rules must be
// those of the moment already: whoever begins later looks at them itself. It
// gives the number of those that it closed.
func (s *Server) rejudgeTunnels(r *Rules) (closed int) {
	s.held.mu.Lock()
	all := make([]*tunnel, 0, len(s.held.held))
	for t := range s.held.held {
		all = append(all, t)
	}
	s.held.mu.Unlock()
	for _, t := range all {
		if t.rejudge(r) {
			closed++
		}
	}
	return closed
}

package proxy

import (
	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// Reload judges every later connection, request, name and address by r. It
// returns when no decision is made by the old rules any more, and gives the
// number of tunnels that it closed since r forbids them. What runs keeps the
// decision it got.
func (s *Server) Reload(r Rules) (closed int) {
	s.start()
	s.reloading.Lock()
	defer s.reloading.Unlock()
	rules := s.install(r)
	rules.Credentials.Inherit(s.current.Load().Credentials)
	old := s.current.Swap(rules)
	rules.Credentials.Inherit(old.Credentials) // what was learnt meanwhile
	old.out.retire()
	s.metrics.reloads.Add(1)
	return s.rejudgeTunnels(rules)
}

// install completes rules and gives them connections to servers of their own:
// what was dialled by leave of the old ones carries no request of the new ones.
func (s *Server) install(r Rules) *Rules {
	rules := r.complete()
	rules.out = s.newOutlet(rules.Upstream.perHost())
	s.Audit.Hide(rules.Credentials.Texts()...)
	return rules
}

// standing gives the refusal of a connection that was denied as a whole. It is
// judged again when other rules were loaded since, so that a client which keeps
// its connection learns of them.
func (s *Server) standing(f *front, rules *Rules) *refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal == nil || f.by == nil || f.by == rules {
		return f.refusal
	}
	f.by = rules
	d := rules.Engine.Connection(f.host, f.port)
	switch {
	case d.Verdict == netpolicy.Allow && d.Mode == netpolicy.ModeTCP:
		d = netpolicy.Decision{Rule: d.Rule, Pos: d.Pos, Reason: "the rule allows raw bytes, which need a new connection"}
	case d.Verdict == netpolicy.Allow:
		f.refusal = nil // its requests are judged one by one
		return nil
	}
	now := denied(f.host, d)
	if now.Rule == f.refusal.Rule && now.Reason == f.refusal.Reason {
		return f.refusal
	}
	f.refusal = now
	s.record(now.event(audit.KindConnection, f))
	return now
}

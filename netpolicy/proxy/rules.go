package proxy

import (
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Rules is the part of a policy that a reload swaps, always as a whole. It is
// not changed once it is in use.
type Rules struct {
	// Engine judges. Nil denies everything.
	Engine *netpolicy.Engine
	// Inference judges calls of models. Nil denies them.
	Inference *inference.Set

	out *outlet // where requests that it judged go out
	// Upstream is the way out. The zero value dials servers directly.
	Upstream Upstream
	// Inbound is how published ports are served, by the name of their entry.
	Inbound map[string]Inbound
	// Traffic bounds what the run may send. The zero value has no bound.
	Traffic policy.TrafficBudget
	// Credentials are what is attached to requests, and looked for in them. Nil:
	// there are none.
	Credentials *credential.Vault
}

// complete gives a copy without nil fields.
func (r Rules) complete() *Rules {
	if r.Engine == nil {
		r.Engine = &netpolicy.Engine{}
	}
	return &r
}

// rules are the rules of the moment. A request keeps those it was judged by.
func (s *Server) rules() *Rules {
	s.start()
	return s.current.Load()
}

// engine is the engine of the moment.
func (s *Server) engine() *netpolicy.Engine { return s.rules().Engine }

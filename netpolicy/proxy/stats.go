package proxy

import (
	"github.com/hermes-wrap/hermes-wrap/audit"
)

// Stats are the numbers of a run that its user asks for, see the metrics for
// more. A limit of 0 is none.
type Stats struct {
	// Connections, Streams and Tunnels are open now.
	Connections int64 `json:"connections"`
	Streams     int64 `json:"streams"`
	Tunnels     int   `json:"tunnels"`
	// Allowed and Denied count decisions about connections and requests on their
	// own; Denials counts every denial, names and addresses included.
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	Denials int64 `json:"denials"`
	// BytesOut and BytesIn count what went to servers and came from them.
	BytesOut      int64 `json:"bytes_out"`
	BytesOutLimit int64 `json:"bytes_out_limit,omitempty"`
	BytesIn       int64 `json:"bytes_in"`
	Hosts         int   `json:"hosts"`
	HostsLimit    int   `json:"hosts_limit,omitempty"`
	// ModelRequests, tokens and Money are what calls of models used.
	ModelRequests      int64   `json:"model_requests"`
	ModelRequestsLimit int64   `json:"model_requests_limit,omitempty"`
	InputTokens        int64   `json:"input_tokens"`
	InputTokensLimit   int64   `json:"input_tokens_limit,omitempty"`
	OutputTokens       int64   `json:"output_tokens"`
	OutputTokensLimit  int64   `json:"output_tokens_limit,omitempty"`
	TokensLimit        int64   `json:"tokens_limit,omitempty"`
	Money              float64 `json:"money"`
	MoneyLimit         float64 `json:"money_limit,omitempty"`
}

// Stats gives them.
func (s *Server) Stats() Stats {
	m, rules, traffic, models := &s.metrics, s.rules(), s.Traffic(), s.Models()
	budget := rules.Inference.Budget()
	out := Stats{
		Connections: s.open.Load(), Streams: s.streams.Load(), Tunnels: s.openTunnels(),
		Allowed:  m.of(audit.KindConnection, columnAllow) + m.of(audit.KindRequest, columnAllow),
		Denied:   m.of(audit.KindConnection, columnDeny) + m.of(audit.KindRequest, columnDeny),
		BytesOut: traffic.BytesOut, BytesOutLimit: int64(rules.Traffic.BytesOut), BytesIn: m.received.Load(),
		Hosts: traffic.Hosts, HostsLimit: rules.Traffic.Hosts,
		ModelRequests: models.Requests, ModelRequestsLimit: int64(budget.Requests),
		InputTokens: models.Input, InputTokensLimit: int64(budget.InputTokens),
		OutputTokens: models.Output, OutputTokensLimit: int64(budget.OutputTokens), TokensLimit: int64(budget.Tokens),
		Money: models.Money, MoneyLimit: budget.Money,
	}
	for _, k := range countedKinds {
		out.Denials += m.of(k, columnDeny)
	}
	return out
}

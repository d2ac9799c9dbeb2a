package proxy

import "github.com/hermes-wrap/hermes-wrap/policy"

// protocol has the messages of a claimed request judged. A claim says no more
// than that they may be read, so one that nobody here judges is refused.
func (fl *flow) protocol() *refusal {
	c := fl.decision.Claim
	if c == nil || c.Inference { // calls of models have a step of their own
		return nil
	}
	switch c.Protocol {
	case policy.ProtocolWebSocket:
		return fl.webSocket()
	case policy.ProtocolGRPC:
		return fl.grpc()
	case policy.ProtocolMCP:
		return fl.mcp()
	case policy.ProtocolJSONRPC:
		return fl.jsonrpc()
	case policy.ProtocolGraphQL:
		return fl.graphql()
	case policy.ProtocolGit:
		return fl.git()
	}
	return forbidden(fl.f.host, "the proxy does not judge protocol "+string(c.Protocol))
}

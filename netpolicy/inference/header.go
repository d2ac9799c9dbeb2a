package inference

import (
	"slices"
	"strings"
)

// forwarded are the request header fields that reach a provider, by canonical
// name. All else is dropped: it is an agent's way to choose another account,
// another version of the server's behaviour or to hand over cookies.
var forwarded = []string{
	"Accept", "User-Agent", "Anthropic-Version", "Openai-Beta", "Idempotency-Key", "X-Goog-Api-Client", "X-App",
	"Anthropic-Dangerous-Direct-Browser-Access", "X-Client-Request-Id", "X-Request-Id", "Http-Referer", "X-Title", "Originator",
	"Version", "Session_id", "Session-Id", "Conversation_id", "Accept-Language",
}

// keys are the fields in which clients show a key of their own.
var keys = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key"}

// betas are the beginnings of values of anthropic-beta that switch on what the
// provider fetches or runs itself.
var betas = []string{"mcp-", "web-", "code-execution", "files-", "skills-", "advanced-tool-use"}

// header gives the fields for a route. A client's key is kept only where the
// request goes to the host that the client chose, and the policy attaches none.
func (r *route) header(in map[string][]string, viaInner bool) map[string][]string {
	out := map[string][]string{"Accept-Encoding": {"identity"}}
	for name, values := range in {
		switch {
		case slices.Contains(forwarded, name), strings.HasPrefix(name, "X-Stainless-"), r.lists(name):
			out[name] = values
		case slices.Contains(keys, name) && !viaInner && r.Credential == "":
			out[name] = values
		case name == "Anthropic-Beta" && r.provider == Anthropic:
			if kept := r.beta(values); kept != "" {
				out[name] = []string{kept}
			}
		}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps net/http from adding its own
	}
	return out
}

// lists tells whether the policy forwards a field. Those that frame a request, or
// carry the key that is attached, are never among them.
func (r *route) lists(name string) bool {
	if slices.Contains(keys, name) && r.Credential != "" {
		return false
	}
	switch name {
	case "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Accept-Encoding", "Host", "Connection", "Te",
		"Upgrade", "Trailer", "Expect":
		return false
	}
	return slices.ContainsFunc(r.Headers, func(h string) bool { return strings.EqualFold(h, name) })
}

// beta leaves out what the route does not allow.
func (r *route) beta(values []string) string {
	var kept []string
	for _, v := range strings.Split(strings.Join(values, ","), ",") {
		v = strings.TrimSpace(v)
		small := strings.ToLower(v)
		remote := strings.HasPrefix(small, "mcp-") || strings.HasPrefix(small, "files-") || strings.HasPrefix(small, "web-fetch")
		server := slices.ContainsFunc(betas, func(b string) bool { return strings.HasPrefix(small, b) })
		switch {
		case v == "" || strings.ContainsAny(v, " \t\r\n"):
		case remote && r.RemoteFetch, server && matchesAny(r.ServerTools, strings.ReplaceAll(v, "-", "_")):
			kept = append(kept, v)
		case !remote && !server:
			kept = append(kept, v)
		}
	}
	return strings.Join(kept, ",")
}

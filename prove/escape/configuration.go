package escape

import (
	"fmt"
	"slices"
	"strings"
)

// A configuration is a policy that cases are run under, by its name: a built-in
// profile, or "weak" for the tier without namespaces.
const weak = "weak"

// profileNames are the built-in profiles.
var profileNames = strings.Fields(`strict ci claude-code codex gemini-cli generic hermes-base hermes-browser hermes-dashboard
 hermes-dev hermes-gateway hermes-in-container hermes-strict mcp-server offline opencode`) //nolint:gochecknoglobals // a constant

func knownConfiguration(name string) bool { return name == weak || slices.Contains(profileNames, name) }

// configurations are those that a case asks for.
func configurations(c Case) []string {
	if slices.Contains(c.Where, "every") {
		return append(slices.Clone(profileNames), weak)
	}
	return c.Where
}

// policyOf is the policy file of a configuration: the profile, and what the
// world's network is for.
func policyOf(configuration string, p *place) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: escapes\n")
	if configuration == weak {
		b.WriteString("extends: [builtin:strict]\nrequire: {may_degrade: [namespaces, capture]}\n")
	} else {
		fmt.Fprintf(&b, "extends: [builtin:%s]\n", configuration)
	}
	fmt.Fprintf(&b, `workspace: {path: ., access: write, exec: true}
network:
  private: [{cidr: 203.0.113.0/24, ports: [80, 443], reason: the origins of the world}]
  ca: [%q]
  rules:
    - {name: world-allowed, host: allowed.test, allow: [{methods: [GET], paths: ["/public/**"]}]}
    - {name: world-other, host: other.test, access: full}
    - {name: world-api, host: api.test, access: full, credential: world-api}
credentials:
  world-api:
    source: {env: API_TOKEN}
    expose: {env: API_TOKEN, placeholder: %s}
    attach: bearer
    hosts: [api.test]
  world-llm:
    source: {env: LLM_TOKEN}
    expose: {env: LLM_TOKEN, placeholder: %s}
    attach: bearer
    hosts: [llm.test]
inference:
  routes:
    - {name: world-llm, provider: openai-compatible, host: llm.test, base: /v1, credential: world-llm}
`, p.Dir+"/policy/ca.pem", p.tokens["placeholder api"], p.tokens["placeholder llm"])
	return b.String()
}

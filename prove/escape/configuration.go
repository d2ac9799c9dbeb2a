package escape

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/profiles"
)

// A configuration is a policy that cases are run under, by its name: a built-in
// profile, or "weak" for the tier without namespaces.
const weak = "weak"

func knownConfiguration(name string) bool {
	return name == weak || slices.Contains(profiles.Names(), name)
}

// configurations are those that a case asks for.
func configurations(c Case) []string {
	if slices.Contains(c.Where, "every") {
		return append(profiles.Names(), weak)
	}
	return c.Where
}

// overlooked tells what a configuration grants or does not hold, of all that is
// a canary otherwise. kind is home or workspace; path is what was touched, with
// what happened to it behind.
func overlooked(configuration, kind, path string) bool {
	_, how, _ := strings.Cut(path, " ")
	switch {
	case configuration == weak && kind == "workspace":
		return true // protected entries are not protected, docs/kernel-support.md
	case configuration == weak:
		// Modes and times of the caller's own files can be changed there.
		return strings.HasSuffix(how, "(time)") || strings.HasPrefix(how, "changed (mode")
	case kind != "home" || !strings.HasPrefix(configuration, "hermes-") && configuration != "offline":
		return false
	}
	// The profiles of Hermes let its state be written, but for what they hide.
	state := path == ".hermes" || strings.HasPrefix(path, ".hermes/") || strings.HasPrefix(path, ".hermes ")
	return state && !strings.HasPrefix(path, ".hermes/.env") && !strings.HasPrefix(path, ".hermes/auth.json")
}

// policyOf is the policy file of a configuration: the profile, and what the
// world's network is for.
func policyOf(configuration string, p *place) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: escapes\n")
	switch _, other := peers[configuration]; {
	case other:
		// The policy is written all the same: host scripts may name it.
		b.WriteString("extends: [builtin:strict]\n")
	case configuration == weak:
		// Root's own limits hold for nobody: without namespaces and a cgroup there
		// is nothing to count root's processes with.
		b.WriteString("extends: [builtin:strict]\nrequire: {may_degrade: [namespaces, capture, memory, pids]}\n")
	default:
		fmt.Fprintf(&b, "extends: [builtin:%s]\n", configuration)
	}
	fmt.Fprintf(&b, `network:
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

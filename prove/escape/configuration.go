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

// policyOf is the policy file of a configuration.
func policyOf(configuration string) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: escapes\n")
	if configuration == weak {
		b.WriteString("extends: [builtin:strict]\nrequire: {may_degrade: [namespaces, capture]}\n")
	} else {
		fmt.Fprintf(&b, "extends: [builtin:%s]\n", configuration)
	}
	b.WriteString("workspace: {path: ., access: write, exec: true}\n")
	return b.String()
}

package hermes

import (
	"fmt"
	"slices"
	"strings"
)

// providers are the variables whose key makes a provider of models usable, in the
// order in which one is chosen as the main one.
var providers = []struct{ variable, fragment string }{
	{"OPENROUTER_API_KEY", "provider/openrouter"},
	{"ANTHROPIC_API_KEY", "provider/anthropic"},
	{"OPENAI_API_KEY", "provider/openai"},
	{"GEMINI_API_KEY", "provider/google"},
	{"GOOGLE_API_KEY", "provider/google"},
	{"XAI_API_KEY", "provider/xai"},
	{"GROQ_API_KEY", "provider/groq"},
	{"MISTRAL_API_KEY", "provider/mistral"},
	{"DEEPSEEK_API_KEY", "provider/deepseek"},
	{"NOUS_API_KEY", "provider/nous"},
}

// tools are the variables whose key makes a tool usable.
var tools = []struct{ variable, fragment string }{
	{"TAVILY_API_KEY", "tool/search-tavily"},
	{"EXA_API_KEY", "tool/search-exa"},
	{"FIRECRAWL_API_KEY", "tool/search-firecrawl"},
	{"BRAVE_SEARCH_API_KEY", "tool/search-brave"},
}

// remote are terminal backends that need egress of their own.
var remote = map[string]string{"ssh": "terminal/ssh", "modal": "terminal/modal", "daytona": "terminal/daytona", "docker": "terminal/docker", "singularity": "terminal/singularity"}

// line is one entry of the policy with the reason for it.
type line struct{ text, why string }

// Starter gives a policy to begin with, and explains each line. known tells which
// fragments there are; one that is not known is left out and named in a comment.
func (in Installation) Starter(known func(fragment string) bool) []byte {
	var b strings.Builder
	put := func(indent string, lines ...line) {
		for _, l := range lines {
			fmt.Fprintf(&b, "%s# %s\n%s%s\n", indent, l.why, indent, l.text)
		}
	}
	b.WriteString("# A policy to begin with, from what is configured in " + in.Home + ".\n# \"hermes-wrap explain\" shows all of what it comes to; \"hermes-wrap why\" answers questions.\n")
	b.WriteString("version: 1\n\n")
	on := in.unattended()
	if len(on) > 0 {
		put("", line{"extends: [builtin:hermes-gateway]", "Hermes answers " + strings.Join(on, ", ") + ": it runs as a gateway, which is started again when it fails."})
	} else {
		put("", line{"extends: [builtin:hermes-strict]", "No messaging channel is configured: Hermes runs in the terminal, with its state and this directory."})
	}
	b.WriteString("\n")
	enabled, missing := in.fragments(known)
	if len(enabled) > 0 {
		b.WriteString("# What it may reach. Each fragment opens one thing; \"hermes-wrap profiles show NAME\" prints it.\nenable:\n")
		for _, e := range enabled {
			fmt.Fprintf(&b, "  - %s   # %s\n", e.text, e.why)
		}
	}
	for _, m := range missing {
		fmt.Fprintf(&b, "# not enabled: %s: there is no fragment %q; write a rule for it (%s)\n", m.why, m.text, "docs/network.md")
	}
	b.WriteString("\nworkspace:\n")
	put("  ",
		line{"path: .", "The directory in which hermes-wrap is started."},
		line{"access: write", `The agent works in it. "cow" keeps its changes apart until you commit them (docs/state.md).`},
	)
	b.WriteString("\ninference:\n")
	put("  ", line{"budget: {requests_per_minute: 120, tokens: 20M}", "What one run may spend; at the limit calls of models are refused."})
	put("  ", line{"hard_stop: {exact_failure: 5, no_progress: 5}", "A conversation that turns in circles gets no further answers."})
	in.publish(&b)
	b.WriteString("\n# The policy's own tests; they run at each launch.\nassert:\n")
	for _, a := range []string{"{read: ~/.ssh/id_ed25519}", `{read: "${HERMES_HOME}/.env"}`, `{write: "${HERMES_HOME}/config.yaml"}`, `{connect: "169.254.169.254:80"}`} {
		fmt.Fprintf(&b, "  - deny: %s\n", a)
	}
	return []byte(b.String())
}

// fragments lists what to enable and why, and what there is no fragment for.
func (in Installation) fragments(known func(string) bool) (enabled, missing []line) {
	add := func(fragment, why string) {
		l := line{fragment, why}
		if slices.ContainsFunc(enabled, func(x line) bool { return x.text == fragment }) {
			return
		}
		if known(fragment) {
			enabled = append(enabled, l)
		} else {
			missing = append(missing, l)
		}
	}
	for _, p := range providers {
		if v, ok := in.Value(p.variable); ok {
			add(p.fragment, p.variable+" is set in "+v.Place()+"; the key stays outside")
		}
	}
	if url, place := in.first("model.base_url", "OPENAI_BASE_URL"); strings.Contains(url, "//127.0.0.1") || strings.Contains(url, "//localhost") {
		add("provider/local", "models are served on this machine ("+place+")")
	}
	for _, c := range channels {
		if v, ok := in.Value(c.variable); ok {
			add(c.fragment, c.variable+" is set in "+v.Place())
		}
	}
	for _, t := range tools {
		if v, ok := in.Value(t.variable); ok {
			add(t.fragment, t.variable+" is set in "+v.Place()+"; the key stays outside")
		}
	}
	if name, place := in.first("terminal.backend", "TERMINAL_ENV"); remote[name] != "" {
		add(remote[name], "the terminal backend is "+name+" ("+place+"); with \"local\" this line can go")
	}
	return enabled, missing
}

// publish forwards the ports that are in use.
func (in Installation) publish(b *strings.Builder) {
	if on := in.unattended(); !slices.Contains(on, "the API server") {
		return
	}
	port, _ := in.first("platforms.api_server.port", "platforms.api_server.extra.port", "API_SERVER_PORT")
	if port == "" {
		port = "8642"
	}
	b.WriteString("\nnetwork:\n  # The API server, on this machine's loopback only. Inside, nobody else can reach it.\n  publish:\n")
	fmt.Fprintf(b, "    - {name: api-server, listen: \"127.0.0.1:%s\", to: \"%s\", require_key: API_SERVER_KEY}\n", port, port)
	b.WriteString("\nenv:\n  # Hermes itself compares it with what its clients show.\n  allow: [API_SERVER_ENABLED, API_SERVER_KEY, API_SERVER_PORT]\n  secret: [API_SERVER_KEY]\n")
}

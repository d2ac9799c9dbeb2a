package registries

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// yaml writes what was read as sections of a fragment. Each text is quoted as in
// JSON, which YAML shares.
func (r *reading) yaml() string {
	var b strings.Builder
	b.WriteString("\nnetwork:\n  rules:\n")
	var tokens []place
	for i, p := range r.places {
		name := fmt.Sprintf("%s-%d", r.client, i+1)
		fmt.Fprintf(&b, "    # from %s\n    - name: %s\n      host: %s\n      ports: [%d]\n", printable(p.from), name, strconv.Quote(p.host), p.port)
		if r.client == "npm" {
			b.WriteString("      encoded_slash: true   # scoped packages are asked for with one\n")
		}
		if p.token != nil {
			fmt.Fprintf(&b, "      credential: %s\n", name)
			tokens = append(tokens, p)
		}
		base := p.base
		if p.whole {
			base = ""
		}
		fmt.Fprintf(&b, "      allow: [{methods: [GET, HEAD], paths: [%s]}]\n      reason: packages of %s\n", strconv.Quote(base+"/**"), r.client)
	}
	if len(tokens) > 0 {
		b.WriteString("\ncredentials:\n")
	}
	for i, p := range r.places {
		if p.token == nil {
			continue
		}
		source := fmt.Sprintf("{env: %s}", p.token.env)
		if p.token.env == "" {
			source = fmt.Sprintf("{file: %s, key: %s}", strconv.Quote(p.token.file), strconv.Quote(p.token.key))
		}
		fmt.Fprintf(&b, "  %s-%d:\n    source: %s\n    attach: bearer\n    hosts: [%s]\n", r.client, i+1, source, strconv.Quote(p.host))
	}
	r.environment(&b)
	return b.String()
}

func (r *reading) environment(b *strings.Builder) {
	if len(r.env) > 0 {
		b.WriteString("\nenv:\n  set:\n")
	}
	for _, name := range slices.Sorted(maps.Keys(r.env)) {
		fmt.Fprintf(b, "    %s: %s\n", name, strconv.Quote(r.env[name]))
	}
	b.WriteString("\nfilesystem:\n")
	if len(r.show) > 0 {
		b.WriteString("  read:\n")
	}
	for _, path := range r.show {
		fmt.Fprintf(b, "    - %s   # the client's own file\n", strconv.Quote(path))
	}
	b.WriteString("  protect:   # what was believed here stays as it is\n")
	for _, path := range r.believe {
		fmt.Fprintf(b, "    - %s\n", strconv.Quote(path+"?"))
	}
	if len(r.believe) == 0 {
		b.WriteString("    []\n")
	}
}

// printable leaves nothing in a comment that ends it: YAML knows more line ends
// than "\n".
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsGraphic(c) {
			return '?'
		}
		return c
	}, s)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

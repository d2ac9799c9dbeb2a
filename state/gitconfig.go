package state

import "strings"

// gitSetting is one line of git's configuration. Names are in lower case.
type gitSetting struct{ section, key, value string }

// parseGitConfig reads git's configuration, see git-config(1), as far as it names
// files: a section's subsection is left out.
func parseGitConfig(text string) (all []gitSetting) {
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			name, rest, _ := strings.Cut(line[1:], "]")
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			section, line = strings.ToLower(name), strings.TrimSpace(rest)
		}
		key, value, ok := strings.Cut(line, "=")
		if ok && line[0] != '#' && line[0] != ';' {
			all = append(all, gitSetting{section, strings.ToLower(strings.TrimSpace(key)), gitValue(value)})
		}
	}
	return all
}

// gitValue takes quotes, escapes and a comment out of a value.
func gitValue(raw string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(raw):
			i++
			b.WriteByte(raw[i])
		case !quoted && (c == '#' || c == ';'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}

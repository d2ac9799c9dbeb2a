package profiles

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	want := []string{
		"ci", "claude-code", "codex", "gemini-cli", "generic", "hermes-base", "hermes-browser", "hermes-dashboard",
		"hermes-dev", "hermes-gateway", "hermes-in-container", "hermes-strict", "mcp-server", "offline", "opencode", "strict",
	}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("names: got %v, want %v", got, want)
	}
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct {
		name string
		want bool
	}{
		{"strict", true},
		{"hermes-strict", true},
		{"hermes-ci", true},
		{"hermes-offline", true},
		{"provider/openai", false},
		{"fragments/provider/openai", false},
		{"strict.yaml", false},
		{"", false},
		{"../profiles/strict", false},
		{"/strict", false},
		{"Strict", false},
	} {
		t.Run("name "+tc.name, func(t *testing.T) {
			if _, got := Lookup(tc.name); got != tc.want {
				t.Errorf("found: got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestOpeningComment holds the order in which each profile explains itself.
func TestOpeningComment(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			text, _ := Lookup(name)
			head, _, _ := strings.Cut(string(text), "\nversion: 1\n")
			for _, want := range []string{"# " + name + ": ", "# Purpose: ", "# Permits: ", "# Does not stop:", "# Oldest kernel: "} {
				at := strings.Index(head, want)
				if at < 0 {
					t.Fatalf("opening comment: got none of %q, want it in order", want)
				}
				head = head[at:]
			}
		})
	}
}

// TestGrantsSayWho holds the rule that each line which widens a profile says
// who needs it.
func TestGrantsSayWho(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			text, _ := Lookup(name)
			section, reasoned := "", false
			for i, line := range strings.Split(string(text), "\n") {
				trimmed := strings.TrimSpace(line)
				switch {
				case strings.HasPrefix(trimmed, "#"):
					reasoned = true
				case strings.HasSuffix(trimmed, ":"):
					section, reasoned = strings.TrimSuffix(trimmed, ":"), false
				case strings.HasPrefix(trimmed, "- ") && slices.Contains([]string{"read", "write", "exec", "devices", "sockets", "secret"}, section):
					if !reasoned && !strings.Contains(trimmed, " # ") {
						t.Errorf("line %d: got %q, want a comment that says who needs it", i+1, trimmed)
					}
				}
			}
		})
	}
}

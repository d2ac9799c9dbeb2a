package proxy

import (
	"io"
	"net/http"
	"testing"
)

// TestModelAnswersThatAreRefused: what a provider charges for counts, also when the
// client gets nothing of it.
func TestModelAnswersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		head   string
		status int
		output int64
	}{
		"control":    {"", 200, 3},
		"compressed": {"br", 502, 16384},
	} {
		w := newModelWorld(t, modelRoutes())
		w.provider("first.example.org", 443, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			if c.head != "" {
				rw.Header().Set("Content-Encoding", c.head)
			}
			_, _ = io.WriteString(rw, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
		})
		status, body, _ := w.ask(w.client("first.example.org", 443, false), "https://first.example.org/v1/chat/completions", `{"model":"m1","messages":[]}`)
		if status != c.status {
			t.Errorf("%s: got %d %s, want %d", name, status, body, c.status)
		}
		if got := w.used(1)[0]; got.OutputTokens != c.output {
			t.Errorf("%s: got %d tokens of output, want %d", name, got.OutputTokens, c.output)
		}
	}
}

package profiles

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestKeyFromDotenv holds that a key that only Hermes' own file of keys has
// reaches the provider, and nothing inside.
func TestKeyFromDotenv(t *testing.T) {
	const real = "sk-or-v1-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	s := newStage(t)
	var withKey, without atomic.Int64
	server := wraptest.ServeTLS(t, "provider.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+real {
			withKey.Add(1)
		} else {
			without.Add(1)
		}
		fmt.Fprint(w, `{"object":"list","data":[]}`)
	}))
	policy := s.PolicyFile(t, "dotenv", fmt.Sprintf(`version: 1
extends: [builtin:hermes-base]
credentials:
  key:
    source: {env: OPENROUTER_API_KEY, dotenv: "${HERMES_HOME}/.env"}
    expose: {env: OPENROUTER_API_KEY}
    attach: bearer
    hosts: [provider.test]
inference:
  routes:
    - {name: models, provider: openai-compatible, host: provider.test, port: %d, credential: key}
network:
  ca: [%s]
  hosts: {provider.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the provider of this test}]
`, server.Port, server.CA, server.Port))
	script := fmt.Sprintf(`cat "$HERMES_HOME/.env"; echo "key $OPENROUTER_API_KEY"; python3 -c '
import os, urllib.request as u
q = u.Request("https://provider.test:%d/v1/models", headers={"Authorization": "Bearer " + os.environ["OPENROUTER_API_KEY"]})
print(u.urlopen(q).status)'`, server.Port)
	file := filepath.Join(s.state, ".env")
	s.Write(t, file, "# keys\nOPENROUTER_API_KEY="+real+"\n")
	for mode, works := range map[os.FileMode]bool{0o644: false, 0o600: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		got := s.run(t, nil, "--quiet", "--policy", policy, "--", "sh", "-c", script)
		if !works {
			if got.Exit != 125 || !strings.Contains(got.Err, "chmod 6") {
				t.Errorf("mode %04o: got exit %d and %q, want a refusal that says what to do", mode, got.Exit, got.Err)
			}
			continue
		}
		if got.Exit != 0 || !strings.HasSuffix(got.Out, "\n200\n") || withKey.Load() != 1 || without.Load() != 0 {
			t.Errorf("got exit %d, %q, %d requests with the key and %d without, want one with it\n%s", got.Exit, got.Out, withKey.Load(), without.Load(), got.Err)
		}
		if !strings.Contains(got.Out, "key sk-or-v1-") || strings.Contains(got.Out+got.Err, real) {
			t.Errorf("got %q, want a placeholder and never the key", got.Out)
		}
	}
}

package container

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// call asks a model once, as a client that follows the proxy variables, and shows
// what of the key is inside.
const call = `
import json, os, urllib.request
key = os.environ["OPENROUTER_API_KEY"]
body = json.dumps({"model": "nousresearch/stand-in", "messages": [{"role": "user", "content": "hi"}]}).encode()
request = urllib.request.Request("https://openrouter.ai:%s/api/v1/chat/completions" % os.environ["PORT"], body, {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=30) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
print("key", key)
try:
    print("file", open("/tools/key").read())
except OSError as error:
    print("file", error.errno)
try:
    urllib.request.urlopen("https://other.example.org/", timeout=30)
except Exception as error:
    print("other", error)
`

// TestModel: a call of a model passes the proxy, which attaches the key; the key
// itself is not inside.
func TestModel(t *testing.T) {
	const real = "sk-or-v1-R3alKeyOfTheTestR3alKeyOfTheTest"
	b := newBox(t)
	var mu sync.Mutex
	var keys []string
	served := wraptest.ServeTLS(t, "openrouter.ai", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Authorization"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": "from the model"}}},
			"usage":   map[string]any{"prompt_tokens": 9, "completion_tokens": 4},
		})
	}))
	b.copy(served.CA, "root.tools/ca.pem")
	b.Write(t, filepath.Join(b.dir, "root.work", "call.py"), call)
	b.Write(t, filepath.Join(b.dir, "root.work", "model.yaml"), fmt.Sprintf(`version: 1
extends: [builtin:hermes-in-container]
credentials:
  openrouter:
    source: {file: /tools/key}
    expose: {env: OPENROUTER_API_KEY}
    attach: bearer
    hosts: [openrouter.ai]
network:
  ca: [/tools/ca.pem]
  hosts: {openrouter.ai: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the provider of this test}]
inference:
  routes:
    - {name: here, provider: openai-compatible, host: openrouter.ai, port: %d, base: /api/v1, credential: openrouter}
`, served.Port, served.Port))
	b.Write(t, filepath.Join(b.dir, "root.tools", "key"), real)
	if err := os.Chmod(filepath.Join(b.dir, "root.tools", "key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if bare := b.run([]string{"OPENROUTER_API_KEY=" + real}, "cat", "/tools/key"); bare.Out != real {
		t.Fatalf("control: got %q, want the key readable for the container's user", bare.Out)
	}
	got := b.run(nil, "hermes-wrap", "--policy", "model.yaml", "--", "env", fmt.Sprintf("PORT=%d", served.Port), "python3", "call.py")
	if got.Exit != 0 || !strings.HasPrefix(got.Out, "from the model\nkey ") || !strings.Contains(got.Out, "other ") || !strings.Contains(got.Out, "file 13") {
		t.Fatalf("got exit %d, %q (%s), want an answer, none of another host, and no key file", got.Exit, got.Out, got.Err)
	}
	if strings.Contains(got.Out+got.Err, real) {
		t.Errorf("got %q and %q, want the key nowhere", got.Out, got.Err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 1 || keys[0] != "Bearer "+real {
		t.Errorf("got %q at the provider, want the key once", keys)
	}
}

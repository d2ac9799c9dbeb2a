// Package inference runs clients of models with the real binary: at the
// provider's own host and at the inner name, with a key that is not inside.
package inference

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

const (
	realKey = "sk-test-R3alKeyOfTheTestR3alKeyOfTheTest"
	limit   = time.Minute
	ask     = `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`
	answer  = `{"choices":[{"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`
)

// provider insists on its key and counts what it is asked.
type provider struct {
	port int
	ca   []byte

	mu     sync.Mutex
	served int
	keys   map[string]int // that were shown, by their text
	bodies []string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Authorization")
	p.mu.Lock()
	p.keys[key]++
	p.bodies = append(p.bodies, string(b))
	if key == "Bearer "+realKey {
		p.served++
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if key != "Bearer "+realKey {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_, _ = io.WriteString(w, answer)
}

func (p *provider) counts() (served, asked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served, len(p.bodies)
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "provider"}, DNSNames: []string{"provider.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keys: map[string]int{}}
	server := httptest.NewUnstartedServer(p)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	p.port = server.Listener.Addr().(*net.TCPAddr).Port
	return p
}

// place is an account with a workspace, a provider and the clients.
type place struct {
	wraptest.World
	work string
	p    *provider
}

func newPlace(t *testing.T) place {
	t.Helper()
	pl := place{World: wraptest.New(t), p: newProvider(t)}
	pl.work = pl.Dir(t, "work")
	pl.Write(t, filepath.Join(pl.Home, "ca.pem"), string(pl.p.ca))
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pl.Write(t, filepath.Join(pl.work, filepath.Base(f)), string(b))
	}
	return pl
}

// policy has one route with a credential, and what more says of inference.
func (pl place) policy(t *testing.T, more string) string {
	t.Helper()
	return pl.PolicyFile(t, "models", fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
network:
  ca: [%s]
  hosts: {provider.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the provider of this test}]
credentials:
  model:
    source: {env: MODEL_KEY}
    expose: {env: MODEL_KEY}
    attach: bearer
    hosts: [provider.test]
inference:
  routes:
    - {name: models, provider: openai-compatible, host: provider.test, port: %d, models: ["m*"], credential: model}
%s`, filepath.Join(pl.Home, "ca.pem"), pl.p.port, pl.p.port, more))
}

// inside runs a command under the policy, with the real key outside.
func (pl place) inside(t *testing.T, policy string, argv ...string) wraptest.Ended {
	t.Helper()
	cmd := pl.Wrap(pl.work, policy, argv...)
	cmd.Env = append(cmd.Env, "MODEL_KEY="+realKey)
	return wraptest.Run(t, cmd, limit)
}

var clients = map[string][]string{
	"curl":    {"sh", "client.sh"},
	"python3": {"python3", "client.py"},
	"node":    {"node", "client.mjs"},
}

// Ordinary clients reach a model with nothing but a placeholder, at the
// provider's own name and at the inner one; a denied model does not leave. Bare,
// with the same placeholder, the provider does not know them.
func TestClients(t *testing.T) {
	pl := newPlace(t)
	policy := pl.policy(t, "")
	bases := map[string]string{
		"own host":          fmt.Sprintf("https://provider.test:%d/v1", pl.p.port),
		"inner name":        "https://inference.internal/v1",
		"inner name, plain": "http://inference.internal/v1",
	}
	for name, argv := range clients {
		harness.Require(t, pl.Find(argv[0]) != "" && pl.Find(name) != "", name)
		for place, base := range bases {
			t.Run(name+"/"+place, func(t *testing.T) {
				before, _ := pl.p.counts()
				got := pl.inside(t, policy, append(argv, base+"/chat/completions", ask)...)
				if !strings.Contains(got.Out, "200") || !strings.Contains(got.Out, answer) {
					t.Fatalf("got %q (exit %d, %s), want the answer", got.Out, got.Exit, got.Err)
				}
				served, asked := pl.p.counts()
				if served != before+1 {
					t.Errorf("got %d calls served, want one more than %d", served, before)
				}
				got = pl.inside(t, policy, append(argv, base+"/chat/completions", `{"model":"other","messages":[]}`)...)
				if !strings.Contains(got.Out, "403") || !strings.Contains(got.Out, "policy_denied") {
					t.Errorf("denied model: got %q, want 403 and the reason", got.Out)
				}
				got = pl.inside(t, policy, append(argv, base+"/files", ask)...)
				if !strings.Contains(got.Out, "403") {
					t.Errorf("no call of a model: got %q, want 403", got.Out)
				}
				if _, now := pl.p.counts(); now != asked {
					t.Errorf("got %d requests of denied calls at the provider, want none", now-asked)
				}
			})
		}
	}
	bare := pl.Bare(pl.work, "curl", "-s", "-o", os.DevNull, "-w", "%{http_code}", "--cacert", filepath.Join(pl.Home, "ca.pem"),
		"--connect-to", fmt.Sprintf("provider.test:%d:127.0.0.1:%d", pl.p.port, pl.p.port), "--data-raw", ask,
		"-H", "Authorization: Bearer sk-test-placeholder", bases["own host"]+"/chat/completions")
	if got := wraptest.Run(t, bare, limit); got.Out != "401" {
		t.Errorf("control: got %q without the key, want 401", got.Out)
	}
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	if len(pl.p.keys) != 2 {
		t.Errorf("got %d different keys at the provider, want the real one and the control's", len(pl.p.keys))
	}
}

// A budget that is used up is a final answer, and on record.
func TestBudget(t *testing.T) {
	pl := newPlace(t)
	harness.Require(t, pl.Find("curl") != "", "curl")
	record := filepath.Join(pl.Home, "audit.jsonl")
	policy := pl.policy(t, "  budget: {requests: 3, tokens: 1M}\naudit: {file: "+record+"}\n")
	got := pl.inside(t, policy, "sh", "-c", `for i in 1 2 3 4 5; do sh client.sh "$@"; done`, "sh", "http://inference.internal/v1/chat/completions", ask)
	if n := strings.Count(got.Out, " 200\n"); n != 3 {
		t.Errorf("got %d answers, want 3\n%s%s", n, got.Out, got.Err)
	}
	if n := strings.Count(got.Out, `"code":"budget_used_up"`); n != 2 || strings.Count(got.Out, " 403\n") != 2 {
		t.Errorf("got %d refusals, want 2 with 403\n%s", n, got.Out)
	}
	if served, _ := pl.p.counts(); served != 3 {
		t.Errorf("got %d calls at the provider, want 3", served)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	near := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "80 % of inference.budget.requests") {
			near++
		}
	}
	if near != 1 {
		t.Errorf("got %d events at 80 %%, want 1\n%s", near, text)
	}
	if strings.Contains(string(text), realKey) {
		t.Error("got the key in the record")
	}
}

// A conversation that turns in circles is refused; with action: stop the run
// ends with exit 125 and says why, whatever the agent does.
func TestHardStop(t *testing.T) {
	pl := newPlace(t)
	harness.Require(t, pl.Find("python3") != "", "python3")
	const url = "http://inference.internal/v1/chat/completions"
	got := pl.inside(t, pl.policy(t, ""), "python3", "loop.py", url, "0")
	if got.Exit != 0 || !strings.Contains(got.Out, "never refused") {
		t.Fatalf("control: got %q (exit %d, %s), want fifty turns", got.Out, got.Exit, got.Err)
	}
	got = pl.inside(t, pl.policy(t, "  hard_stop: {exact_failure: 4}\n"), "python3", "loop.py", url, "0")
	if got.Exit != 7 || !strings.Contains(got.Out, "refused after 4 403") || !strings.Contains(got.Out, "circles") {
		t.Errorf("refuse: got %q (exit %d), want the refusal after 4 failures", got.Out, got.Exit)
	}
	began := time.Now()
	got = pl.inside(t, pl.policy(t, "  hard_stop: {exact_failure: 4, action: stop}\nprocess: {stop_grace: 1s}\n"), "python3", "loop.py", url, "50")
	if got.Exit != 125 || !strings.Contains(got.Err, `the same call of the tool "run" failed 4 times in a row`) {
		t.Errorf("stop: got exit %d and %q, want 125 and the reason\n%s", got.Exit, got.Err, got.Out)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("stop: got an end after %v, want the agent not to be waited for", took)
	}
}

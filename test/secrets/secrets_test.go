// Package secrets checks with the real binary, as an ordinary user, that
// programs inside work with placeholders and that the secrets stay outside.
package secrets

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

const (
	secret = "ghp_Zk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8T"
	limit  = 60 * time.Second
)

// bench is a world with servers.
type bench struct {
	wraptest.World
	site *site
	dir  string // the workspace
	out  string // outside of it
}

func newBench(t *testing.T) bench {
	t.Helper()
	b := bench{World: wraptest.New(t), site: newSite(t, secret)}
	b.dir, b.out = b.Dir(t, "work"), b.Dir(t, "outside")
	b.Write(t, filepath.Join(b.out, "ca.pem"), string(b.site.ca))
	return b
}

// policy writes a policy with credentials; more is added to it.
func (b bench) policy(t *testing.T, name, credentials, more string) string {
	t.Helper()
	return b.PolicyFile(t, name, fmt.Sprintf(`version: 1
name: secrets
extends: [builtin:strict]
network:
  hosts: {github.test: [127.0.0.1], other.test: [127.0.0.1], s3.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the test servers}]
  ca: [%[2]q]
  rules:
    - {name: github, host: github.test, ports: [%[1]d], credential: github}
    - {name: other, host: other.test, ports: [%[1]d], tls: inspect}
%[4]scredentials:
%[3]s`, b.site.port, filepath.Join(b.out, "ca.pem"), credentials, more))
}

const fromEnv = `  github:
    source: {env: GITHUB_TOKEN}
    expose: {env: GITHUB_TOKEN}
    attach: bearer
    hosts: [github.test]
`

// inside runs a shell script inside.
func (b bench) inside(t *testing.T, policy, script string, env ...string) wraptest.Ended {
	t.Helper()
	cmd := b.Bare(b.dir, b.Bin, "--trace", "--policy", policy, "--", "sh", "-c", script)
	cmd.Env = append(cmd.Env, env...)
	return wraptest.Run(t, cmd, limit)
}

func (b bench) url(host string) string { return fmt.Sprintf("https://%s:%d/", host, b.site.port) }

// mustNotHold fails when a text is in what a run printed, or in any file that it
// left in the account's home.
func (b bench) mustNotHold(t *testing.T, run wraptest.Ended, text string) {
	t.Helper()
	if strings.Contains(run.Out+run.Err, text) {
		t.Errorf("got the secret in the output: %s%s", run.Out, run.Err)
	}
	_ = filepath.WalkDir(b.Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, b.out) {
			return nil
		}
		if text1, err := os.ReadFile(path); err == nil && strings.Contains(string(text1), text) {
			t.Errorf("got the secret in %s", path)
		}
		return nil
	})
}

func TestPlaceholderWorks(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"curl"})
	script := fmt.Sprintf(`echo "token $GITHUB_TOKEN"; curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" %s`, b.url("github.test"))
	bare := func(token string) wraptest.Ended {
		cmd := b.Bare(b.dir, "sh", "-c", strings.ReplaceAll(script, "curl ", fmt.Sprintf("curl --cacert %s/ca.pem --resolve github.test:%d:127.0.0.1 ", b.out, b.site.port)))
		cmd.Env = append(cmd.Env, "GITHUB_TOKEN="+token)
		return wraptest.Run(t, cmd, limit)
	}
	if got := bare(secret); !strings.Contains(got.Out, "welcome, you sent Bearer "+secret) {
		t.Fatalf("bare: got %q %s, want to be welcome", got.Out, got.Err)
	}
	run := b.inside(t, b.policy(t, "env", fromEnv, ""), script, "GITHUB_TOKEN="+secret)
	first, answer, _ := strings.Cut(run.Out, "\n")
	placeholder := strings.TrimPrefix(first, "token ")
	if len(placeholder) != len(secret) || !strings.HasPrefix(placeholder, "ghp_") || placeholder == secret {
		t.Fatalf("inside: got token %q, want one in the shape of the secret\n%s", placeholder, run.Err)
	}
	if want := "welcome, you sent Bearer " + placeholder + "\n"; answer != want {
		t.Errorf("inside: got %q, want %q\n%s", answer, want, run.Err)
	}
	if got := bare(placeholder); !strings.Contains(got.Out, "bad credentials") {
		t.Errorf("bare with the placeholder: got %q, want bad credentials", got.Out)
	}
	b.mustNotHold(t, run, secret)
	denied := b.inside(t, b.policy(t, "env", fromEnv, ""), fmt.Sprintf(`curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" %[1]s; curl -sS "%[1]s?token=$GITHUB_TOKEN"; curl -sS -d "$GITHUB_TOKEN" %[1]s; curl -sS %[1]s`, b.url("other.test")), "GITHUB_TOKEN="+secret)
	if got := strings.Count(denied.Out, "policy_denied"); got != 3 || !strings.Contains(denied.Out, "anybody is welcome") {
		t.Errorf("other host: got %q, want three denials and one answer\n%s", denied.Out, denied.Err)
	}
	b.mustNotHold(t, denied, secret)
}

// TestNothingInsideHoldsTheSecret searches every file, every environment and
// the memory of every process. The placeholder is found in the same way.
func TestNothingInsideHoldsTheSecret(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"curl"})
	client := b.client(t)
	shown := "shown-placeholder-0123456789"
	policy := b.policy(t, "search", fromEnv, "")
	text, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(t, policy, strings.Replace(string(text), "expose: {env: GITHUB_TOKEN}", "expose: {env: GITHUB_TOKEN, placeholder: "+shown+"}", 1)+"workspace: {path: ., access: write, exec: true}\n")
	probe := b.Program(t, b.dir)
	planted := fmt.Sprint(time.Now().Add(-time.Minute).Unix())
	script := fmt.Sprintf(`curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" %s; sleep 300 & `, b.url("github.test"))
	key := hex.EncodeToString([]byte("PRIVATE KEY-----"))
	for i, token := range []string{apart(secret), key, apart(shown)} {
		script += fmt.Sprintf("echo == %d; %s search %s %s / 2>/dev/null; ", i, probe, token, planted)
	}
	script += fmt.Sprintf("echo == memory; %s memory %s %s; kill %%1; kill $!", client, apart(secret), apart(shown))
	run := b.inside(t, policy, script, "GITHUB_TOKEN="+secret)
	parts := strings.Split(run.Out, "== ")
	if len(parts) != 5 || !strings.Contains(parts[0], "welcome") {
		t.Fatalf("got %q, want an answer and four searches\n%s", run.Out, run.Err)
	}
	for i, what := range []string{"the secret", "a private key"} {
		if got := strings.TrimSpace(strings.TrimPrefix(parts[i+1], fmt.Sprint(i))); got != "" {
			t.Errorf("%s: got it in %s, want it nowhere", what, got)
		}
	}
	if !strings.Contains(parts[3], "environ") {
		t.Errorf("control: got %q, want the placeholder in environments", parts[3])
	}
	if strings.Contains(parts[4], "found 0") || !strings.Contains(parts[4], "found 1") {
		t.Errorf("memory: got %q, want the placeholder found and the secret not", parts[4])
	}
	b.mustNotHold(t, run, secret)
}

// apart gives a text in hexadecimal that only a shell puts together: the launcher
// would find it in the arguments.
func apart(text string) string {
	h := hex.EncodeToString([]byte(text))
	return h[:20] + `""` + h[20:]
}

// client builds the program that runs inside.
func (b bench) client(t *testing.T) string {
	t.Helper()
	path := filepath.Join(b.dir, "client")
	tmp := filepath.Join(t.TempDir(), "client")
	cmd := exec.Command("go", "build", "-trimpath", "-o", tmp, "./client")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the client: %v\n%s", err, out)
	}
	text, err := os.ReadFile(tmp)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(t, path, string(text))
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestS3(t *testing.T) {
	b := newBench(t)
	client := b.client(t)
	policy := b.policy(t, "s3", fromEnv+`  aws:
    source: {env: AWS_KEYS}
    expose: {env: AWS}
    attach: sigv4
    hosts: [s3.test]
`, fmt.Sprintf("    - {name: s3, host: s3.test, ports: [%d], credential: aws}\n", b.site.port))
	text, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	b.Write(t, policy, string(text)+"workspace: {path: ., access: write, exec: true}\n")
	script := fmt.Sprintf("%s s3 %s; echo $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY", client, strings.TrimSuffix(b.url("s3.test"), "/"))
	run := b.inside(t, policy, script, "GITHUB_TOKEN="+secret, "AWS_KEYS="+keyID+":"+keySecret)
	if got := strings.Count(run.Out, "kept "); got != 3 || !strings.Contains(run.Out, "listed 1") {
		t.Errorf("got %q, want three objects and one listed\n%s", run.Out, run.Err)
	}
	for _, key := range []string{keyID, keySecret} {
		b.mustNotHold(t, run, key)
	}
	lines := strings.Split(strings.TrimSpace(run.Out), "\n")
	if last := strings.Fields(lines[len(lines)-1]); len(last) != 2 || len(last[0]) != len(keyID) || !strings.HasPrefix(last[0], "AKIA") || b.site.saw(last[0]) {
		t.Errorf("got %q, want a placeholder in the shape of a key, and none at the server", last)
	}
}

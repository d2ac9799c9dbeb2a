// Package clients checks that ordinary HTTP clients, without any proxy
// setting, reach what the policy allows and get the structured denial for what
// it does not. Each client also runs bare, where every request must succeed.
package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

const (
	data  = "../../testdata/clients"
	limit = 60 * time.Second
)

// request is one request of every client.
type request struct {
	name   string
	method string
	secure bool
	host   string
	path   string
	denied bool // inside; bare it is answered by the server
}

var requests = []request{
	{name: "inspected", method: "GET", secure: true, host: "allowed.test", path: "/hello/world"},
	{name: "passed", method: "GET", secure: true, host: "pass.test", path: "/any"},
	{name: "plain", method: "GET", host: "api.test", path: "/v1"},
	{name: "denied path", method: "GET", secure: true, host: "allowed.test", path: "/secret", denied: true},
	{name: "denied method", method: "DELETE", secure: true, host: "allowed.test", path: "/hello/world", denied: true},
	{name: "denied host", method: "GET", secure: true, host: "denied.test", path: "/hello/world", denied: true},
	{name: "denied plain method", method: "DELETE", host: "api.test", path: "/v1", denied: true},
	{name: "denied plain host", method: "GET", host: "denied.test", path: "/v1", denied: true},
}

// client is one program that makes requests.
type client struct {
	name  string
	needs []string
	argv  []string // the requests follow
	http2 bool     // speaks HTTP/2 over TLS
}

var clientPrograms = []client{
	{name: "curl-http1", needs: []string{"curl"}, argv: []string{"sh", "client.sh", "--http1.1"}},
	{name: "curl-http2", needs: []string{"curl"}, argv: []string{"sh", "client.sh", "--http2"}, http2: true},
	{name: "python-urllib", needs: []string{"python3"}, argv: []string{"python3", "client.py"}},
	{name: "node-fetch", needs: []string{"node"}, argv: []string{"node", "client.mjs"}},
	{name: "go", argv: []string{"./goclient/goclient"}, http2: true},
	{name: "java", needs: []string{"java", "javac"}, argv: []string{"java", "Client.java"}, http2: true},
}

func TestClients(t *testing.T) {
	b := newBench(t)
	for _, c := range clientPrograms {
		t.Run(c.name, func(t *testing.T) {
			b.host.RequireCommands(t, c.needs)
			argv := c.argv
			for _, r := range requests {
				argv = append(argv, r.method, r.url(b.servers))
			}
			bare := answers(t, b.run(t, argv, false))
			inside := answers(t, b.run(t, argv, true))
			for i, r := range requests {
				t.Run(r.name, func(t *testing.T) {
					bare[i].mustBeServed(t, "bare", r, c)
					if r.denied {
						inside[i].mustBeDenied(t)
						return
					}
					inside[i].mustBeServed(t, "inside", r, c)
				})
			}
		})
	}
}

func (r request) url(s servers) string {
	if r.secure {
		return fmt.Sprintf("https://%s:%d%s", r.host, s.https, r.path)
	}
	return fmt.Sprintf("http://%s:%d%s", r.host, s.http, r.path)
}

// answer is what a client printed about one request.
type answer struct {
	status, version string
	body            string
}

var answerEnd = regexp.MustCompile(`(?m)^=== (\S+) (\S+)$`)

func answers(t *testing.T, r harness.Result) []answer {
	t.Helper()
	var got []answer
	from := 0
	for _, at := range answerEnd.FindAllStringSubmatchIndex(r.Stdout, -1) {
		got = append(got, answer{
			body:    strings.TrimSpace(r.Stdout[from:at[0]]),
			status:  r.Stdout[at[2]:at[3]],
			version: r.Stdout[at[4]:at[5]],
		})
		from = at[1]
	}
	if len(got) != len(requests) {
		t.Fatalf("got %d answers, want %d; exit %d\n%s\n%s", len(got), len(requests), r.Exit, r.Stdout, r.Stderr)
	}
	return got
}

func (a answer) mustBeServed(t *testing.T, where string, r request, c client) {
	t.Helper()
	version := "1.1"
	if c.http2 && r.secure {
		version = "2"
	}
	want := answer{status: "200", version: version, body: fmt.Sprintf("upstream saw %s %s %s", r.method, r.host, r.path)}
	if a != want {
		t.Errorf("%s: got %+v, want %+v", where, a, want)
	}
}

// denial is the body of a refused request.
type denial struct {
	Error  string `json:"error"`
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Hint   string `json:"hint"`
}

func (a answer) mustBeDenied(t *testing.T) {
	t.Helper()
	var d denial
	if err := json.Unmarshal([]byte(a.body), &d); err != nil {
		t.Fatalf("inside: got %+v, want a structured denial: %v", a, err)
	}
	if a.status != "403" || d.Error != "policy_denied" || d.ID == "" || d.Reason == "" {
		t.Errorf("inside: got %+v, want status 403, policy_denied, an id and a reason", a)
	}
}

func TestGit(t *testing.T) {
	b := newBench(t)
	b.host.RequireCommands(t, []string{"git"})
	base := fmt.Sprintf("https://allowed.test:%d", b.servers.https)
	script := func(text string) []string {
		return []string{"bash", "-euc", "export GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0; " + text, "git", base}
	}
	tests := []struct {
		name   string
		script string
		denied bool
		want   string // bare, and inside unless denied
	}{
		{name: "clone", script: `git clone -q "$1/git/repo.git" c && git -C c log --format=%s`, want: "from git"},
		{name: "fetch over protocol 0", script: `git init -q f && git -C f -c protocol.version=0 fetch -q "$1/git/repo.git" && git -C f log --format=%s FETCH_HEAD`, want: "from git"},
		{name: "other repository", script: `git clone -q "$1/private/repo.git" p && git -C p log --format=%s`, want: "from private", denied: true},
		{name: "push", script: `git clone -q "$1/git/repo.git" w 2>/dev/null; git -C w push -q origin HEAD:refs/heads/pushed && echo pushed`, want: "pushed", denied: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bare := b.run(t, script(tt.script), false)
			if got := strings.TrimSpace(bare.Stdout); bare.Exit != 0 || got != tt.want {
				t.Fatalf("bare: got %q, exit %d, want %q\n%s", got, bare.Exit, tt.want, bare.Stderr)
			}
			inside := b.run(t, script(tt.script), true)
			got := strings.TrimSpace(inside.Stdout)
			switch {
			case tt.denied && (inside.Exit == 0 || !strings.Contains(inside.Stderr, "403")):
				t.Errorf("inside: got %q, exit %d, want a failure with status 403\n%s", got, inside.Exit, inside.Stderr)
			case !tt.denied && (inside.Exit != 0 || got != tt.want):
				t.Errorf("inside: got %q, exit %d, want %q\n%s", got, inside.Exit, tt.want, inside.Stderr)
			}
		})
	}
}

// bench is everything that a client needs, made once a test.
type bench struct {
	host    harness.Host
	servers servers
	policy  string
	bareEnv []string
}

func newBench(t *testing.T) bench {
	t.Helper()
	b := bench{host: harness.NewHost(t)}
	b.host.RequireWrapper(t)
	b.servers = startServers(t, t.TempDir())
	outside := b.host.Dir(t, "outside")
	ca := filepath.Join(outside, "ca.pem")
	b.host.Write(t, ca, string(b.servers.ca))
	b.policy = filepath.Join(outside, "clients.yaml")
	b.host.Write(t, b.policy, policyText(b.servers, ca))
	b.bareEnv = b.makeBareEnv(t, outside, ca)
	return b
}

// policyText is the policy of the inside runs; the proxy resolves the test
// names by it.
func policyText(s servers, ca string) string {
	var hosts strings.Builder
	for _, name := range names {
		fmt.Fprintf(&hosts, "    %s: [127.0.0.1]\n", name)
	}
	return fmt.Sprintf(`version: 1
name: clients
extends: [builtin:strict]
network:
  hosts:
%[4]s  private:
    - {cidr: 127.0.0.1, ports: [%[1]d, %[2]d], reason: the test servers}
  ca: [%[3]q]
  rules:
    - name: allowed
      host: allowed.test
      ports: [%[1]d]
      allow:
        - {methods: [GET], paths: ["/hello/**"]}
        - {methods: [GET], paths: ["/git/**/info/refs"], query: {service: git-upload-pack}}
        - {methods: [POST], paths: ["/git/**/git-upload-pack"]}
    - name: pass
      host: pass.test
      ports: [%[1]d]
    - name: api
      host: api.test
      ports: [%[2]d]
      access: read-only
`, s.https, s.http, ca, hosts.String())
}

// makeBareEnv gives the variables that stand, in the bare run, for what the
// sandbox does inside: the test names resolve and the authority is trusted.
func (b bench) makeBareEnv(t *testing.T, dir, ca string) []string {
	t.Helper()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		b.host.Write(t, path, text)
		return path
	}
	var curl, hosts strings.Builder
	fmt.Fprintf(&curl, "cacert = %q\n", ca)
	env := []string{"GIT_SSL_CAINFO=" + ca, "GIT_CONFIG_COUNT=" + fmt.Sprint(len(names))}
	for i, name := range names {
		pin := fmt.Sprintf("%s:%d:127.0.0.1", name, b.servers.https)
		fmt.Fprintf(&curl, "resolve = %q\nresolve = \"%s:%d:127.0.0.1\"\n", pin, name, b.servers.http)
		fmt.Fprintf(&hosts, "127.0.0.1 %s\n", name)
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=http.curloptResolve", i), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, pin))
	}
	put(".curlrc", curl.String())
	put("sitecustomize.py", readFile(t, filepath.Join(data, "bare/sitecustomize.py")))
	node := put("hosts.cjs", readFile(t, filepath.Join(data, "bare/hosts.cjs")))
	java := put("hosts", hosts.String())
	trust := put("truststore.jks", string(javaTruststore([][]byte{b.servers.caDER})))
	return append(env,
		"CURL_HOME="+dir,
		"PYTHONPATH="+dir, "SSL_CERT_FILE="+ca, // Go reads it too
		"NODE_OPTIONS=--require="+node, "NODE_EXTRA_CA_CERTS="+ca,
		"CLIENT_DIAL=127.0.0.1",
		"JAVA_TOOL_OPTIONS=-Djdk.net.hosts.file="+java+" -Djavax.net.ssl.trustStore="+trust,
	)
}

// run runs argv in a new directory that holds the client programs.
func (b bench) run(t *testing.T, argv []string, inside bool) harness.Result {
	t.Helper()
	mode := map[bool]string{false: "bare", true: "inside"}[inside]
	dir := b.host.Dir(t, strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+"."+mode)
	for _, name := range []string{"client.sh", "client.py", "client.mjs", "Client.java"} {
		b.host.Write(t, filepath.Join(dir, name), readFile(t, filepath.Join(data, name)))
	}
	if argv[0] == "./goclient/goclient" {
		buildGoClient(t, b.host.Dir(t, filepath.Join(filepath.Base(dir), "goclient")))
	}
	c := harness.Command{Argv: argv, Dir: dir, Limit: limit, Env: b.bareEnv}
	if inside {
		c.Argv, c.Env = b.host.Wrapped(b.policy, dir, argv), nil
	}
	r, err := b.host.Run(c)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", mode, err, r.Stdout, r.Stderr)
	}
	return r
}

func buildGoClient(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "goclient"), "./"+filepath.Join(data, "goclient"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

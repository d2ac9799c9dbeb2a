package peers

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const gitHost = "git.test"

// forge is a server of git's smart HTTP with TLS.
type forge struct {
	repos string
	port  int
	ca    []byte
}

// newForge serves acme/work, acme/lib and other/lib, each with one commit, as
// git's own server program does.
func newForge(t *testing.T) forge {
	t.Helper()
	f := forge{repos: t.TempDir()}
	for _, name := range []string{"acme/work", "acme/lib", "other/lib"} {
		repo := name + ".git"
		f.git(t, "init", "-q", "--bare", "-b", "main", repo)
		f.git(t, "-C", repo, "config", "http.receivepack", "true")
		f.git(t, "-C", repo, "config", "receive.advertisePushOptions", "true")
		tree := f.git(t, "-C", repo, "hash-object", "-t", "tree", "-w", "/dev/null")
		f.git(t, "-C", repo, "update-ref", "refs/heads/main", f.git(t, "-C", repo, "commit-tree", "-m", "from "+name, tree))
	}
	root := issue(t, "test authority", nil)
	leaf := issue(t, gitHost, &root)
	certificate, err := tls.X509KeyPair(leaf.certPEM, leaf.keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&cgi.Handler{
		Path: filepath.Join(f.git(t, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + f.repos, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + f.repos},
	})
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	f.port, f.ca = server.Listener.Addr().(*net.TCPAddr).Port, root.certPEM
	return f
}

func (f forge) git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = f.repos
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// refs are the refs of a repository.
func (f forge) refs(t *testing.T, repo string) string {
	t.Helper()
	return f.git(t, "-C", repo+".git", "for-each-ref", "--format=%(refname)")
}

func (f forge) policy(ca string) string {
	return fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
network:
  hosts: {%[1]s: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[2]d], reason: the server of this test}]
  ca: [%[3]q]
  rules:
    - name: forge
      host: %[1]s
      ports: [%[2]d]
      protocol: git
      allow:
        - {op: fetch, repos: ["acme/*"]}
        - {op: push, repos: [acme/work], refs: ["refs/heads/agent/*"]}
`, gitHost, f.port, ca)
}

// gitCases run in one directory, in order. $1 is the server's address.
var gitCases = []struct {
	name, script string
	want         string // in what it prints, bare and, where it is allowed, inside
	denied       string // in what git prints inside; "": it is allowed
}{
	{name: "clone", script: `git clone -q "$1/acme/work.git" work; git -C work log --format=%s`, want: "from acme/work"},
	{name: "clone over protocol 0", script: `git -c protocol.version=0 clone -q "$1/acme/lib" lib; git -C lib log --format=%s`, want: "from acme/lib"},
	{name: "shallow", script: `git clone -q --depth 1 "$1/acme/lib" shallow; git -C shallow log --format=%s`, want: "from acme/lib"},
	{name: "clone of another owner's", script: `git clone -q "$1/other/lib" other && git -C other log --format=%s`, want: "from other/lib", denied: "remote: hermes-wrap: denied by the sandbox's policy: "},
	{
		name: "push", want: "done",
		script: `cd work; git checkout -q -b agent/one; git commit -q --allow-empty -m one; git push -q origin agent/one; echo done`,
	},
	{name: "push again", script: `cd work; git commit -q --allow-empty -m two; git push -q origin agent/one; git fetch -q; echo done`, want: "done"},
	{name: "push to main", script: `cd work; git push origin HEAD:refs/heads/main && echo done`, want: "done", denied: "! [remote rejected] HEAD -> main (denied by the sandbox's policy: "},
	{name: "push of a tag", script: `cd work; git tag v1; git push origin v1 && echo done`, want: "done", denied: "[remote rejected] v1 -> v1 (denied by"},
	{name: "push of both", script: `cd work; git push origin HEAD:refs/heads/agent/both HEAD:refs/heads/both && echo done`, want: "done", denied: "[remote rejected] HEAD -> agent/both (denied by"},
	{name: "push with options", script: `cd work; git push -o ci.skip origin HEAD:refs/heads/agent/options && echo done`, want: "done", denied: "push options"},
	{name: "push to a repository to read", script: `cd lib; git checkout -q -b agent/x; git push origin agent/x && echo done`, want: "done", denied: "remote: hermes-wrap: denied by the sandbox's policy: "},
	{
		name: "large push", want: "done",
		script: `cd work; head -c 4000000 /dev/urandom > large; git add large; git commit -q -m large; git push -q origin agent/one; echo done`,
	},
	{
		name: "large push to main", want: "done", denied: "403",
		script: `cd work; head -c 4000000 /dev/urandom > large; git add large; git commit -q -m larger; git push origin HEAD:refs/heads/large && echo done`,
	},
	{name: "delete", script: `cd work; git push -q origin :agent/one; echo done`, want: "done"},
	{name: "delete main", script: `cd work; git push origin :main && echo done`, want: "done", denied: "[remote rejected] main (denied by"},
}

// TestGit runs git against git's own server: fetches go by repository, pushes by
// repository and ref, and git itself shows why one is denied.
func TestGit(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"git"})
	for _, inside := range []bool{false, true} {
		f := newForge(t)
		f.git(t, "-C", "acme/work.git", "config", "receive.denyDeleteCurrent", "ignore")
		mode := map[bool]string{false: "bare", true: "inside"}[inside]
		work, outside := w.Dir(t, "git-"+mode), w.Dir(t, "outside-"+mode)
		ca := filepath.Join(outside, "ca.pem")
		w.Write(t, ca, string(f.ca))
		policy := w.PolicyFile(t, "git", f.policy(ca))
		for _, tt := range gitCases {
			t.Run(mode+"/"+tt.name, func(t *testing.T) {
				setup := `export GIT_TERMINAL_PROMPT=0; git config --global user.name n; git config --global user.email e; `
				if !inside {
					setup += fmt.Sprintf("git config --global http.sslCAInfo %q; git config --global http.curloptResolve %s:%d:127.0.0.1; ", ca, gitHost, f.port)
				}
				argv := []string{"bash", "-euc", setup + tt.script, "git", fmt.Sprintf("https://%s:%d", gitHost, f.port)}
				cmd := w.Bare(work, argv...)
				if inside {
					cmd = w.Wrap(work, policy, argv...)
				}
				got := wraptest.Run(t, cmd, limit)
				if inside && tt.denied != "" {
					if got.Exit == 0 || strings.TrimSpace(got.Out) == tt.want || !strings.Contains(got.Err, tt.denied) {
						t.Errorf("got %q, exit %d, want git to say %q:\n%s", got.Out, got.Exit, tt.denied, got.Err)
					}
					t.Logf("git says:\n%s", got.Err)
					return
				}
				if got.Exit != 0 || strings.TrimSpace(got.Out) != tt.want {
					t.Errorf("got %q, exit %d, want %q\n%s", got.Out, got.Exit, tt.want, got.Err)
				}
			})
		}
		if inside {
			if got := f.refs(t, "acme/work"); got != "refs/heads/main" {
				t.Errorf("refs at the end: got %q, want main alone", got)
			}
			if got := f.git(t, "-C", "acme/work.git", "log", "--format=%s", "main"); got != "from acme/work" {
				t.Errorf("main at the end: got %q, want it as it was", got)
			}
		}
	}
}

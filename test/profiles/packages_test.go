package profiles

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// registry serves one small package each to npm, pip and go, on loopback, as
// packages.test. It notes what it was asked.
type registry struct {
	mu    sync.Mutex
	asked []string
	wraptest.Served
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{}
	r.Served = wraptest.ServeTLS(t, "packages.test", r)
	return r
}

func (r *registry) base() string { return fmt.Sprintf("https://packages.test:%d", r.Port) }

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, q.Method+" "+q.URL.EscapedPath())
	r.mu.Unlock()
	tarball := npmTarball()
	switch q.URL.Path {
	case "/npm/@acme/tiny":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":"@acme/tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"@acme/tiny","version":"1.0.0","dist":{"tarball":%q,"integrity":%q}}}}`,
			r.base()+"/npm/@acme/tiny/-/tiny-1.0.0.tgz", integrity(tarball))
	case "/npm/@acme/tiny/-/tiny-1.0.0.tgz":
		_, _ = w.Write(tarball)
	case "/go/packages.test/tiny/@v/list":
		fmt.Fprintln(w, "v1.0.0")
	case "/go/packages.test/tiny/@v/v1.0.0.info":
		fmt.Fprint(w, `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`)
	case "/go/packages.test/tiny/@v/v1.0.0.mod":
		fmt.Fprint(w, "module packages.test/tiny\n")
	case "/go/packages.test/tiny/@v/v1.0.0.zip":
		_, _ = w.Write(zipped(map[string]string{"packages.test/tiny@v1.0.0/go.mod": "module packages.test/tiny\n", "packages.test/tiny@v1.0.0/t.go": "package tiny\n"}))
	case "/simple/tiny/":
		fmt.Fprint(w, `<a href="/files/tiny-1.0.0-py3-none-any.whl">tiny-1.0.0-py3-none-any.whl</a>`)
	case "/files/tiny-1.0.0-py3-none-any.whl":
		_, _ = w.Write(zipped(map[string]string{
			"tiny.py": "x = 1\n", "tiny-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n",
			"tiny-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "tiny-1.0.0.dist-info/RECORD": "",
		}))
	default:
		http.NotFound(w, q)
	}
}

func npmTarball() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	const text = `{"name":"@acme/tiny","version":"1.0.0"}`
	_ = tw.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(text))})
	_, _ = tw.Write([]byte(text))
	_ = tw.Close()
	_ = z.Close()
	return b.Bytes()
}

func integrity(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func zipped(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, _ := z.Create(name)
		_, _ = w.Write([]byte(text))
	}
	_ = z.Close()
	return b.Bytes()
}

// TestPackages gets a package with each real client through the fragment, from
// hosts that only the user's configuration names.
func TestPackages(t *testing.T) {
	for _, c := range []struct {
		client string
		config map[string]string // below the home; {base} is the registry
		files  map[string]string // in the workspace
		script string
		made   string // there afterwards, in the workspace
		asked  string
	}{
		{
			client: "npm",
			config: map[string]string{".npmrc": "registry={base}/npm/\n"},
			files:  map[string]string{"package.json": `{"name":"x","version":"1.0.0","dependencies":{"@acme/tiny":"1.0.0"}}`, ".npmrc": "cache=/tmp/npm\n"},
			script: "npm install --ignore-scripts && rm -r node_modules && npm ci --ignore-scripts",
			made:   "node_modules/@acme/tiny/package.json", asked: "GET /npm/@acme%2Ftiny",
		},
		{
			client: "go",
			config: map[string]string{".config/go/env": "GOPROXY={base}/go,direct\nGOSUMDB=off\n"},
			files:  map[string]string{"go.mod": "module x\n\nrequire packages.test/tiny v1.0.0\n", "x.go": "package x\n\nimport _ \"packages.test/tiny\"\n"},
			script: "go mod tidy && go build ./... && cp go.sum got",
			made:   "got", asked: "GET /go/packages.test/tiny/@v/v1.0.0.zip",
		},
		{
			client: "pip",
			config: map[string]string{".config/pip/pip.conf": "[global]\nindex-url = {base}/simple/\n"},
			script: "/usr/bin/python3 -m pip download --no-cache-dir -d got tiny",
			made:   "got/tiny-1.0.0-py3-none-any.whl", asked: "GET /simple/tiny/",
		},
	} {
		t.Run(c.client, func(t *testing.T) {
			s, r := newStage(t), newRegistry(t)
			s.RequireCommands(t, []string{map[string]string{"pip": "python3"}[c.client] + strings.TrimPrefix(c.client, "pip")})
			for name, text := range c.config {
				s.Write(t, filepath.Join(s.Home, name), strings.ReplaceAll(text, "{base}", r.base()))
			}
			for name, text := range c.files {
				s.Write(t, filepath.Join(s.work, name), text)
			}
			policy := s.PolicyFile(t, "packages", fmt.Sprintf(`version: 1
enable: [packages/%s]
network:
  hosts: {packages.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the registry of this test}]
  ca: [%s]
filesystem:
  exec: ["/usr/local/go?"]
`, c.client, r.Port, r.CA))
			inside := s.Wrap(s.work, policy, "sh", "-c", c.script)
			got := wraptest.Run(t, inside, limit)
			if _, err := os.Stat(filepath.Join(s.work, c.made)); err != nil || got.Exit != 0 {
				t.Fatalf("got %v and exit %d, want the package\n%s\n%s\n%q", err, got.Exit, got.Out, got.Err, r.asked)
			}
			if !strings.Contains(strings.Join(r.asked, "\n"), c.asked) {
				t.Errorf("got %q, want %q asked for", r.asked, c.asked)
			}
			// Reading is all that is opened.
			n := len(r.asked)
			post := fmt.Sprintf("python3 -c 'import urllib.request as u; u.urlopen(u.Request(\"%s/npm/x\", data=b\"x\"))'", r.base())
			if got := wraptest.Run(t, s.Wrap(s.work, policy, "sh", "-c", post), limit); !strings.Contains(got.Err, "403") || len(r.asked) != n {
				t.Errorf("publishing: got exit %d and %d requests, want 403 and none\n%s", got.Exit, len(r.asked)-n, got.Err)
			}
		})
	}
}

// TestPackageToken holds that a token of npm's configuration stays outside.
func TestPackageToken(t *testing.T) {
	s := newStage(t)
	const token = "npm_0123456789abcdefghij0123456789abcdef"
	s.Write(t, filepath.Join(s.Home, ".npmrc"), "registry=https://packages.example.org/npm/\n//packages.example.org/npm/:_authToken="+token+"\n")
	if err := os.Chmod(filepath.Join(s.Home, ".npmrc"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := s.PolicyFile(t, "token", "version: 1\nenable: [packages/npm]\n")
	show := s.Bare(s.work, s.Bin, "why", "--policy", policy, "url", "GET https://packages.example.org/npm/x")
	if got := wraptest.Run(t, show, limit); got.Exit != 0 || !strings.Contains(got.Out, `with credential "npm-1"`) {
		t.Errorf("got exit %d and %q, want the token attached\n%s", got.Exit, got.Out, got.Err)
	}
	search := s.Wrap(s.work, policy, "sh", "-c", "env; cat ~/.npmrc; cat "+s.Home+"/.npmrc")
	if got := wraptest.Run(t, search, limit); !strings.Contains(got.Out, "npm_config_registry=https://packages.example.org/npm/") || strings.Contains(got.Out+got.Err, token) {
		t.Errorf("got %q, want the registry and no token\n%s", got.Out, got.Err)
	}
}

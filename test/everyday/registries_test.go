package everyday

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// registry serves two packages, of which one needs the other, to each kind of
// client, and notes what it was asked.
type registry struct {
	wraptest.Served
	mu    sync.Mutex
	asked []string
}

func (r *registry) url(path string) string {
	return fmt.Sprintf("https://packages.test:%d%s", r.Port, path)
}

func (r *registry) saw(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.asked, func(a string) bool { return strings.Contains(a, part) })
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, q.URL.Path)
	r.mu.Unlock()
	dir, name, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
	answer := map[string]func(string) []byte{"npm": r.npm, "pypi": pypi, "maven": maven}[dir]
	if answer == nil || answer(name) == nil {
		http.NotFound(w, q)
		return
	}
	if dir == "pypi" && strings.HasPrefix(name, "simple/") {
		w.Header().Set("Content-Type", "text/html")
	}
	_, _ = w.Write(answer(name))
}

func (r *registry) npm(name string) []byte {
	name, tarball := strings.CutSuffix(name, "-1.0.0.tgz")
	name = name[strings.LastIndex(name, "/")+1:]
	needs := map[string]string{"left": `"right":"^1.0.0"`, "right": ""}
	code := map[string]string{
		"left":  "#!/usr/bin/env node\nmodule.exports = require('right') + 1; if (require.main === module) console.log('bin')\n",
		"right": "module.exports = 41\n",
	}
	if code[name] == "" {
		return nil
	}
	manifest := fmt.Sprintf(`{"name":%q,"version":"1.0.0","main":"i.js","bin":{"%[1]s-bin":"i.js"},"dependencies":{%[2]s}`, name, needs[name])
	b := tarred(manifest+"}", code[name])
	if tarball {
		return b
	}
	sum := sha512.Sum512(b)
	return fmt.Appendf(nil, `{"name":%q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":%s,"dist":{"tarball":%q,"integrity":"sha512-%s"}}}}`,
		name, manifest, r.url("/npm/"+name+"/-/"+name+"-1.0.0.tgz"), base64.StdEncoding.EncodeToString(sum[:]))
}

func pypi(name string) []byte {
	switch name {
	case "simple/left/", "simple/right/":
		return fmt.Appendf(nil, `<a href="../../files/%s-1.0.0-py3-none-any.whl">%[1]s-1.0.0-py3-none-any.whl</a>`, strings.Split(name, "/")[1])
	case "files/left-1.0.0-py3-none-any.whl":
		return wheel("left", "import right\nx = right.x + 1\n", "Requires-Dist: right\n")
	case "files/right-1.0.0-py3-none-any.whl":
		return wheel("right", "x = 41\n", "")
	}
	return nil
}

func maven(name string) []byte {
	if name != "test/parent/1/parent-1.pom" {
		return nil
	}
	return []byte(`<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>parent</artifactId><version>1</version><packaging>pom</packaging></project>`)
}

func wheel(name, code, needs string) []byte {
	info := name + "-1.0.0.dist-info/"
	return zipped(map[string]string{
		name + ".py": code, info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0.0\n" + needs,
		info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", info + "RECORD": "",
	})
}

func tarred(manifest, code string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{{"package/package.json", manifest}, {"package/i.js", code}} {
		_ = w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))})
		_, _ = w.Write([]byte(f[1]))
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
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

const nodeApp = `echo '{"name":"app","version":"1.0.0","private":true,"dependencies":{"left":"^1.0.0"}}' >package.json; echo 'console.log(require("left"))' >app.js
`

// TestRegistries installs with each client from caches that are empty, over TLS
// that the proxy ends, without a word of it in the client's configuration.
func TestRegistries(t *testing.T) {
	w := wraptest.New(t)
	tools := filepath.Join(npm.Require(t, "everyday"), "node_modules")
	r := &registry{}
	r.Served = wraptest.ServeTLS(t, "packages.test", r)
	policy := w.PolicyFile(t, "registries", fmt.Sprintf(`version: 1
extends: [builtin:strict]
filesystem: {exec: [%s], read: ["/etc/maven?"]}
network:
  hosts: {packages.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the registry of this test}]
  ca: [%s]
  rules: [{name: registry, host: packages.test, ports: [%[2]d], access: read-only}]
`, tools, r.Port, r.CA))
	for _, c := range []struct {
		name   string
		needs  []string
		script string
		want   string
		asked  string
	}{
		{
			"npm",
			[]string{"node", "npm"},
			nodeApp + `export npm_config_registry=$R/npm/ npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
npm install --silent; rm -r node_modules ~/.npm; npm ci --silent; node app.js; npx --no-install left-bin`,
			"42\nbin", "/npm/left/-/left-1.0.0.tgz",
		},
		{
			"yarn",
			[]string{"node"},
			nodeApp + `export YARN_REGISTRY=$R/npm; yarn() { node $T/yarn/bin/yarn.js --silent --non-interactive "$@"; }
yarn install; rm -r node_modules; yarn install --frozen-lockfile; node app.js; node_modules/.bin/left-bin`,
			"42\nbin", "/npm/right/-/right-1.0.0.tgz",
		},
		{
			"pnpm",
			[]string{"node"},
			nodeApp + `export npm_config_registry=$R/npm/ npm_config_update_notifier=false; pnpm() { node $T/pnpm/bin/pnpm.cjs --silent "$@"; }
pnpm install; rm -r node_modules; pnpm install --frozen-lockfile; node app.js; node_modules/left/i.js`,
			"42\nbin", "/npm/right/-/right-1.0.0.tgz",
		},
		{
			"pip",
			[]string{"python3"},
			`/usr/bin/python3 -m venv v; v/bin/pip install -q --disable-pip-version-check --index-url $R/pypi/simple left; v/bin/python -c 'import left; print(left.x)'`,
			"42", "/pypi/files/right-1.0.0-py3-none-any.whl",
		},
		{
			"maven",
			[]string{"mvn"},
			`cat >pom.xml <<E
<project><modelVersion>4.0.0</modelVersion><parent><groupId>test</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>
<artifactId>app</artifactId><packaging>pom</packaging><repositories><repository><id>central</id><url>$R/maven</url></repository></repositories></project>
E
mvn -B -q validate >&2; find ~ . -name '*.pom' | xargs -n1 basename`,
			"parent-1.pom", "/maven/test/parent/1/parent-1.pom",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.RequireCommands(t, c.needs)
			cmd := w.Wrap(w.Dir(t, c.name), policy, "bash", "-euo", "pipefail", "-c", fmt.Sprintf("R=%s T=%s\n", r.url(""), tools)+c.script)
			if got := wraptest.Run(t, cmd, patience); got.Exit != 0 || strings.TrimSpace(got.Out) != c.want {
				t.Errorf("got exit %d, %q, want %q\n%s", got.Exit, got.Out, c.want, got.Err)
			}
			if !r.saw(c.asked) {
				t.Errorf("got %q, want %q asked for", r.asked, c.asked)
			}
		})
	}
}

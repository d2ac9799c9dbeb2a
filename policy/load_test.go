package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is a home directory, a workspace in it and a few built-ins.
type world struct {
	t    testing.TB
	home string
	work string
	opts Options
}

const baseText = `version: 1
name: strict
workspace: {path: ., access: write}
filesystem:
  read: [/usr]
  exec: [/usr/bin]
  home: private
limits: {memory: 4G, pids: 512}
network:
  rules:
    - {name: pinned, host: pinned.example.org, locked: true}
    - {name: docs, host: docs.example.org, access: read-only}
  deny:
    - {host: bad.example.org, reason: known bad}
`

func newWorld(t testing.TB) world {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	builtins := map[string]string{"strict": baseText, "hermes-strict": "version: 1\nname: hermes-strict\n"}
	return world{t, home, work, Options{
		Cwd: work, Home: home, PasswdHome: home, Uid: os.Getuid(), SearchDirs: []string{filepath.Join(home, "conf")},
		Builtin: func(name string) ([]byte, bool) { s, ok := builtins[name]; return []byte(s), ok },
	}}
}

// write puts a file below the home directory.
func (w world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// load loads a policy text as p.yaml in the workspace.
func (w world) load(text string) (Policy, error) {
	w.t.Helper()
	w.write("work/p.yaml", text)
	o := w.opts
	o.Arg, o.Given = "p.yaml", true
	return Load(o)
}

func (w world) mustLoad(text string) Policy {
	w.t.Helper()
	p, err := w.load(text)
	if err != nil {
		w.t.Fatalf("load: %v", err)
	}
	return p
}

func texts(ps []Path) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Abs)
	}
	return out
}

func TestLoadComplete(t *testing.T) {
	w := newWorld(t)
	p := w.mustLoad(`version: 1
name: acme
filesystem:
  read: ["~/.config/git/config?", "${XDG_CACHE_HOME}/x//y/"]
limits: {memory: 512M, time: 5m, cpu: 1.5}
network:
  remove: [docs]
  rules:
    - name: api
      hosts: [api.example.org, "*.cdn.example.org"]
      allow: [{methods: [GET], paths: ["/v1/**"]}]
env: {allow: [LANG, "LC_*"], set: {CACHE: "${XDG_CACHE_HOME}/c"}}
assert:
  - {deny: {read: ~/.ssh/id_ed25519}}
`)
	want := []string{"/usr", w.home + "/.config/git/config", w.home + "/.cache/x/y"}
	if diff := cmp.Diff(want, texts(p.Filesystem.Read)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if !p.Filesystem.Read[1].Optional {
		t.Errorf("got required, want optional")
	}
	var names []string
	for _, r := range p.Network.Rules {
		names = append(names, r.Name)
	}
	if got, want := strings.Join(names, " "), "pinned api"; got != want {
		t.Errorf("rules: got %v, want %v", got, want)
	}
	if p.Limits.Memory != 512<<20 || p.Limits.Pids != 512 || p.Limits.CPU != 1.5 {
		t.Errorf("limits: got %+v", p.Limits)
	}
	if got, want := p.Where["limits.memory"].String(), "p.yaml:5:18"; got != want {
		t.Errorf("where: got %v, want %v", got, want)
	}
	if got, want := p.Assert[0].Deny.Read, w.home+"/.ssh/id_ed25519"; got != want {
		t.Errorf("assert: got %v, want %v", got, want)
	}
	if got, want := p.Env.Set["CACHE"], w.home+"/.cache/c"; got != want {
		t.Errorf("env.set: got %v, want %v", got, want)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	p := newWorld(t).mustLoad("version: 1\nnetwork: {rules: [{name: a, host: a.example.org, allow: []}]}\n")
	back, err := FromJSON(p.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, back); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	if _, err := FromJSON(append(p.JSON(), " {}"...)); err == nil {
		t.Errorf("data after the end: got no error")
	}
}

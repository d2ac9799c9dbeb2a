// Package view walks everything that can be seen inside and holds it against
// what the policy says: the writable, the readable and the executable set, no
// secret of the host, and the posture of the process.
package view

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const limit = 5 * time.Minute

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// entry is one line of the walk.
type entry struct{ kind, can, path string }

func parseWalk(t *testing.T, text string) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(parts) != 3 {
			t.Fatalf("parse the walk: %q", line)
		}
		path, err := strconv.Unquote(parts[2])
		if err != nil {
			t.Fatalf("parse the walk: %q: %v", line, err)
		}
		if parts[0] != "?" {
			out[path] = entry{parts[0], parts[1], path}
		}
	}
	return out
}

// scene is one policy with a home and a workspace to try it on.
type scene struct {
	wraptest.World
	policy  string // as for --policy
	dir     string // the workspace
	program string // the probe, in the workspace
	model   model
	loaded  policy.Policy
}

// customText uses every way to open and to close a path.
const customText = `version: 1
name: custom
extends: [builtin:strict]
workspace: {path: ., access: write, exec: false}
filesystem:
  read: ["~/read", "~/write/inner-read"]
  write: ["~/write", "~/read/inner-write"]
  exec: ["~/tools"]
  hide: ["~/read/hidden", "~/write/hidden-dir", "~/read/missing?"]
  protect: ["~/write/kept", "~/write/kept-dir", "~/write/deep/down/kept", "~/write/absent?"]
  tmp_exec: false
`

// customFiles are made in the home for it; a path that ends with "!" can be
// executed.
var customFiles = []string{
	"read/file", "read/script!", "read/hidden", "read/inner-write/file", "read/sub/deeper/file",
	"write/file", "write/program!", "write/inner-read/file", "write/hidden-dir/file", "write/kept", "write/kept-dir/file",
	"write/deep/down/kept", "write/deep/down/other", "tools/bin/tool!", "tools/data", "other/file",
}

var hermesFiles = []string{
	".hermes/.env", ".hermes/auth.json", ".hermes/config.yaml", ".hermes/SOUL.md", ".hermes/state.db", ".hermes/sessions/one.json",
	".hermes/hooks/hook.py", ".hermes/plugins/p/plugin.py", ".hermes/skills/s/run!", ".hermes/mcp-tokens/token.json", ".hermes/cron/jobs.json",
	".hermes/logs/log", ".hermes/memories/MEMORY.md",
}

var workspaceFiles = []string{"ws/README.md", "ws/build.sh!", "ws/src/main.go", "ws/.git/config", "ws/.git/hooks/pre-commit!", "ws/.git/HEAD", "ws/.envrc"}

// profilesUnderTest are the built-in ones; "custom" is customText.
func profilesUnderTest() []string {
	if testing.Short() {
		return []string{"strict", "custom"}
	}
	return []string{"strict", "hermes-strict", "ci", "custom"}
}

func newScene(t *testing.T, name string) scene {
	t.Helper()
	s := scene{World: wraptest.New(t), policy: name}
	for _, list := range [][]string{workspaceFiles, hermesFiles, customFiles} {
		for _, file := range list {
			s.plant(t, strings.TrimSuffix(file, "!"), "text of "+file+"\n", strings.HasSuffix(file, "!"))
		}
	}
	s.dir = filepath.Join(s.Home, "ws")
	s.program = s.Program(t, s.dir)
	if name == "custom" {
		s.policy = s.PolicyFile(t, name, customText)
	}
	s.load(t)
	return s
}

// plant makes a file of the account below its home.
func (s scene) plant(t *testing.T, name, text string, exec bool) {
	t.Helper()
	path := filepath.Join(s.Home, name)
	dirs := []string{}
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(s.Home, dir)); err != nil {
			dirs = append(dirs, dir)
		}
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		s.Dir(t, dir)
	}
	s.Write(t, path, text)
	if filepath.Base(name) == ".env" { // as Hermes keeps it: others could read it otherwise
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if exec {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *scene) load(t *testing.T) {
	t.Helper()
	env := map[string]string{}
	for _, kv := range s.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	p, err := policy.Load(policy.Options{
		Arg: s.policy, Given: true, Command: "probe", Cwd: s.dir, Home: s.Home, Uid: s.Uid,
		Getenv: func(k string) string { return env[k] }, Builtin: profiles.Lookup, FloorPath: "/etc/hermes-wrap/floor.yaml",
		Fragment: fragment, Fragments: profiles.Fragments(),
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := netpolicy.Compile(p.Network, p.Inference.Routes...)
	if err != nil {
		t.Fatal(err)
	}
	s.loaded = p
	s.model = newModel(p, s.Home, fmt.Sprintf("/run/user/%d", s.Uid), s.program, e.Inspects())
}

// outside walks the host's trees as the same account and changes nothing.
func (s scene) outside(t *testing.T) map[string]entry {
	t.Helper()
	var roots []string
	for _, h := range s.model.host {
		if !slices.ContainsFunc(roots, func(r string) bool { return within(h.path, r) }) {
			roots = append(roots, h.path)
		}
	}
	r := wraptest.Run(t, s.Bare(s.dir, append([]string{s.program, "walk", "-read"}, roots...)...), limit)
	if r.Exit != 0 {
		t.Fatalf("walk outside: got exit %d, want 0\n%s", r.Exit, r.Err)
	}
	return parseWalk(t, r.Out)
}

func (s scene) inside(t *testing.T, argv ...string) string {
	t.Helper()
	r := wraptest.Run(t, s.Wrap(s.dir, s.policy, append([]string{s.program}, argv...)...), limit)
	if r.Exit != 0 {
		t.Fatalf("%s inside: got exit %d, want 0\n%s", argv[0], r.Exit, r.Err)
	}
	return r.Out
}

// requireExecCheck: the executable set is asked of the kernel.
func requireExecCheck(t *testing.T, outside map[string]entry) {
	t.Helper()
	works := false
	for _, e := range outside {
		works = works || strings.Contains(e.can, "x")
	}
	harness.Require(t, works, "execveat(2) with AT_EXECVE_CHECK (Linux 6.14)")
}

// TestSets compares every entry that can be reached inside with the policy.
func TestSets(t *testing.T) {
	for _, name := range profilesUnderTest() {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, name)
			outside := s.outside(t)
			requireExecCheck(t, outside)
			inside := parseWalk(t, s.inside(t, "walk", "/"))
			problems := append(s.extra(inside, outside), s.missing(inside, outside)...)
			report(t, problems)
		})
	}
}

func report(t *testing.T, problems []string) {
	t.Helper()
	slices.Sort(problems)
	for i, p := range problems {
		if i == 40 {
			t.Errorf("and %d more", len(problems)-i)
			return
		}
		t.Error(p)
	}
}

// extra finds what is there, or can be done, beyond the policy.
func (s scene) extra(inside, outside map[string]entry) (problems []string) {
	for path, e := range inside {
		if within(path, "/proc") {
			problems = append(problems, badProc(e)...)
			continue
		}
		got := e.kind + " " + orNone(strings.Trim(e.can, "vm-"))
		want := s.model.want(e, outside)
		if path == s.program {
			// It runs: the kernel refuses every writer (ETXTBSY).
			want = strings.ReplaceAll(want, "w", "")
		}
		switch {
		case want == "":
			problems = append(problems, fmt.Sprintf("%s: got %q, want nothing there", path, got))
		case got != want:
			problems = append(problems, fmt.Sprintf("%s: got %q, want %q", path, got, want))
		}
		if strings.Contains(e.can, "v") && !s.model.mayMove(path) {
			problems = append(problems, path+": it was renamed")
		}
		if strings.Contains(e.can, "m") && !s.model.mayChange(path) {
			problems = append(problems, path+": its mode was changed")
		}
	}
	return problems
}

// missing finds what the policy opens and what is not there.
func (s scene) missing(inside, outside map[string]entry) (problems []string) {
	for path := range outside {
		if _, ok := inside[path]; ok || underAny(path, s.model.hidden) {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			problems = append(problems, path+": the policy opens it, and it is not there")
		}
	}
	for path := range s.model.own {
		if _, ok := inside[path]; !ok {
			problems = append(problems, path+": it is not there")
		}
	}
	for _, path := range s.model.made {
		if _, ok := inside[path]; !ok {
			problems = append(problems, path+": it is not there")
		}
	}
	return problems
}

// badProc: nothing in /proc is written or executed, no device of the host lies
// there with its mode open, and init is closed.
func badProc(e entry) (problems []string) {
	if strings.ContainsAny(e.can, "wxXv") {
		problems = append(problems, fmt.Sprintf("%s: got %q, want no writing and no execution in /proc", e.path, e.can))
	}
	if e.kind == "c" && strings.Contains(e.can, "m") {
		problems = append(problems, e.path+": the mode of a device was changed")
	}
	if !strings.HasPrefix(e.path, "/proc/1/") || !strings.Contains(e.can, "r") {
		return problems
	}
	// Which numbers are open shows in a list; what they are must not.
	if slices.Contains(closedOfInit, filepath.Base(e.path)) || e.kind == "l" && !strings.Contains(e.path, "/net/") {
		problems = append(problems, e.path+": it can be read")
	}
	return problems
}

// closedOfInit are the files of /proc/1 that tell of its memory.
var closedOfInit = []string{"environ", "mem", "maps", "smaps", "smaps_rollup", "numa_maps", "pagemap", "auxv", "map_files", "stack", "syscall", "personality"}

// TestAbsent holds that protected names do not come into existence, and that
// they can without the sandbox.
func TestAbsent(t *testing.T) {
	s := newScene(t, "custom")
	names := []string{filepath.Join(s.Home, "write/absent"), filepath.Join(s.dir, ".mcp.json"), filepath.Join(s.dir, ".vscode")}
	control := wraptest.Run(t, s.Bare(s.dir, append([]string{s.program, "create"}, names...)...), limit)
	if got, want := strings.Count(control.Out, "\n"), 5*len(names); got != want {
		t.Fatalf("outside: got %d creations, want %d\n%s%s", got, want, control.Out, control.Err)
	}
	if got := s.inside(t, append([]string{"create"}, names...)...); got != "" {
		t.Errorf("inside: got %q, want no creation", got)
	}
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("got %q on the host, want no trace of it", name)
		}
	}
}

// fragment gives a fragment that needs nothing of the user.
func fragment(name string) ([]byte, error) {
	text, _ := profiles.Fragment(name)
	return profiles.Fill(text, func(string) string { return "" })
}

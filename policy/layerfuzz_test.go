package policy

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/drawn"
	"pgregory.net/rapid"
)

// fuzzDrawn lets the fuzzer choose what a property draws.
func fuzzDrawn(f *testing.F, prop func(*rapid.T, Options)) {
	for _, seed := range drawn.Seeds(16) {
		f.Add(seed)
	}
	o := propertyWorld(f)
	target := rapid.MakeFuzz(func(t *rapid.T) { prop(t, o) })
	f.Fuzz(func(t *testing.T, in []byte) { target(t, drawn.Long(in)) })
}

// FuzzLayersDrawn: a project's file, a denial and a floor never widen a policy,
// whatever they are, through everything that Load does.
func FuzzLayersDrawn(f *testing.F) {
	fuzzDrawn(f, func(t *rapid.T, o Options) {
		projectNeverWidens(t, o)
		denyNeverAllows(t, o)
		floorNeverWidens(t, o)
	})
}

// FuzzLayers: a text on top of another one. As a project's file or as a floor it
// never widens; as an ordinary layer it keeps every denial and every locked rule.
func FuzzLayers(f *testing.F) {
	for _, top := range []string{
		"version: 1\nnetwork: {rules: []}\n",
		"version: 1\nnetwork: {rules: [{name: new, host: a.org}]}\n",
		"version: 1\nnetwork: {remove: [p], deny: []}\n",
		"version: 1\nnetwork: {remove: [q], deny: [{host: a.org}], private: [{cidr: 10.0.0.0/8, reason: x}]}\n",
		"version: 1\nworkspace: {access: write, exec: true}\nfilesystem: {read: [/a], write: [/d], hide: [/a/b], protect: [/d/e], tmp_exec: true, home: private}\n",
		"version: 1\nworkspace: {access: none}\nfilesystem: {read: [], hide: []}\nenv: {allow: [LANG]}\nsyscalls: {allow: [lang], deny: [token]}\n",
		"version: 1\nlimits: {memory: 0, pids: 7}\nprocess: {ptrace: true}\nrequire: {may_degrade: [landlock]}\n",
		"version: 1\nlimits: {memory: 1M}\nnetwork: {budget: {bytes_out: 1, hosts: 1}}\ninference: {budget: {tokens: 3}, routes: []}\n",
		"version: 1\ninference: {routes: [{provider: local, host: b.org, models: [m]}]}\n",
	} {
		f.Add([]byte(layerBase), []byte(top))
		f.Add([]byte(top), []byte(layerBase))
	}
	o := Options{Cwd: "/ws", Home: "/home/u"}
	f.Fuzz(func(t *testing.T, base, top []byte) {
		vars := o.variables("/ws")
		decode := func(name string, text []byte) (*layer, bool) {
			l := decodeFile(name, name, text)
			expander{vars: vars}.layer(l)
			return l, len(l.problems) == 0
		}
		below, ok := decode("base.yaml", base)
		if !ok {
			return
		}
		above, ok := decode("top.yaml", top)
		if !ok {
			return
		}
		before, ps := merge(Policy{}, below, true)
		if len(ps) > 0 {
			return
		}
		before.Workspace.Path = Path{Text: ".", Abs: "/ws"}
		before = before.complete(vars)
		if after, ps := merge(before, above, false); len(ps) == 0 {
			checkKept(t, before, after)
			if len(widened(before, after, above)) == 0 {
				if what := widerThan(before, after.complete(vars)); what != "" {
					t.Fatalf("got %s by a project's file, want as before\n%s\n%s", what, base, top)
				}
			}
		}
		if after, ps := applyFloor(before, above); len(ps) == 0 {
			checkKept(t, before, after)
			if what := widerThan(before, after); what != "" {
				t.Fatalf("got %s by a floor, want as before\n%s\n%s", what, base, top)
			}
		}
	})
}

// layerBase has something of each kind that questions are asked about.
const layerBase = `version: 1
workspace: {access: read}
filesystem: {read: [/a, "${WORKSPACE}/x"], write: [/d], exec: [/a/b], hide: [/a/b/c], protect: [/d/e], home: none}
env: {allow: [LANG, "LC_*"]}
syscalls: {allow: [token], deny: [lang]}
limits: {pids: 100, memory: 1G}
require: {may_degrade: []}
network:
  rules:
    - {name: p, host: a.org, access: read-only, locked: true}
    - {name: q, host: "*.b.org", deny: [{methods: [POST]}]}
    - {name: r, host: c.org, ports: [443], protocol: mcp, allow: [{tools: [a]}]}
  deny: [{host: x.b.org}]
  budget: {bytes_out: 1M, hosts: 5}
inference: {routes: [{provider: local, host: b.org, models: [m]}], budget: {tokens: 9k}}
`

// checkKept fails when a denial or a locked rule is gone.
func checkKept(t *testing.T, before, after Policy) {
	t.Helper()
	for what, n := range map[string][2]int{
		"network.deny":       {len(before.Network.Deny), len(after.Network.Deny)},
		"filesystem.hide":    {len(before.Filesystem.Hide), len(after.Filesystem.Hide)},
		"filesystem.protect": {len(before.Filesystem.Protect), len(after.Filesystem.Protect)},
		"syscalls.deny":      {len(before.Syscalls.Deny), len(after.Syscalls.Deny)},
	} {
		if n[1] < n[0] {
			t.Fatalf("%s: got %d entries, want no less than %d", what, n[1], n[0])
		}
	}
	for _, r := range before.Network.Rules {
		if !r.Locked {
			continue
		}
		kept := false
		for _, x := range after.Network.Rules {
			kept = kept || x.Name == r.Name && x.Locked
		}
		if !kept {
			t.Fatalf("the locked rule %q is gone", r.Name)
		}
	}
}

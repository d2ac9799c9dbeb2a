package policy

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hermes-wrap/hermes-wrap/test/property"
	"pgregory.net/rapid"
)

// question is one thing that a policy may permit. The answers below are a
// second, plain reading of a policy; they know nothing of layers.
type question struct{ kind, what string }

func questions() []question {
	var qs []question
	for _, p := range []string{"/a", "/a/b", "/a/b/c", "/d", "/d/e", "/ws", "/ws/x"} {
		for _, kind := range []string{"read", "write", "exec"} {
			qs = append(qs, question{kind, p})
		}
	}
	for _, h := range []string{"a.org", "b.org", "x.b.org", "c.org"} {
		for _, kind := range networkKinds() {
			qs = append(qs, question{kind, h})
		}
	}
	for _, n := range []string{"LANG", "TOKEN", "LC_ALL"} {
		qs = append(qs, question{"env", n}, question{"syscall", strings.ToLower(n)})
	}
	return append(qs, question{kind: "ptrace"}, question{kind: "tmp_exec"}, question{kind: "home"}, question{kind: "degrade"})
}

// networkKinds are the questions about a host: requests, bytes unread, git, calls
// of MCP tools, and models.
func networkKinds() []string {
	return []string{"GET", "POST", "connect", "fetch", "push", "tool a", "tool b", "model m", "model n"}
}

// permits answers a question.
func permits(p Policy, q question) bool {
	fs := p.Filesystem
	ws := p.Workspace
	below := func(list []Path) bool {
		return slices.ContainsFunc(list, func(f Path) bool { return f.Abs == q.what || strings.HasPrefix(q.what, f.Abs+"/") })
	}
	inWs := func(ok bool) bool { return ok && (q.what == "/ws" || strings.HasPrefix(q.what, "/ws/")) }
	if slices.Contains(networkKinds(), q.kind) {
		return permitsHost(p, q)
	}
	switch q.kind {
	case "read":
		return !below(fs.Hide) && (below(fs.Read) || below(fs.Write) || below(fs.Exec) || inWs(ws.Access != AccessNone))
	case "write":
		return !below(fs.Hide) && !below(fs.Protect) && (below(fs.Write) || inWs(ws.Access == AccessWrite))
	case "exec":
		return !below(fs.Hide) && (below(fs.Exec) || inWs(ws.Exec && ws.Access != AccessNone))
	case "env":
		return slices.ContainsFunc(p.Env.Allow, func(n Name) bool { return coversName(n.Text, q.what) })
	case "syscall":
		is := func(n Name) bool { return n.Text == q.what }
		return slices.ContainsFunc(p.Syscalls.Allow, is) && !slices.ContainsFunc(p.Syscalls.Deny, is)
	case "ptrace":
		return p.Process.Ptrace
	case "tmp_exec":
		return fs.TmpExec
	case "home":
		return fs.Home != "none"
	case "degrade":
		return len(p.Require.MayDegrade) > 0
	}
	return false
}

func permitsHost(p Policy, q question) bool {
	if slices.ContainsFunc(p.Network.Deny, func(d HostRule) bool { return coversHost(d.Host, q.what) }) {
		return false
	}
	if slices.ContainsFunc(p.Inference.Routes, func(r Route) bool { return r.Host == q.what && permitsModel(r, q.kind) }) {
		return true
	}
	allowed := false
	for _, r := range p.Network.Rules {
		if !slices.ContainsFunc(r.hosts(), func(h string) bool { return coversHost(h, q.what) }) {
			continue
		}
		for _, d := range r.Deny {
			if slices.Contains(d.Methods, q.kind) {
				return false
			}
		}
		allowed = allowed || permitsByRule(r, q.kind)
	}
	return allowed
}

func permitsModel(r Route, kind string) bool {
	name, ok := strings.CutPrefix(kind, "model ")
	return ok && (len(r.Models) == 0 || slices.Contains(r.Models, name))
}

// permitsByRule reads one rule. What is not inspected can be anything.
func permitsByRule(r Rule, kind string) bool {
	if r.Protocol == ProtocolHTTP && r.Access == "" && !r.AllowSet && len(r.Deny) == 0 {
		return true
	}
	if !slices.Contains(map[Protocol][]string{
		ProtocolHTTP: {"GET", "POST", "model m", "model n"}, ProtocolGit: {"fetch", "push"}, ProtocolMCP: {"tool a", "tool b"},
	}[r.Protocol], kind) {
		return false
	}
	clause := func(m Match) bool {
		switch r.Protocol {
		case ProtocolGit:
			return m.Op == "" || m.Op == kind
		case ProtocolMCP:
			return len(m.Tools) == 0 || slices.Contains(m.Tools, strings.TrimPrefix(kind, "tool "))
		}
		return len(m.Methods) == 0 || slices.Contains(m.Methods, kind) || strings.HasPrefix(kind, "model ") && slices.Contains(m.Methods, "POST")
	}
	if r.Access == "read-only" && kind != "GET" {
		return false
	}
	return !r.AllowSet || slices.ContainsFunc(r.Allow, clause)
}

// drawPolicy writes a policy of the named sections with a few entries each.
func drawPolicy(t *rapid.T, label string, sections ...string) string {
	var b strings.Builder
	b.WriteString("version: 1\n")
	pick := func(name string, values ...string) string {
		return rapid.SampledFrom(values).Draw(t, label+" "+name)
	}
	list := func(key string, values ...string) {
		switch rapid.IntRange(0, 3).Draw(t, label+" "+key) {
		case 0:
			fmt.Fprintf(&b, "  %s: []\n", key)
		case 1:
			some := rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 2, rapid.ID[string]).Draw(t, label+" "+key)
			fmt.Fprintf(&b, "  %s: [%s]\n", key, strings.Join(some, ", "))
		}
	}
	single := func(key string, values ...string) {
		if rapid.Bool().Draw(t, label+" has "+key) {
			fmt.Fprintf(&b, "  %s: %s\n", key, pick(key, values...))
		}
	}
	section := func(name string, body func()) {
		if slices.Contains(sections, name) {
			fmt.Fprintf(&b, "%s:\n  %s\n", name, "# drawn")
			at := b.Len()
			if body(); b.Len() == at {
				s := strings.TrimSuffix(b.String(), ":\n  # drawn\n") + ": {}\n"
				b.Reset()
				b.WriteString(s)
			}
		}
	}
	section("workspace", func() { single("access", "none", "read", "write"); single("exec", "true", "false") })
	section("filesystem", func() {
		for _, key := range []string{"read", "write", "exec", "hide", "protect"} {
			list(key, "/a", "/a/b", "/d", "/d/e", `"${WORKSPACE}/x"`)
		}
		single("tmp_exec", "true", "false")
		single("home", "none", "private", "persistent")
	})
	section("env", func() { list("allow", "LANG", "TOKEN", `"LC_*"`) })
	section("syscalls", func() { list("allow", "lang", "token"); list("deny", "lang", "lc_all") })
	section("process", func() { single("ptrace", "true", "false") })
	section("require", func() { list("may_degrade", "memory", "landlock") })
	section("limits", func() { single("pids", "0", "10", "100"); single("memory", "0", "1G", "2G") })
	section("network", func() {
		rule := func(name string) string {
			return fmt.Sprintf("{name: %s-%s, host: %q%s}", label, name, pick("host "+name, "a.org", "b.org", "*.b.org"),
				pick("body "+name, "", ", access: read-only", ", access: full", ", deny: [{methods: [POST]}]", ", allow: [{methods: [GET]}]",
					", allow: [{methods: [GET, POST]}, {methods: [POST]}]", ", ports: [443], protocol: git", ", ports: [443], protocol: git, allow: [{op: fetch}]",
					", protocol: mcp", ", ports: [443], protocol: mcp, allow: [{tools: [a]}]", ", protocol: mcp, allow: [{tools: [a, b]}]"))
		}
		list("rules", rule("p"), rule("q"))
		list("deny", "{host: a.org}", "{host: c.org}")
		list("remove", "base-p", "base-q")
		if rapid.Bool().Draw(t, label+" has traffic") {
			fmt.Fprintf(&b, "  budget: {hosts: %s, bytes_out: %s}\n", pick("hosts", "0", "5", "9"), pick("bytes", "0", "1K", "1M"))
		}
	})
	section("inference", func() {
		route := func(host string) string {
			return fmt.Sprintf("{provider: local, host: %s%s}", host, pick("models "+host, "", ", models: [m]", ", models: [m, n]"))
		}
		list("routes", route("a.org"), route("b.org"))
		if rapid.Bool().Draw(t, label+" has tokens") {
			fmt.Fprintf(&b, "  budget: {tokens: %s}\n", pick("tokens", "0", "5", "9k"))
		}
	})
	return b.String()
}

// loadTexts writes files and loads.
func loadTexts(o Options, files map[string]string) (Policy, error) {
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return Policy{}, err
		}
	}
	return Load(o)
}

func propertyWorld(t testing.TB) Options {
	o := newWorld(t).opts
	o.Builtin = nil
	o.SearchDirs = []string{o.Home}
	o.Arg = "policy"
	return o
}

// asAsked gives the workspace the name that the questions use.
func asAsked(p Policy, o Options) Policy {
	fs := &p.Filesystem
	for _, list := range []*[]Path{&fs.Read, &fs.Write, &fs.Exec, &fs.Hide, &fs.Protect} {
		*list = slices.Clone(*list)
		for i, f := range *list {
			if rest, ok := strings.CutPrefix(f.Abs, o.Cwd); ok {
				(*list)[i].Abs = "/ws" + rest
			}
		}
	}
	return p
}

// A project's file never permits what was not permitted, and never raises a
// limit.
func TestProjectNeverWidens(t *testing.T) {
	o := propertyWorld(t)
	property.Compare(t, func(t *rapid.T) int { return projectNeverWidens(t, o) })
}

// projectNeverWidens gives how many project files were accepted.
func projectNeverWidens(t *rapid.T, o Options) (accepted int) {
	base := "extends: []\n" + drawPolicy(t, "base", "workspace", "filesystem", "env", "syscalls", "process", "require", "limits", "network", "inference")
	files := map[string]string{o.Home + "/policy.yaml": base}
	os.Remove(o.Cwd + "/.hermes-wrap.yaml")
	before, err := loadTexts(o, files)
	if err != nil {
		return 0 // for example: removes what is not there
	}
	// One section a file: each of several would have its own reason to be
	// refused, and few files would be left to judge.
	for i := range 8 {
		section := rapid.SampledFrom([]string{"network", "network", "network", "inference", "filesystem", "filesystem", "workspace", "syscalls", "env", "process", "require", "limits"}).Draw(t, "section")
		project := drawPolicy(t, fmt.Sprint("project", i), section)
		files[o.Cwd+"/.hermes-wrap.yaml"] = project
		after, err := loadTexts(o, files)
		if err != nil {
			continue // refused: that is what the rule is for
		}
		accepted++
		if what := widerThan(asAsked(before, o), asAsked(after, o)); what != "" {
			t.Fatalf("got %s, want as before\nbase:\n%s\nproject:\n%s", what, base, project)
		}
	}
	return accepted
}

// widerThan names something that only the second policy permits.
func widerThan(before, after Policy) string {
	for _, q := range questions() {
		if permits(after, q) && !permits(before, q) {
			return fmt.Sprintf("%v permitted", q)
		}
	}
	x, y := before.Network.Budget, after.Network.Budget
	for _, l := range [][2]int64{
		{int64(before.Limits.Memory), int64(after.Limits.Memory)},
		{int64(before.Limits.Pids), int64(after.Limits.Pids)},
		{int64(x.BytesOut), int64(y.BytesOut)},
		{int64(x.Hosts), int64(y.Hosts)},
		{int64(before.Inference.Budget.Tokens), int64(after.Inference.Budget.Tokens)},
	} {
		if l[0] != 0 && (l[1] == 0 || l[1] > l[0]) {
			return fmt.Sprintf("a limit of %d in place of %d", l[1], l[0])
		}
	}
	return ""
}

// Whatever denials a policy adds to its base, nothing becomes permitted.
func TestDenyNeverAllows(t *testing.T) {
	o := propertyWorld(t)
	rapid.Check(t, func(t *rapid.T) { denyNeverAllows(t, o) })
}

func denyNeverAllows(t *rapid.T, o Options) {
	os.Remove(o.Cwd + "/.hermes-wrap.yaml")
	base := "extends: []\n" + drawPolicy(t, "base", "workspace", "filesystem", "env", "syscalls", "process", "require", "limits", "network")
	before, err := loadTexts(o, map[string]string{o.Home + "/policy.yaml": base})
	if err != nil {
		return
	}
	deny := rapid.SampledFrom([]string{
		"filesystem: {hide: [/a/b]}", "filesystem: {protect: [/a]}", "network: {deny: [{host: b.org}]}", "syscalls: {deny: [lang]}",
	}).Draw(t, "deny")
	top := o
	top.Arg = "top"
	after, err := loadTexts(top, map[string]string{o.Home + "/top.yaml": "version: 1\nextends: [./policy.yaml]\n" + deny + "\n"})
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
	if what := widerThan(asAsked(before, o), asAsked(after, o)); what != "" {
		t.Fatalf("got %s, want as before\n%s\n%s", what, base, deny)
	}
}

// Under a floor nothing becomes permitted, and where the floor states what may
// be written, nothing else is.
func TestFloorNeverWidens(t *testing.T) {
	o := propertyWorld(t)
	property.Compare(t, func(t *rapid.T) int { return floorNeverWidens(t, o) })
}

// floorNeverWidens gives how many floors fitted.
func floorNeverWidens(t *rapid.T, o Options) (accepted int) {
	base := "extends: []\n" + drawPolicy(t, "base", "workspace", "filesystem", "env", "syscalls", "process", "limits", "network", "inference")
	before, err := loadTexts(o, map[string]string{o.Home + "/policy.yaml": base})
	if err != nil {
		return 0
	}
	for i := range 8 {
		section := rapid.SampledFrom([]string{"network", "network", "inference", "filesystem", "workspace", "syscalls", "env", "process", "limits"}).Draw(t, "section")
		text := drawPolicy(t, fmt.Sprint("floor", i), section)
		l := decodeFile("floor.yaml", "floor.yaml", []byte(text))
		expander{vars: before.Vars}.layer(l)
		after, ps := applyFloor(before, l)
		if len(l.problems) > 0 || len(ps) > 0 {
			continue
		}
		accepted++
		if what := widerThan(asAsked(before, o), asAsked(after, o)); what != "" {
			t.Fatalf("got %s, want as before\nbase:\n%s\nfloor:\n%s", what, base, text)
		}
		floor := asAsked(l.pol, o)
		for _, q := range questions() {
			if q.kind == "write" && l.has("filesystem.write") && permits(asAsked(after, o), q) && !permits(floor, q) {
				t.Fatalf("%v: got permitted beyond the floor\nbase:\n%s\nfloor:\n%s", q, base, text)
			}
			if slices.Contains(networkKinds(), q.kind) && l.has("network.rules") && permits(asAsked(after, o), q) && !permits(floorAsPolicy(floor), q) {
				t.Fatalf("%v: got permitted beyond the floor's rules\nbase:\n%s\nfloor:\n%s", q, base, text)
			}
		}
	}
	return accepted
}

// F04, F05: without a base, an empty list means what an absent one means, in
// every place. An empty section is refused: above a base it would not.
func TestEmptyMeansAbsent(t *testing.T) {
	w := newWorld(t)
	bare := func(p Policy) Policy {
		p.Where, p.Sources, p.Digest = nil, nil, ""
		return p
	}
	want := bare(w.mustLoad("version: 1\nextends: []\n"))
	for _, section := range fieldsOf(reflect.TypeFor[Policy]()) {
		if section.typ.Kind() != reflect.Struct {
			continue
		}
		if _, err := w.load("version: 1\n" + section.key + ": {}\n"); err == nil {
			t.Errorf("%s: {}: got no error", section.key)
		}
		var docs []string
		for _, f := range fieldsOf(section.typ) {
			switch f.typ.Kind() {
			case reflect.Slice:
				docs = append(docs, fmt.Sprintf("%s: {%s: []}", section.key, f.key))
			case reflect.Map:
				docs = append(docs, fmt.Sprintf("%s: {%s: {}}", section.key, f.key))
			}
		}
		for _, doc := range docs {
			got := bare(w.mustLoad("version: 1\nextends: []\n" + doc + "\n"))
			if diff := cmp.Diff(normal(want), normal(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", doc, diff)
			}
			if _, err := w.load("version: 1\nextends: []\n" + strings.NewReplacer("[]", "~", "{}", "~").Replace(doc) + "\n"); err == nil {
				t.Errorf("%s with null: got no error", doc)
			}
		}
	}
}

// normal drops the difference between nil and empty, which no reader sees.
func normal(p Policy) string { return fmt.Sprintf("%+v", p) }

// floorAsPolicy gives a floor's rules the defaults that a policy's have.
func floorAsPolicy(p Policy) Policy { return p.complete(nil) }

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// planText prints a plan for people to review; dir reads "$T" in it.
func planText(p Plan, dir string) string {
	var b strings.Builder
	short := strings.NewReplacer(dir, "$T").Replace
	fmt.Fprintf(&b, "program %s\ncwd %s\nids %d:%d umask %d\n", p.Program, p.Cwd, p.Uid, p.Gid, p.Umask)
	b.WriteString("\nview\n")
	for _, e := range p.View {
		if within(e.Target, "/proc") && (e.Kind == KindMask || e.Kind == KindProtect) {
			continue // what there is to cover depends on the kernel
		}
		fmt.Fprintf(&b, "  %-8s %-36s %-28s %s\n", e.Kind, short(e.Target), short(entryWords(e)), e.Rule)
	}
	b.WriteString("\nguard\n")
	for _, g := range p.Guard {
		fmt.Fprintf(&b, "  %-45s %-28s %s\n", short(g.Parent+"/"+g.Name), map[bool]string{true: "hide"}[g.Hide], g.Rule)
	}
	b.WriteString("\nlandlock\n")
	for _, g := range p.Grants {
		words := flagWords(Entry{Write: g.Write, Exec: g.Exec})
		if g.Ioctl {
			words += ",ioctl"
		}
		if g.List {
			words = "list only"
		}
		fmt.Fprintf(&b, "  %-45s %-28s %s\n", short(g.Path), words, g.Rule)
	}
	b.WriteString("\nenvironment\n")
	for _, kv := range p.Env {
		fmt.Fprintf(&b, "  %s\n", kv)
	}
	fmt.Fprintf(&b, "\nself-test must not open %q\nwarnings %q\n", p.Hidden, p.Warnings)
	return short(b.String())
}

func entryWords(e Entry) string {
	switch e.Kind {
	case KindBind, KindPart:
		return flagWords(e)
	case KindOverlay:
		return flagWords(e) + ",layer " + strings.TrimRight(e.Layer, "0123456789abcdef")
	case KindTmpfs:
		return fmt.Sprintf("%s,%04o,%dM", flagWords(e), e.Mode, e.Size>>20)
	case KindSymlink:
		return "-> " + e.Data
	case KindAlias:
		return "of " + e.Source
	case KindFile:
		if e.Blob != "" {
			return "the " + string(e.Blob)
		}
		return fmt.Sprintf("%d lines", strings.Count(e.Data, "\n"))
	}
	return ""
}

// TestPlans holds whole plans in golden files. They are security documents:
// write them anew with -update and review every line.
func TestPlans(t *testing.T) {
	files := map[string]string{
		"bin/tool": "x", "home/.ssh/id_ed25519": "a secret", "home/.config/git/config": "x", "home/.gitconfig": "-> .config/git/config",
		"ws/.git/config": "x", "ws/.git/hooks/": "", "ws/.env": "a secret", "ws/src/": "", "usr/lib/x": "x", "lib": "-> usr/lib",
		"jdk/lib/security/cacerts": "x", "state/": "", "run/": "", "home/ws/": "", "ws/tools/x": "x", "home/w/data/.config-x/git/": "",
	}
	cases := []struct {
		name   string
		policy func(dir string) policy.Policy
		host   func(dir string) func(*Host)
	}{
		{"nothing", func(string) policy.Policy { return policy.Policy{} }, nil},
		{"workspace", func(dir string) policy.Policy {
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Workspace.Exec = true
			f := &p.Filesystem
			f.Exec, f.Read = at(dir, "lib"), at(dir, "home/.gitconfig", "missing", "missing-too?")
			f.Hide, f.Protect = at(dir, "ws/.env", "ws/.netrc"), at(dir, "ws/.git/hooks", "ws/.git/config", "ws/.envrc", "ws/.vscode/tasks.json")
			f.Home, f.TmpExec = "private", true
			p.Process.Umask = "0077"
			return p
		}, func(dir string) func(*Host) {
			return func(h *Host) {
				h.Secret = []string{filepath.Join(dir, "run/id"), filepath.Join(dir, "state/audit.jsonl")}
			}
		}},
		{"workspace in home", func(dir string) policy.Policy {
			p := policy.Policy{Workspace: workspace(dir, "home/ws")}
			p.Filesystem.Home = "private"
			return p
		}, func(dir string) func(*Host) { return func(h *Host) { h.Cwd = filepath.Join(dir, "home/ws") } }},
		{"workspace above home", func(dir string) policy.Policy {
			p := policy.Policy{Workspace: policy.Workspace{Path: policy.Path{Text: dir, Abs: dir}, Access: policy.AccessRead}}
			p.Filesystem.Home = "private"
			return p
		}, nil},
		{"persistent home", func(dir string) policy.Policy {
			p := policy.Policy{Workspace: workspace(dir, "ws")}
			p.Filesystem.Home = "persistent"
			return p
		}, func(dir string) func(*Host) { return func(h *Host) { h.State = filepath.Join(dir, "state") } }},
		{"copy on write", func(dir string) policy.Policy {
			p := policy.Policy{Workspace: workspace(dir, "ws"), State: "persistent"}
			p.Workspace.Access = policy.AccessCow
			f := &p.Filesystem
			f.Home, f.Cow, f.Write = "private", at(dir, "home/w/data/.config-x", "missing?"), at(dir, "ws/src", "home/w")
			f.Exec, f.Read = at(dir, "ws/tools"), at(dir, "ws/.git/config", "home/w/data/.config-x/git")
			f.Hide, f.Protect = at(dir, "ws/.env"), at(dir, "ws/.git/hooks", "ws/.envrc", "home/w/data/.config-x/git/ignore")
			p.Limits.Disk = 64 << 20
			return p
		}, nil},
		{"inspected", func(dir string) policy.Policy {
			var p policy.Policy
			p.Filesystem.Exec = at(dir, "jdk")
			p.Process.Uid = "root"
			return p
		}, func(string) func(*Host) { return func(h *Host) { h.Inspect = true } }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, files)
			var change func(*Host)
			if c.host != nil {
				change = c.host(dir)
			}
			plan, err := planned(dir, c.policy(dir), change)
			if err != nil {
				t.Fatal(err)
			}
			checkOrder(t, plan)
			got := planText(plan, dir)
			golden := filepath.Join("testdata/plans", strings.ReplaceAll(c.name, " ", "-")+".golden")
			if *filterUpdate {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// checkOrder requires parents before children and covers last.
func checkOrder(t *testing.T, p Plan) {
	t.Helper()
	covering := false
	for i, e := range p.View {
		if within(e.Target, "/proc") || within(e.Target, "/dev") {
			continue // laid last, and nothing of the policy's lies there
		}
		switch e.Kind {
		case KindPin, KindProtect, KindMask:
			covering = true
			continue
		}
		if covering {
			t.Errorf("order: got %s %q after a cover", e.Kind, e.Target)
		}
		for _, later := range p.View[i+1:] {
			if e.Kind == KindAlias && e.Source == later.Target {
				t.Errorf("order: got %q before %q, which it shows", e.Target, later.Target)
			}
			if within(e.Target, later.Target) && e.Target != later.Target && later.Kind != KindPin && later.Kind != KindProtect && later.Kind != KindMask {
				t.Errorf("order: got %q before its parent %q", e.Target, later.Target)
			}
		}
	}
}

// A policy that grants a file by itself which the launcher makes anew.
func TestOwnFileIsGranted(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "ws/": "", "home/": ""})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Filesystem.Read = []policy.Path{{Text: "/etc/passwd", Abs: "/etc/passwd"}}
	plan, err := planned(dir, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(plan.View, func(e Entry) bool { return e.Kind == KindAlias && e.Target == "/etc/passwd" }) {
		t.Errorf("got %+v, want an alias of our own file", plan.View)
	}
	checkOrder(t, plan)
}

func TestCompileRefuses(t *testing.T) {
	files := map[string]string{"bin/tool": "x", "ws/state/": "", "ws/broken": "#!$T/gone/python\n", "home/": ""}
	cases := []struct {
		name   string
		policy func(dir string, p *policy.Policy)
		host   func(dir string, h *Host)
		want   string
		is     error
	}{
		{"no Landlock", nil, func(_ string, h *Host) { h.Abi = 0 }, "landlock cannot be enforced: needed Landlock ABI 2; found no Landlock", nil},
		{"an older Landlock", func(_ string, p *policy.Policy) { p.Require.LandlockABI = 9 }, nil, "needed Landlock ABI 9; found Landlock ABI 6", nil},
		{"no capture", nil, func(_ string, h *Host) { h.Tproxy = false }, "capture cannot be enforced", nil},
		{"our own state under a grant", nil, func(dir string, h *Host) { h.Secret = []string{filepath.Join(dir, "ws/state")} }, "must stay outside", nil},
		{"our own state to come under a grant", nil, func(dir string, h *Host) { h.Secret = []string{filepath.Join(dir, "ws/a/b")} }, "must stay outside", nil},
		{"no command", nil, func(_ string, h *Host) { h.Environ = []string{"PATH=/nowhere"} }, "command not found", ErrNotFound},
		{"a socket as a file", func(dir string, p *policy.Policy) { p.Filesystem.Sockets = at(dir, "bin/tool") }, nil, "is not a socket", nil},
		{"a missing socket", func(dir string, p *policy.Policy) { p.Filesystem.Sockets = at(dir, "gone") }, nil, "filesystem.sockets[0]", os.ErrNotExist},
		{"an unknown system call", func(_ string, p *policy.Policy) { p.Syscalls.Deny = namesOf("opne") }, nil, "opne", nil},
		{"a umask that is none", func(_ string, p *policy.Policy) { p.Process.Umask = "999" }, nil, "process.umask", nil},
	}
	for _, c := range cases {
		dir := layout(t, files)
		p := policy.Policy{Workspace: workspace(dir, "ws")}
		if _, err := planned(dir, p, nil); err != nil {
			t.Fatalf("control: %v", err)
		}
		if c.policy != nil {
			c.policy(dir, &p)
		}
		plan, err := planned(dir, p, func(h *Host) {
			if c.host != nil {
				c.host(dir, h)
			}
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if len(plan.View)+len(plan.Grants) > 0 {
			t.Errorf("%s: got a plan beside the error, want none", c.name)
		}
	}
}

func TestDegradationsAreNamed(t *testing.T) {
	dir := layout(t, map[string]string{"bin/tool": "x", "ws/": ""})
	p := policy.Policy{Workspace: workspace(dir, "ws")}
	p.Require.MayDegrade = []policy.Layer{policy.LayerLandlock, policy.LayerCapture}
	plan, err := planned(dir, p, func(h *Host) { h.Abi, h.Tproxy, h.Ports = 0, false, []uint16{80} })
	if err != nil {
		t.Fatal(err)
	}
	var got []policy.Layer
	for _, d := range plan.Degraded {
		got = append(got, d.Layer)
	}
	if diff := cmp.Diff(p.Require.MayDegrade, got); diff != "" {
		t.Errorf("degraded (-want +got):\n%s", diff)
	}
	for _, l := range plan.Layers() {
		if l.Enforced == (l.Name == policy.LayerLandlock || l.Name == policy.LayerCapture) {
			t.Errorf("%s: got enforced %v", l.Name, l.Enforced)
		}
	}
}

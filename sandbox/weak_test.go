package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// weakPolicy consents to the weaker tier and grants a workspace.
func weakPolicy(work string) policy.Policy {
	return policy.Policy{
		Require:    policy.Require{MayDegrade: []policy.Layer{policy.LayerNamespaces}},
		Workspace:  policy.Workspace{Path: policy.Path{Text: work, Abs: work}, Access: policy.AccessWrite},
		Filesystem: policy.Filesystem{Home: "private"},
	}
}

func weakHost(work string) Host {
	return Host{
		Uid: 1000, Gid: 1000, User: "u", Home: "/home/u", Cwd: work, Abi: newestABI, Run: "/run/user/1000/hermes-wrap/r",
		Environ:      []string{"PATH=/usr/bin:/bin"},
		NoNamespaces: &Finding{Feature: "user namespace", Needed: "clone", Found: "refused", Remedy: "ask", Layer: policy.LayerNamespaces},
	}
}

func TestWeakTierStops(t *testing.T) {
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hide := func(name string) []policy.Path { return []policy.Path{{Abs: filepath.Join(work, name)}} }
	cases := []struct {
		name   string
		change func(*policy.Policy, *Host)
		want   string
	}{
		{"no consent", func(p *policy.Policy, _ *Host) { p.Require.MayDegrade = nil }, "user namespace"},
		{"consent to something else", func(p *policy.Policy, _ *Host) { p.Require.MayDegrade = []policy.Layer{policy.LayerCapture} }, "user namespace"},
		{"no Landlock", func(p *policy.Policy, h *Host) {
			h.Abi, p.Require.MayDegrade = 0, append(p.Require.MayDegrade, policy.LayerLandlock)
		}, "Landlock ABI 3"},
		{"Landlock without truncation", func(_ *policy.Policy, h *Host) { h.Abi = 2 }, "Landlock ABI 3"},
		{"another user id inside", func(p *policy.Policy, _ *Host) { p.Process.Uid = "root" }, "process.uid"},
		{"a published port", func(p *policy.Policy, _ *Host) { p.Network.Publish = []policy.Publish{{Listen: "8080:80"}} }, "network.publish"},
		{"hidden inside granted", func(p *policy.Policy, _ *Host) { p.Filesystem.Hide = hide("secret") }, "workspace"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, h := weakPolicy(work), weakHost(work)
			c.change(&p, &h)
			_, err := Compile(p, h, []string{"sh"})
			var lack *LackError
			if !errors.As(err, &lack) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a lack with %q", err, c.want)
			}
			if lack.Hint == "" || strings.Contains(lack.Hint, "may_degrade") {
				t.Errorf("got hint %q, want one that does not weaken", lack.Hint)
			}
		})
	}
}

func TestWeakPlan(t *testing.T) {
	work := t.TempDir()
	p, h := weakPolicy(work), weakHost(work)
	p.Filesystem.Protect = []policy.Path{{Abs: filepath.Join(work, "Makefile")}}
	p.Process.UserNamespaces = true
	plan, err := Compile(p, h, []string{"sh"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range plan.View {
		if e.Kind != KindBind || e.Target != e.Source {
			t.Errorf("got entry %+v, want only what lies where the host has it", e)
		}
	}
	for _, g := range plan.Grants {
		if g.List || g.Path == "/" || g.Path == "/dev" || g.Path == "/tmp" || within("/home/u", g.Path) {
			t.Errorf("got grant %+v, want none on the host's shared directories", g)
		}
		if g.Write && g.Path == "/proc" {
			t.Error("got /proc writable")
		}
	}
	if len(plan.Guard) > 0 || plan.Filter.UserNamespaces || plan.Filter.Tier != TierOffline || plan.Weak.Network || plan.CaptureAll {
		t.Errorf("got guard %v, filter %+v, network %v, want none and the offline filter", plan.Guard, plan.Filter, plan.Weak.Network)
	}
	if !slices.Contains(plan.Env, "HOME="+h.Run+"/home") || !slices.Contains(plan.Env, "TMPDIR="+h.Run+"/tmp") {
		t.Errorf("got environment %v, want private directories of the run", plan.Env)
	}
	p.Env.Set = map[string]string{"TMPDIR": "/tmp", "OTHER": "/tmp/x"}
	if plan, err := Compile(p, h, []string{"sh"}); err != nil || !slices.Contains(plan.Env, "TMPDIR="+h.Run+"/tmp") || !slices.Contains(plan.Env, "OTHER=/tmp/x") {
		t.Errorf("got environment %v, %v, want the private directory for a policy's /tmp", plan.Env, err)
	}
	if v := plan.Judge(filepath.Join(work, "Makefile"), "write"); !v.Allowed || !v.Unheld {
		t.Errorf("protected: got %+v, want allowed and not held", v)
	}
	if v := plan.Judge("/home/u/.ssh/id", "read"); v.Allowed {
		t.Errorf("secret: got %+v, want refused", v)
	}
	if !strings.Contains(plan.Summary(), "1 protected entries are NOT protected") {
		t.Errorf("got summary %q, want the rule that is not held", plan.Summary())
	}
}

// TestWeakNetworkByABI: where Landlock knows no TCP there is no network, and
// where it knows no scope of signals the summary says so.
func TestWeakNetworkByABI(t *testing.T) {
	work := t.TempDir()
	for _, c := range []struct {
		abi     int
		network bool
		tier    Tier
		words   string
	}{
		{3, false, TierOffline, "can be signalled"},
		{4, true, TierProxied, "can be signalled"},
		{5, true, TierProxied, "can be signalled"},
		{6, true, TierProxied, "cannot be signalled"},
		{7, true, TierProxied, "cannot be signalled"},
	} {
		p, h := weakPolicy(work), weakHost(work)
		p.Network.Rules = []policy.Rule{{Name: "one", Host: "example.org"}}
		h.Abi = c.abi
		plan, err := Compile(p, h, []string{"sh"})
		if err != nil {
			t.Fatalf("ABI %d: %v", c.abi, err)
		}
		if plan.Weak.Network != c.network || plan.Filter.Tier != c.tier {
			t.Errorf("ABI %d: got network %v, tier %q, want %v, %q", c.abi, plan.Weak.Network, plan.Filter.Tier, c.network, c.tier)
		}
		if c.network == (len(plan.Weak.ProxyVars) == 0) || c.network == slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.HasPrefix(w, "network: there is none") }) {
			t.Errorf("ABI %d: got variables %v, warnings %v", c.abi, plan.Weak.ProxyVars, plan.Warnings)
		}
		got := plan.Summary()
		if !strings.Contains(got, c.words) || c.words == "can be signalled" && strings.Contains(got, "cannot be signalled") {
			t.Errorf("ABI %d: got %q, want %q", c.abi, got, c.words)
		}
	}
}

func TestWeakFilter(t *testing.T) {
	const ok = "ok"
	word := func(r filterResult) string {
		if r.allowed() {
			return ok
		}
		return unix.ErrnoName(r.errno)
	}
	sock := func(family, typ, proto uint64) [6]uint64 { return [6]uint64{family, typ, proto} }
	cases := []struct {
		name             string
		nr               uint32
		args             [6]uint64
		full, off, proxy string
	}{
		{"TCP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0), ok, "EPERM", ok},
		{"TCP by number, v6", unix.SYS_SOCKET, sock(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP), ok, "EPERM", ok},
		{"UDP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_DGRAM, 0), ok, "EPERM", "EPERM"},
		{"UDP, v6", unix.SYS_SOCKET, sock(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP), ok, "EPERM", "EPERM"},
		{"family with high bits", unix.SYS_SOCKET, sock(1<<32|unix.AF_INET, unix.SOCK_DGRAM, 0), ok, "EPERM", "EPERM"},
		{"MPTCP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), "EPERM", "EPERM", "EPERM"},
		{"raw", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), "EPERM", "EPERM", "EPERM"},
		{"local", unix.SYS_SOCKET, sock(unix.AF_UNIX, unix.SOCK_STREAM, 0), ok, "EPERM", "EPERM"},
		{"route", unix.SYS_SOCKET, sock(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), ok, ok, ok},
		{"packet", unix.SYS_SOCKET, sock(unix.AF_PACKET, unix.SOCK_RAW, 0), "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"},
		{"pair", unix.SYS_SOCKETPAIR, sock(unix.AF_UNIX, unix.SOCK_STREAM, 0), ok, ok, ok},
		{"datagram pair", unix.SYS_SOCKETPAIR, sock(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0), ok, "EPERM", "EPERM"},
		{"listen", unix.SYS_LISTEN, [6]uint64{3, 1}, ok, "EPERM", "EPERM"},
		{"send", unix.SYS_SENDTO, [6]uint64{3, 0, 1, unix.MSG_NOSIGNAL}, ok, ok, ok},
		{"fast open", unix.SYS_SENDTO, [6]uint64{3, 0, 1, unix.MSG_NOSIGNAL | unix.MSG_FASTOPEN}, ok, "EPERM", "EPERM"},
		{"fast open by message", unix.SYS_SENDMSG, [6]uint64{3, 0, unix.MSG_FASTOPEN}, ok, "EPERM", "EPERM"},
		{"fast open by messages", unix.SYS_SENDMMSG, [6]uint64{3, 0, 1, unix.MSG_FASTOPEN}, ok, "EPERM", "EPERM"},
		{"own limits", unix.SYS_PRLIMIT64, [6]uint64{0, 7}, ok, ok, ok},
		{"another's limits", unix.SYS_PRLIMIT64, [6]uint64{1234, 7}, ok, "EPERM", "EPERM"},
		{"shared memory by id", unix.SYS_SHMAT, [6]uint64{}, ok, "EPERM", "EPERM"},
		{"semaphore by id", unix.SYS_SEMOP, [6]uint64{}, ok, "EPERM", "EPERM"},
		{"read", unix.SYS_READ, [6]uint64{}, ok, ok, ok},
		{"mount", unix.SYS_MOUNT, [6]uint64{}, "EPERM", "EPERM", "EPERM"},
	}
	audit, err := filterAudit(filterNative)
	if err != nil {
		t.Fatal(err)
	}
	for tier, want := range map[Tier]func(i int) string{
		"":          func(i int) string { return cases[i].full },
		TierOffline: func(i int) string { return cases[i].off },
		TierProxied: func(i int) string { return cases[i].proxy },
	} {
		raw, err := CompileFilter(FilterSpec{Tier: tier})
		if err != nil {
			t.Fatal(err)
		}
		prog, err := filterDecode(raw)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			r, err := filterRun(prog, filterData{nr: c.nr, arch: audit, args: c.args})
			if got := word(r); err != nil || got != want(i) {
				t.Errorf("tier %q, %s: got %s, %v, want %s", tier, c.name, got, err, want(i))
			}
		}
	}
}

// TestWeakFilterKeepsIOUringOut: its requests pass no filter, so a policy
// cannot open it in this tier.
func TestWeakFilterKeepsIOUringOut(t *testing.T) {
	s := FilterSpec{Allow: []policy.Name{{Text: "io_uring_setup"}}}
	if problems := FilterProblems(s); len(problems) > 0 {
		return // no tier opens it
	}
	for _, tier := range []Tier{TierOffline, TierProxied} {
		s.Tier = tier
		if ok, why := FilterVerdict(s, "io_uring_setup"); ok {
			t.Errorf("tier %q: got allowed (%s), want refused", tier, why)
		}
	}
}

func TestLackOf(t *testing.T) {
	refused := func(step string, no unix.Errno) probeResult { return newProbeResult(step, fmt.Errorf("try: %w", no)) }
	done := func(steps ...string) (out []probeResult) {
		for _, s := range steps {
			out = append(out, probeResult{Step: s})
		}
		return out
	}
	all := done(probeClone, probeMap, probeLoopback, probeTproxy, probeMount, probeProc, probeNested, probeOverlay)
	cases := []struct {
		name    string
		results []probeResult
		want    string
	}{
		{"nothing is missing", all, ""},
		{"nothing was tried", nil, ""},
		{"the limit is used up", []probeResult{refused(probeClone, unix.ENOSPC)}, "user namespace"},
		{"a container's filter", []probeResult{refused(probeClone, unix.EPERM)}, "user namespace"},
		{"AppArmor at the maps", append(done(probeClone), refused(probeMap, unix.EACCES)), "id map"},
		{"AppArmor at the loopback", append(done(probeClone, probeMap), refused(probeLoopback, unix.EPERM)), "loopback inside"},
		{"a masked /proc", append(done(probeClone, probeMap, probeLoopback, probeMount), refused(probeProc, unix.EPERM)), "fresh /proc"},
		{"only TPROXY", append(done(probeClone, probeMap, probeLoopback, probeMount, probeProc, probeNested), refused(probeTproxy, unix.EPERM)), ""},
		{"out of memory is no refusal", []probeResult{refused(probeClone, unix.ENOMEM)}, ""},
		{"out of processes is no refusal", []probeResult{refused(probeClone, unix.EAGAIN)}, ""},
	}
	for _, c := range cases {
		got := ""
		if f := lackOf(c.results, machine{}); f != nil {
			got = f.Feature
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestParseParent(t *testing.T) {
	cases := []struct {
		name, stat string
		want       int
		ok         bool
	}{
		{"plain", "12 (sh) S 7 12 12 0", 7, true},
		{"a name with parentheses and spaces", "12 (a) S 1 (b) R 9 12", 9, true},
		{"empty", "", 0, false},
		{"cut off", "12 (sh) S", 0, false},
		{"not a number", "12 (sh) S x 1", 0, false},
	}
	for _, c := range cases {
		got, err := parseParent([]byte(c.stat))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: got %d, %v, want %d, ok %v", c.name, got, err, c.want, c.ok)
		}
	}
}

func TestDescendants(t *testing.T) {
	children := map[int][]int{1: {2, 3, 9}, 2: {4}, 4: {5}, 9: {10}}
	if got := descendants(children, 1, []int{9}); !slices.Equal(got, []int{2, 4, 5, 3}) {
		t.Errorf("got %v, want all but the spared child and its own", got)
	}
}

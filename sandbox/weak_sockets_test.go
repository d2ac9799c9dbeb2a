package sandbox

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func socketsPolicy(work string) policy.Policy {
	p := weakPolicy(work)
	p.Require.MayDegrade = append(p.Require.MayDegrade, policy.LayerSockets)
	p.Network.Rules = []policy.Rule{{Name: "one", Host: "example.org"}}
	return p
}

// TestWeakFilterSockets: the consent opens local sockets and listening, and
// nothing else of what this tier refuses.
func TestWeakFilterSockets(t *testing.T) {
	sock := func(family, typ, proto uint64) [6]uint64 { return [6]uint64{family, typ, proto} }
	cases := []struct {
		name         string
		nr           uint32
		args         [6]uint64
		offline, net bool
	}{
		{"local stream", unix.SYS_SOCKET, sock(unix.AF_UNIX, unix.SOCK_STREAM, 0), true, true},
		{"local datagram", unix.SYS_SOCKET, sock(unix.AF_UNIX, unix.SOCK_DGRAM, 0), true, true},
		{"datagram pair", unix.SYS_SOCKETPAIR, sock(unix.AF_UNIX, unix.SOCK_DGRAM, 0), true, true},
		{"listen", unix.SYS_LISTEN, [6]uint64{3, 1}, true, true},
		{"TCP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_STREAM, 0), false, true},
		{"UDP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_DGRAM, 0), false, false},
		{"MPTCP", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), false, false},
		{"raw", unix.SYS_SOCKET, sock(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP), false, false},
		{"vsock", unix.SYS_SOCKET, sock(unix.AF_VSOCK, unix.SOCK_STREAM, 0), false, false},
		{"TCP pair", unix.SYS_SOCKETPAIR, sock(unix.AF_INET, unix.SOCK_STREAM, 0), false, false},
		{"fast open", unix.SYS_SENDTO, [6]uint64{3, 0, 1, unix.MSG_FASTOPEN}, false, false},
		{"shared memory by id", unix.SYS_SHMAT, [6]uint64{}, false, false},
		{"another's limits", unix.SYS_PRLIMIT64, [6]uint64{1234, 7}, false, false},
	}
	audit, err := filterAudit(filterNative)
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range []Tier{TierOffline, TierProxied} {
		raw, err := CompileFilter(FilterSpec{Tier: tier, Sockets: true})
		if err != nil {
			t.Fatal(err)
		}
		prog, err := filterDecode(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			want := map[Tier]bool{TierOffline: c.offline, TierProxied: c.net}[tier]
			r, err := filterRun(prog, filterData{nr: c.nr, arch: audit, args: c.args})
			if err != nil || r.allowed() != want {
				t.Errorf("tier %q, %s: got allowed %v, %v, want %v", tier, c.name, r.allowed(), err, want)
			}
		}
		if ok, why := FilterVerdict(FilterSpec{Tier: tier, Sockets: true}, "listen"); !ok {
			t.Errorf("tier %q: listen: got refused (%s), want allowed", tier, why)
		}
	}
}

// TestWeakSocketsByABI: what the first line says follows what Landlock holds.
func TestWeakSocketsByABI(t *testing.T) {
	work := t.TempDir()
	agent := HostSocket{Path: "/run/agent", What: "an SSH agent"}
	engine := HostSocket{Path: "/run/docker.sock", What: "a container engine", Starts: true}
	for _, c := range []struct {
		abi         int
		words, lack string
		sockets     []HostSocket
		runs        bool // in /dev/shm
	}{
		{4, "EVERY one outside that your user can open is reached (an SSH agent at /run/agent), abstract ones too; /dev/shm is the host's own; servers inside listen on the machine's own addresses", "", []HostSocket{agent}, false},
		{7, "EVERY one outside that your user can open is reached (of the well-known ones none was found); /dev/shm is the host's own; servers", "", nil, false},
		{7, "", `keeping away from a container engine at "/run/docker.sock"`, []HostSocket{agent, engine}, false},
		{9, "those made inside, and outside those that filesystem.sockets lists; /dev/shm is the host's own; servers", "", []HostSocket{agent, engine}, false},
		{9, "those made inside, and outside those that filesystem.sockets lists; servers", "", []HostSocket{agent, engine}, true},
	} {
		h := weakHost(work)
		h.Abi, h.Sockets, h.RunsInShm = c.abi, c.sockets, c.runs
		plan, err := Compile(socketsPolicy(work), h, []string{"sh"})
		if c.lack != "" {
			var lack *LackError
			if !errors.As(err, &lack) || !strings.Contains(err.Error(), c.lack) || !strings.Contains(lack.Hint, "do not mount it") {
				t.Errorf("ABI %d: got %v, want a lack of %q with a remedy", c.abi, err, c.lack)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		layers := plan.Layers()
		last := layers[len(layers)-1]
		if s := plan.Summary(); !strings.Contains(s, c.words) || !strings.Contains(last.Mechanism, c.words) || last.Name != policy.LayerSockets || last.Enforced != (c.abi >= 9) {
			t.Errorf("ABI %d: got %q and %+v, want both to say %q", c.abi, s, last, c.words)
		}
		if !plan.Filter.Sockets || !slices.ContainsFunc(plan.Degraded, func(d Degradation) bool { return d.Layer == policy.LayerSockets }) {
			t.Errorf("ABI %d: got filter %+v and %+v, want open sockets and that recorded", c.abi, plan.Filter, plan.Degraded)
		}
	}
}

// TestSocketsNeedTheTier: with namespaces the consent changes nothing.
func TestSocketsNeedTheTier(t *testing.T) {
	work := t.TempDir()
	h := weakHost(work)
	h.NoNamespaces, h.Tproxy = nil, true
	plan, err := Compile(socketsPolicy(work), h, []string{"sh"})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Filter.Sockets || len(plan.Degraded) > 0 {
		t.Errorf("got filter %+v and %v, want the full tier as it is", plan.Filter, plan.Degraded)
	}
}

// TestHiddenSocket: one that the policy hides by name stops the launch; one that
// merely lies in a granted tree is named.
func TestHiddenSocket(t *testing.T) {
	work := t.TempDir()
	path := filepath.Join(work, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, h := socketsPolicy(work), weakHost(work)
	h.Abi = 7
	plan, err := Compile(p, h, []string{"sh"})
	if err != nil || !strings.Contains(plan.Summary(), path) {
		t.Errorf("got %q, %v, want it to name %q", plan.Summary(), err, path)
	}
	p.Filesystem.Hide = []policy.Path{{Abs: path}}
	if _, err := Compile(p, h, []string{"sh"}); err == nil || !strings.Contains(err.Error(), "hiding the socket") {
		t.Errorf("got %v, want it to stop", err)
	}
}

func TestDomainConfig(t *testing.T) {
	for _, c := range []struct {
		d          domain
		abi        int
		unix, bind bool
	}{
		{domain{tcp: []uint16{}}, 9, false, true},
		{domain{tcp: []uint16{}, bind: true}, 9, false, false},
		{domain{unix: true}, 9, true, false},
		{domain{unix: true}, 8, false, false},
	} {
		got := c.d.config(c.abi)
		if (got.HandledAccessFS&ll.AccessFSResolveUnix != 0) != c.unix || (got.HandledAccessNet&ll.AccessNetBindTCP != 0) != c.bind {
			t.Errorf("%+v, ABI %d: got %+v, want unix %v, bind %v", c.d, c.abi, got, c.unix, c.bind)
		}
	}
}

func TestFindSockets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bus", "agent", "engine.sock"} {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	found := FindSockets([]string{
		"XDG_RUNTIME_DIR=" + dir, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + dir + "/bus,guid=1", "DOCKER_HOST=unix://" + dir + "/engine.sock",
		"SSH_AUTH_SOCK=" + dir + "/agent", "GPG_AGENT_INFO=" + dir + "/gone:1:1", "CONTAINER_HOST=ssh://example.org/" + dir,
	})
	var got []string
	for _, s := range found {
		if within(s.Path, dir) {
			got = append(got, s.What+" "+filepath.Base(s.Path))
		}
	}
	if want := []string{"a container engine engine.sock", "the session bus bus", "an SSH agent agent"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

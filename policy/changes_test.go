package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func changesBase() Policy {
	return Policy{
		Version: 1, Name: "p",
		Filesystem: Filesystem{Read: []Path{{Text: "~/a", Abs: "/home/u/a", Pos: Pos{"p.yaml", 3, 1}}}},
		Network: Network{
			Rules: []Rule{{Name: "api", Host: "api.example.org", Pos: Pos{"p.yaml", 7, 1}}},
			Hosts: map[string][]string{"a.example.org": {"192.0.2.1"}},
		},
		Credentials: map[string]Credential{"key": {Attach: "bearer", Hosts: []Name{{Text: "api.example.org"}}, Expose: CredentialExposure{Env: "KEY"}}},
		Audit:       Audit{File: Path{Text: "/a", Abs: "/a"}},
	}
}

func TestChanges(t *testing.T) {
	cases := []struct {
		name   string
		change func(p *Policy)
		want   []string
		live   bool
	}{
		{"nothing", func(*Policy) {}, nil, true},
		{"only lines", func(p *Policy) {
			p.Filesystem.Read[0].Pos.Line++
			p.Network.Rules[0].Pos = Pos{"q.yaml", 1, 1}
			p.Filesystem.Read[0].Text = "/home/u/a"
		}, nil, true},
		{"an empty list and none", func(p *Policy) { p.Network.Deny = []HostRule{} }, nil, true},
		{"a rule", func(p *Policy) { p.Network.Rules[0].Host = "b.example.org" }, []string{"network.rules"}, true},
		{"a rule more", func(p *Policy) { p.Network.Rules = append(p.Network.Rules, Rule{Name: "x"}) }, []string{"network.rules"}, true},
		{"deny", func(p *Policy) { p.Network.Deny = []HostRule{{Host: "x"}} }, []string{"network.deny"}, true},
		{"private", func(p *Policy) { p.Network.Private = []PrivateRange{{CIDR: "10.0.0.0/8"}} }, []string{"network.private"}, true},
		{"a pinned address", func(p *Policy) { p.Network.Hosts["a.example.org"] = []string{"192.0.2.2"} }, []string{"network.hosts"}, true},
		{"upstream", func(p *Policy) { p.Network.Upstream.Proxy = "env" }, []string{"network.upstream"}, true},
		{"the traffic budget", func(p *Policy) { p.Network.Budget.Hosts = 3 }, []string{"network.budget"}, true},
		{"inference", func(p *Policy) { p.Inference.Budget.Tokens = 3 }, []string{"inference.budget"}, true},
		{"a credential's hosts", func(p *Policy) {
			c := p.Credentials["key"]
			c.Hosts = []Name{{Text: "b.example.org"}}
			p.Credentials["key"] = c
		}, []string{"credentials.key.hosts"}, true},
		{"a credential without a placeholder", func(p *Policy) {
			p.Credentials["other"] = Credential{Attach: "basic", Source: CredentialSource{Env: "X"}}
		}, []string{"credentials.other.attach", "credentials.other.source"}, true},
		{"a credential less", func(p *Policy) { p.Credentials = nil }, []string{"credentials.key"}, true},
		{"a new placeholder", func(p *Policy) {
			p.Credentials["other"] = Credential{Expose: CredentialExposure{Env: "X"}}
		}, []string{"credentials.other.expose"}, false},
		{"ca", func(p *Policy) { p.Network.CA = []Path{{Abs: "/x"}} }, []string{"network.ca"}, false},
		{"publish", func(p *Policy) { p.Network.Publish = []Publish{{Listen: "1:2"}} }, []string{"network.publish"}, false},
		{"filesystem", func(p *Policy) { p.Filesystem.Read = nil }, []string{"filesystem.read"}, false},
		{"workspace", func(p *Policy) { p.Workspace.Access = AccessWrite }, []string{"workspace.access"}, false},
		{"env", func(p *Policy) { p.Env.Set = map[string]string{"A": "b"} }, []string{"env.set"}, false},
		{"process", func(p *Policy) { p.Process.Ptrace = true }, []string{"process.ptrace"}, false},
		{"syscalls", func(p *Policy) { p.Syscalls.Deny = []Name{{Text: "bpf"}} }, []string{"syscalls.deny"}, false},
		{"limits", func(p *Policy) { p.Limits.Connections = 4 }, []string{"limits.connections"}, false},
		{"require", func(p *Policy) { p.Require.LandlockABI = 4 }, []string{"require.landlock_abi"}, false},
		{"the audit file", func(p *Policy) { p.Audit.File.Abs = "/b" }, []string{"audit.file"}, false},
		{"metrics", func(p *Policy) { p.Metrics.Socket.Abs = "/b" }, []string{"metrics.socket"}, false},
		{"name", func(p *Policy) { p.Name = "q" }, []string{"name"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			now := changesBase()
			c.change(&now)
			got := Changes(changesBase(), now)
			if !slices.Equal(got, c.want) {
				t.Errorf("changes: got %q, want %q", got, c.want)
			}
			if live := !slices.ContainsFunc(got, func(key string) bool { return !Live(key) }); live != c.live {
				t.Errorf("live: got %v, want %v", live, c.live)
			}
		})
	}
}

// A key that a later version of the policy adds is fixed at launch until
// somebody says otherwise.
func TestKeysAreStaticByDefault(t *testing.T) {
	var static []string
	note := func(path string, _, _ reflect.Value) {
		if !Live(path) {
			static = append(static, path)
		}
	}
	var p Policy
	eachKey(reflect.ValueOf(p), reflect.ValueOf(p), "", func(path string, a, b reflect.Value) {
		section, _, _ := strings.Cut(path, ".")
		if section == "network" || section == "inference" || section == path && path != "credentials" {
			note(path, a, b)
		} else if path != "credentials" && Live(path) {
			t.Errorf("%s: got live, want it fixed at launch", path)
		}
	})
	eachKey(reflect.ValueOf(Credential{}), reflect.ValueOf(Credential{}), "credentials.x.", note)
	slices.Sort(static)
	want := []string{"credentials.x.expose", "name", "network.ca", "network.docker", "network.publish", "state"}
	if !slices.Equal(static, want) {
		t.Errorf("static: got %q, want %q", static, want)
	}
	for _, key := range []string{"network.new", "inference.new", "new", "new.x", "credentials", "credentials."} {
		if Live(key) {
			t.Errorf("%s: got live, want it fixed at launch", key)
		}
	}
	for _, key := range []string{"credentials.x", "credentials.example.org", "credentials.example.org.source"} {
		if !Live(key) {
			t.Errorf("%s: got fixed at launch, want live", key)
		}
	}
}

package policy

import (
	"os"
	"strings"
	"testing"
)

// underFloor applies a floor's text to a loaded policy, whoever runs the test.
func (w world) underFloor(p Policy, text string) (Policy, Problems) {
	w.t.Helper()
	l := decodeFile("floor.yaml", "floor.yaml", []byte("version: 1\n"+text+"\n"))
	expander{vars: p.Vars}.layer(l)
	if len(l.problems) > 0 {
		w.t.Fatalf("floor: %v", l.problems)
	}
	return applyFloor(p, l)
}

func TestFloorApplies(t *testing.T) {
	tests := []struct {
		name, text string
		check      func(Policy) bool
	}{
		{"limit is capped", `limits: {memory: 1G}`, func(p Policy) bool {
			return p.Limits.Memory == 1<<30 && p.Where["limits.memory"].File == "floor.yaml"
		}},
		{"lower limit stays", `limits: {memory: 64G}`, func(p Policy) bool {
			return p.Limits.Memory == 4<<30 && p.Where["limits.memory"].File == "builtin:strict"
		}},
		{"missing limit is set", `limits: {time: 1h}`, func(p Policy) bool { return p.Limits.Time != 0 }},
		{"hide is added", `filesystem: {hide: ["~/.aws"]}`, func(p Policy) bool { return len(p.Filesystem.Hide) == 1 }},
		{"deny is added", `network: {deny: [{host: x.org}]}`, func(p Policy) bool { return len(p.Network.Deny) == 2 }},
		{"record is fixed", `audit: {file: /var/log/hw.jsonl, required: true}`, func(p Policy) bool {
			return p.Audit.Required && p.Audit.File.Abs == "/var/log/hw.jsonl"
		}},
		{"value is forced", `env: {set: {A: b}}`, func(p Policy) bool { return p.Env.Set["A"] == "b" }},
		{"ABI is raised", `require: {landlock_abi: 5}`, func(p Policy) bool { return p.Require.LandlockABI == 5 }},
		{"grants are no grants", `filesystem: {read: [/usr, /opt, "${WORKSPACE}"]}`, func(p Policy) bool { return len(p.Filesystem.Read) == 1 }},
		{"wider rules", `network: {rules: [{name: all, host: "**.example.org"}]}`, func(p Policy) bool { return len(p.Network.Rules) == 2 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			p, ps := w.underFloor(w.mustLoad("version: 1\n"), tt.text)
			if len(ps) > 0 || !tt.check(p) {
				t.Errorf("got %v, %s, want the floor's value", ps, p.JSON())
			}
		})
	}
}

func TestFloorRefuses(t *testing.T) {
	tests := []struct{ name, floor, policy, want string }{
		{"read", `filesystem: {read: [/usr, "${WORKSPACE}"]}`, `filesystem: {read: [/opt]}`, `p.yaml:2:21: filesystem.read: "/opt" is outside`},
		{"read through write", `filesystem: {read: [/usr, "${WORKSPACE}"]}`, `filesystem: {write: [/opt]}`, `"/opt" is outside`},
		{"workspace", `filesystem: {read: [/usr]}`, ``, `"." is outside`},
		{"parent", `filesystem: {read: [/usr/lib, /usr/bin, "${WORKSPACE}"]}`, ``, `"/usr" is outside`},
		{"link", `filesystem: {read: [/usr, "${WORKSPACE}"]}`, `filesystem: {read: ["${WORKSPACE}/out"]}`, `"${WORKSPACE}/out" is outside`},
		{"pattern", `filesystem: {read: [/usr, "${WORKSPACE}"]}`, `filesystem: {read: ["/usr/*"]}`, `"/usr/*" is outside`},
		{"write", `filesystem: {write: ["${WORKSPACE}"]}`, `filesystem: {write: [/opt]}`, `filesystem.write: "/opt" is outside`},
		{"exec", `filesystem: {exec: [/usr]}`, `workspace: {exec: true}`, `filesystem.exec: "." is outside`},
		{"access", `workspace: {access: read}`, ``, `workspace.access: write is more than the floor's read`},
		{"switch", `process: {ptrace: false}`, `process: {ptrace: true}`, `p.yaml:2:19: process.ptrace: true is more than the floor's false`},
		{"degrade", `require: {may_degrade: [memory]}`, `require: {may_degrade: [memory, landlock]}`, `the floor requires "landlock"`},
		{"env", `env: {allow: ["LC_*", LANG]}`, `env: {allow: [LC_ALL, "LC_*", "L*"]}`, `"L*" is outside`},
		{"call", `syscalls: {allow: []}`, `syscalls: {allow: [bpf]}`, `"bpf" is outside`},
		{"host", `network: {rules: [{name: a, host: "*.example.org"}]}`, `network: {rules: [{name: x, host: a.b.example.org}]}`, `the rule "x" allows more`},
		{"apex", `network: {rules: [{name: a, host: "**.example.org"}]}`, `network: {rules: [{name: x, host: example.org}]}`, `the rule "x" allows more`},
		{"any", `network: {rules: [{name: a, host: "**.example.org"}]}`, `network: {rules: [{name: x, any: true}]}`, `the rule "x" allows more`},
		{"port", `network: {rules: [{name: a, any: true}]}`, `network: {rules: [{name: x, host: x.org, ports: [8443]}]}`, `the rule "x" allows more`},
		{"tcp", `network: {rules: [{name: a, any: true}]}`, `network: {rules: [{name: x, host: x.org, ports: [443], protocol: tcp}]}`, `the rule "x" allows more`},
		{"no rule", `network: {rules: [{name: a, host: docs.example.org}]}`, ``, `the rule "pinned" allows more`},
		{"methods", `network: {rules: [{name: a, host: docs.example.org, access: read-only}, {name: b, host: pinned.example.org}]}`, `network: {rules: [{name: x, host: docs.example.org}]}`, `the rule "x" allows more`},
		{"private", `network: {private: [{cidr: 10.1.0.0/16, ports: [80], reason: x}]}`, `network: {private: [{cidr: 10.1.2.0/24, reason: x}]}`, `"10.1.2.0/24" is outside`},
		{"docker", `network: {docker: {images: []}}`, `network: {docker: {images: ["python:3"]}}`, `python:3`},
		{"docker's memory", `network: {docker: {images: ["python:3"]}}`, `network: {docker: {images: ["python:3"], memory: 3G}}`, `is more than the floor allows`},
		{"publish", `network: {publish: []}`, `network: {publish: ["8080:80"]}`, `does not allow "8080" to be published`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			symlink(t, "/etc", w.work+"/out")
			_, ps := w.underFloor(w.mustLoad("version: 1\n"+tt.policy+"\n"), tt.floor)
			if len(ps) != 1 || !strings.Contains(ps[0].Error(), tt.want) {
				t.Errorf("got %v, want %q", ps, tt.want)
			}
		})
	}
}

func TestCoversName(t *testing.T) {
	tests := []struct {
		floor, name string
		want        bool
	}{
		{"A", "A", true},
		{"A", "AB", false},
		{"A*", "A", true},
		{"A*", "ABC", true},
		{"A*", "A*", true},
		{"A*", "A*B", true},
		{"A*B", "A*", false},
		{"A*B", "AxB", true},
		{"A*B", "A*B", true},
		{"A*B*", "AB*", true},
		{"AB*", "A*", false},
	}
	for _, tt := range tests {
		if got := coversName(tt.floor, tt.name); got != tt.want {
			t.Errorf("coversName(%q, %q): got %v, want %v", tt.floor, tt.name, got, tt.want)
		}
	}
}

// Run as root, the whole way: a floor in a file.
func TestFloorFile(t *testing.T) {
	w := newWorld(t)
	o := w.opts
	o.FloorPath = w.write("floor.yaml", "version: 1\nlimits: {pids: 7}\n")
	p, err := Load(o)
	if os.Getuid() != 0 {
		if err == nil || !strings.Contains(err.Error(), "belongs to user") {
			t.Errorf("got %v, want a refusal", err)
		}
		return
	}
	if err != nil || p.Limits.Pids != 7 {
		t.Errorf("got %v and %v, want 7", err, p.Limits.Pids)
	}
}

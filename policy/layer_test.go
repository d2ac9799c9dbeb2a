package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withProject loads the base with a project's file.
func (w world) withProject(text string) (Policy, error) {
	w.t.Helper()
	w.write("work/.hermes-wrap.yaml", "version: 1\n"+text+"\n")
	return Load(w.opts)
}

func TestProjectTightens(t *testing.T) {
	tests := []struct {
		name, text string
		check      func(Policy) bool
	}{
		{"hide", `filesystem: {hide: ["${WORKSPACE}/.env"]}`, func(p Policy) bool { return len(p.Filesystem.Hide) == 1 }},
		{"access", `workspace: {access: read}`, func(p Policy) bool { return p.Workspace.Access == AccessRead }},
		{"lower limit", `limits: {memory: 1G}`, func(p Policy) bool { return p.Limits.Memory == 1<<30 }},
		{"new limit", `limits: {time: 1h}`, func(p Policy) bool { return p.Limits.Time != 0 }},
		{"read nothing", `filesystem: {read: []}`, func(p Policy) bool { return len(p.Filesystem.Read) == 0 }},
		{"deny a host", `network: {deny: [{host: docs.example.org}]}`, func(p Policy) bool { return len(p.Network.Deny) == 2 }},
		{"remove a rule", `network: {remove: [docs]}`, func(p Policy) bool { return len(p.Network.Rules) == 1 }},
		{"deny a call", `syscalls: {deny: [ptrace]}`, func(p Policy) bool { return len(p.Syscalls.Deny) == 1 }},
		{"no home", `filesystem: {home: none}`, func(p Policy) bool { return p.Filesystem.Home == "none" }},
		{"its name is not taken over", `name: evil`, func(p Policy) bool { return p.Name == "strict" }},
		{"audit required", `audit: {required: true}`, func(p Policy) bool { return p.Audit.Required }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := newWorld(t).withProject(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(p) {
				t.Errorf("got %s, want the project's value", p.JSON())
			}
		})
	}
}

// F23: the file that came with the project cannot open anything.
func TestProjectRefused(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"read", "filesystem:\n  read:\n    - /etc", ":4:7: filesystem.read[0]: grants"},
		{"write", `filesystem: {write: [/opt]}`, "filesystem.write[0]: grants"},
		{"exec", `filesystem: {exec: ["${WORKSPACE}"]}`, "filesystem.exec[0]: grants"},
		{"socket", `filesystem: {sockets: [/run/docker.sock]}`, "grants"},
		{"second of two", "filesystem: {read: [/opt,\n  /srv]}", ":3:3: filesystem.read[1]: grants"},
		{"workspace exec", `workspace: {exec: true}`, "workspace.exec: raises false to true"},
		{"workspace path", `workspace: {path: /srv}`, "has no meaning in this file"},
		{"extends", `extends: []`, "has no meaning in this file"},
		{"home", `filesystem: {home: persistent}`, "raises private to persistent"},
		{"limit", `limits: {memory: 8G}`, "raises the limit"},
		{"no limit", `limits: {pids: 0}`, "raises the limit"},
		{"tmpfs", `filesystem: {tmp_size: 1T}`, "raises the limit"},
		{"rule", `network: {rules: [{name: x, host: x.org}]}`, "network.rules[0]: grants"},
		{"private", `network: {private: [{cidr: 10.0.0.0/8, reason: x}]}`, "grants"},
		{"CA", `network: {ca: ["${WORKSPACE}/ca.pem"]}`, "grants"},
		{"pinned name", `network: {hosts: {docs.example.org: [203.0.113.9]}}`, "changes what the policy fixes"},
		{"docker", `network: {docker: {images: ["python:3"]}}`, "grants"},
		{"docker's socket", `network: {docker: {socket: /run/other.sock}}`, "fixes"},
		{"publish", `network: {publish: ["8080:80"]}`, "grants"},
		{"clear denials", `network: {deny: []}`, "cannot drop inherited denials"},
		{"env", `env: {allow: [AWS_SECRET_ACCESS_KEY]}`, "grants"},
		{"env secret", `env: {secret: [TOKEN]}`, "grants"},
		{"env value", `env: {set: {PATH: /tmp}}`, "changes what the policy fixes"},
		{"call", `syscalls: {allow: ["@mount"]}`, "grants"},
		{"user namespaces", `process: {user_namespaces: true}`, "raises false to true"},
		{"uid", `process: {uid: root}`, "changes what the policy fixes"},
		{"umask", `process: {umask: "0000"}`, "changes what the policy fixes"},
		{"grace", `process: {stop_grace: 24h}`, "raises"},
		{"degrade", `require: {may_degrade: [landlock]}`, "grants"},
		{"audit file", `audit: {file: /dev/null}`, "changes what the policy fixes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newWorld(t).withProject(tt.text)
			if err == nil || !strings.Contains(err.Error(), ".hermes-wrap.yaml:") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A rule's denials hold against all rules; removing it would open others.
func TestProjectKeepsDenials(t *testing.T) {
	w := newWorld(t)
	w.write("conf/strict.yaml", "version: 1\nnetwork:\n  rules:\n    - {name: all, any: true, access: full}\n    - {name: guard, host: a.org, deny: [{paths: [/admin/**]}]}\n")
	if _, err := w.withProject("network: {remove: [guard]}"); err == nil || !strings.Contains(err.Error(), `drops the rule "guard"`) {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := w.withProject("network: {remove: [all]}"); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

func TestProjectFileLink(t *testing.T) {
	w := newWorld(t)
	symlink(t, w.write("secret", "version: 1\n"), w.work+"/.hermes-wrap.yaml")
	if _, err := Load(w.opts); err == nil || !strings.Contains(err.Error(), "is a symlink") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestFlags(t *testing.T) {
	w := newWorld(t)
	o := w.opts
	o.Flags = Flags{
		Read: []string{"sub", "/opt/x", "../lib"}, Env: []string{"TERM", "A=b=c", "E="},
		Publish: []string{"8080:80"}, AllowHost: []string{"a.org", "*.b.org:8443", "[2001:db8::1]:443"},
	}
	p, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr", w.work + "/sub", "/opt/x", w.home + "/lib"}, texts(p.Filesystem.Read)); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"A": "b=c", "E": ""}, p.Env.Set); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if got, want := p.Filesystem.Read[1].Pos.String(), "flag --read"; got != want {
		t.Errorf("pos: got %v, want %v", got, want)
	}
	last := p.Network.Rules[len(p.Network.Rules)-1]
	if last.Host != "2001:db8::1" || !slices.Equal(last.Ports, []int{443}) {
		t.Errorf("host: got %+v", last)
	}
	o.Flags = Flags{Read: []string{"~root/x", "*.x["}, AllowHost: []string{"https://A.org", "*"}, Env: []string{"1=2"}, Publish: []string{"x"}}
	if _, err := Load(o); err == nil || strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("got %v, want six problems", err)
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

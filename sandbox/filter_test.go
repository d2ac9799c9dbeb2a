package sandbox

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hermes-wrap/hermes-wrap/policy"
	moby "github.com/moby/profiles/seccomp"
	libseccomp "github.com/seccomp/libseccomp-golang"
)

// filterTestNames makes names as a policy would have them.
func filterTestNames(texts ...string) []policy.Name {
	var names []policy.Name
	for i, text := range texts {
		names = append(names, policy.Name{Text: text, Pos: policy.Pos{File: "p.yaml", Line: i + 1, Col: 3}})
	}
	return names
}

// syscallNames lists every call of the table.
func syscallNames() []string {
	var names []string
	for _, s := range syscallSets() {
		names = append(names, s.names()...)
	}
	return names
}

func TestSyscallTableIsComplete(t *testing.T) {
	seen := map[string]string{}
	for _, set := range syscallSets() {
		if set.why == "" || !strings.HasPrefix(set.name, "@") || set.name == syscallBase {
			t.Errorf("set %q needs a name with @ and a reason", set.name)
		}
		for _, call := range set.names() {
			if other, twice := seen[call]; twice {
				t.Errorf("%s is in %s and in %s", call, other, set.name)
			}
			seen[call] = set.name
		}
	}
	for _, arch := range filterArches {
		scmp, err := filterScmpArch(arch)
		if err != nil {
			t.Fatal(err)
		}
		for nr := range libseccomp.ScmpSyscall(600) {
			name, err := nr.GetNameByArch(scmp)
			if err != nil {
				continue
			}
			if seen[name] == "" {
				t.Errorf("%s call %d, %s, is in no set", arch, nr, name)
			}
		}
	}
	late := syscallLate()
	for name, nr := range late {
		if seen[name] == "" {
			t.Errorf("%s is in no set", name)
		}
		if nr < syscallFirstLate {
			t.Errorf("%s is number %d, want at least %d", name, nr, syscallFirstLate)
		}
	}
}

func TestBaseIsDockersList(t *testing.T) {
	docker := filterDocker()
	var ours []string
	for _, set := range syscallSets() {
		if set.base {
			ours = append(ours, set.names()...)
		}
	}
	var wider, narrower []string
	for _, call := range ours {
		if !slices.Contains(docker, call) {
			wider = append(wider, call)
		}
	}
	for _, call := range docker {
		if _, known := syscallSetOf(call); known && !slices.Contains(ours, call) {
			narrower = append(narrower, call)
		}
	}
	slices.Sort(wider)
	slices.Sort(narrower)
	// file_*attr and rseq_slice_yield are newer than Docker's list; uprobe is
	// the twin of uretprobe, which is in it.
	wantWider := []string{"file_getattr", "file_setattr", "rseq_slice_yield", "uprobe"}
	if diff := cmp.Diff(wantWider, wider); diff != "" {
		t.Errorf("calls of the base that Docker refuses (-want +got):\n%s", diff)
	}
	wantNarrower := []string{
		"adjtimex", "clock_adjtime", "epoll_ctl_old", "epoll_wait_old", "fanotify_mark", "memfd_secret",
		"modify_ldt", "name_to_handle_at", "process_vm_readv", "process_vm_writev", "ptrace",
	}
	if diff := cmp.Diff(wantNarrower, narrower); diff != "" {
		t.Errorf("calls that Docker allows and the base refuses (-want +got):\n%s", diff)
	}
}

// filterDocker lists what Docker's default allows without capabilities.
func filterDocker() []string {
	var calls []string
	for _, rule := range moby.DefaultProfile().Syscalls {
		if rule.Action != "SCMP_ACT_ALLOW" {
			continue
		}
		if in := rule.Includes; in != nil {
			if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, "amd64") {
				continue
			}
		}
		calls = append(calls, rule.Names...)
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

func TestFilterAllowAndDeny(t *testing.T) {
	tests := []struct {
		name string
		spec FilterSpec
		call string
		want string
	}{
		{"refused by default", FilterSpec{}, "keyctl", "EPERM"},
		{"opened by name", FilterSpec{Allow: filterTestNames("keyctl")}, "keyctl", "allow"},
		{"opened by set", FilterSpec{Allow: filterTestNames("@keyring")}, "add_key", "allow"},
		{"an opening opens nothing else", FilterSpec{Allow: filterTestNames("keyctl")}, "add_key", "EPERM"},
		{"deny wins over allow", FilterSpec{Allow: filterTestNames("keyctl"), Deny: filterTestNames("@keyring")}, "keyctl", "EPERM"},
		{"deny wins over the base", FilterSpec{Deny: filterTestNames("@ipc")}, "shmget", "EPERM"},
		{"deny wins over the switch", FilterSpec{Ptrace: true, Deny: filterTestNames("ptrace")}, "ptrace", "EPERM"},
		{"deny of a checked call", FilterSpec{Deny: filterTestNames("ioctl")}, "ioctl", "EPERM"},
		{"deny of a late call", FilterSpec{Deny: filterTestNames("mseal")}, "mseal", "EPERM"},
		{"allow of a late call", FilterSpec{Allow: filterTestNames("@listns")}, "listns", "allow"},
		{"io_uring", FilterSpec{}, "io_uring_setup", "ENOSYS"},
		{"io_uring opened", FilterSpec{Allow: filterTestNames("@io_uring")}, "io_uring_setup", "allow"},
		{"ptrace switch", FilterSpec{Ptrace: true}, "ptrace", "allow"},
		{"no ptrace", FilterSpec{}, "ptrace", "EPERM"},
		{"allow does not lift a check", FilterSpec{Allow: filterTestNames("socket")}, "socket", "EAFNOSUPPORT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := simFilter(t, runtime.GOARCH, tt.spec)(tt.call); got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.call, got, tt.want)
			}
		})
	}
}

func TestFilterProblems(t *testing.T) {
	tests := []struct {
		name       string
		spec       FilterSpec
		want, hint string
		compiles   bool
	}{
		{
			"unknown call",
			FilterSpec{Allow: filterTestNames("keyctrl")},
			`p.yaml:1:3: syscalls.allow[0]: unknown system call "keyctrl"`, `did you mean "keyctl"?`, false,
		},
		{
			"unknown set",
			FilterSpec{Deny: filterTestNames("@networks")},
			`p.yaml:1:3: syscalls.deny[0]: unknown set of system calls "@networks"`, `did you mean "@network"?`, false,
		},
		{
			"nothing near",
			FilterSpec{Allow: filterTestNames("frobnicate_the_kernel")},
			`p.yaml:1:3: syscalls.allow[0]: unknown system call "frobnicate_the_kernel"`, `names are those of syscalls(2) and the sets in docs/policy-reference.md: "@mount"`, false,
		},
		{
			"empty",
			FilterSpec{Allow: filterTestNames("")},
			`p.yaml:1:3: syscalls.allow[0]: unknown system call ""`, `names are those of syscalls(2) and the sets in docs/policy-reference.md: "@mount"`, false,
		},
		{
			"clone3",
			FilterSpec{Allow: filterTestNames("clone3")},
			`p.yaml:1:3: syscalls.allow[0]: "clone3" cannot be allowed: its flags lie in memory, where no filter can check them; every libc falls back to clone on ENOSYS`, "", false,
		},
		{
			"essential call",
			FilterSpec{Deny: filterTestNames("@process")},
			`p.yaml:1:3: syscalls.deny[0]: refusing "execve" means that no command can start`, "", true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FilterProblems(tt.spec)
			if len(got) != 1 {
				t.Fatalf("got %v, want one problem", got)
			}
			if got[0].Error() != tt.want || got[0].Hint != tt.hint {
				t.Errorf("got %v (%v), want %v (%v)", got[0].Error(), got[0].Hint, tt.want, tt.hint)
			}
			if _, err := CompileFilter(tt.spec); (err == nil) != tt.compiles {
				t.Errorf("CompileFilter: got %v, want success %v", err, tt.compiles)
			}
		})
	}
	if got := FilterProblems(FilterSpec{Allow: filterTestNames("@keyring", "mount", "@base"), Deny: filterTestNames("@ipc")}); got != nil {
		t.Errorf("a sound spec: got %v, want none", got)
	}
}

func TestFilterVerdict(t *testing.T) {
	tests := []struct {
		name    string
		spec    FilterSpec
		call    string
		allowed bool
		why     string // a part of it
	}{
		{"base", FilterSpec{}, "read", true, "in the base: @files"},
		{"checked", FilterSpec{}, "socket", true, "allowed for AF_UNIX; AF_INET"},
		{"refused", FilterSpec{}, "keyctl", false, "EPERM: @keyring"},
		{"missing", FilterSpec{}, "io_uring_enter", false, "ENOSYS: @io_uring"},
		{"opened", FilterSpec{Ptrace: true}, "ptrace", true, "opened by the policy: @ptrace"},
		{"denied", FilterSpec{Deny: filterTestNames("@ipc")}, "shmget", false, "EPERM: refused by syscalls.deny"},
		{"unknown", FilterSpec{}, "frobnicate", false, "no system call"},
		{"bad spec", FilterSpec{Allow: filterTestNames("nonsense")}, "openat", false, "unknown system call"},
		{"unshare", FilterSpec{UserNamespaces: true}, "unshare", true, "except CLONE_NEWUSER"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			allowed, why := FilterVerdict(tt.spec, tt.call)
			if allowed != tt.allowed || !strings.Contains(why, tt.why) {
				t.Errorf("got %v, %q, want %v, %q", allowed, why, tt.allowed, tt.why)
			}
		})
	}
}

// TestFilterDenyNeverAllows: refusing a set never lets a call through that was
// refused before, and opening one never refuses.
func TestFilterDenyNeverAllows(t *testing.T) {
	before, err := filterActions(FilterSpec{})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range syscallSets() {
		names := filterTestNames(set.name)
		denied, err := filterActions(FilterSpec{Allow: filterTestNames("@base"), Deny: names})
		if err != nil {
			t.Fatal(err)
		}
		for call, was := range before {
			if denied[call].allow && (!was.allow || slices.Contains(set.names(), call)) {
				t.Errorf("deny %s allows %s", set.name, call)
			}
		}
		opened, err := filterActions(FilterSpec{Allow: names})
		if (err != nil) != set.closed {
			t.Errorf("allow %s: got %v, want an error %v", set.name, err, set.closed)
		}
		for call, now := range opened {
			if now.allow != (before[call].allow || slices.Contains(set.names(), call)) {
				t.Errorf("allow %s: %s: got %v", set.name, call, now.allow)
			}
		}
	}
}

func BenchmarkCompileFilter(b *testing.B) {
	for _, s := range []FilterSpec{{}, {Allow: filterTestNames("@numa")}} {
		b.Run(fmt.Sprintf("embedded=%v", len(s.Allow) == 0), func(b *testing.B) {
			for b.Loop() {
				if _, err := CompileFilter(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

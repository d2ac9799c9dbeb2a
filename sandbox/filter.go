package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"golang.org/x/sys/unix"
)

// FilterSpec is what a policy asks of the system call filter. The zero value
// is the strict base.
type FilterSpec struct {
	// Allow and Deny hold names of system calls, or sets written "@set". Deny
	// wins. Neither lifts the checks on arguments.
	Allow []policy.Name `json:"allow,omitempty"`
	Deny  []policy.Name `json:"deny,omitempty"`
	// UserNamespaces lets programs make user, PID and network namespaces of
	// their own and change their root directory, as Chromium's sandbox does.
	UserNamespaces bool `json:"user_namespaces,omitempty"`
	// Ptrace lets a process trace others of the sandbox.
	Ptrace bool `json:"ptrace,omitempty"`
	// Tier adds what the filter alone must hold where namespaces do not.
	Tier Tier `json:"tier,omitempty"`
	// Sockets leaves local sockets and listening open in a weaker tier.
	Sockets bool `json:"sockets,omitempty"`
}

// filterAction is what happens to one call. The zero value refuses.
type filterAction struct {
	allow bool
	errno syscall.Errno
}

// CompileFilter gives the program for seccomp(2): an array of struct
// sock_filter in native byte order, for the native architecture only. The
// filters of the usual specs are embedded; others cost some 15 ms.
func CompileFilter(s FilterSpec) ([]byte, error) {
	if t := s.Tier; t != "" {
		sockets := s.Sockets
		s.Tier, s.Sockets = "", false
		base, err := CompileFilter(s)
		if err != nil {
			return nil, err
		}
		return weakFilter(t, sockets, base)
	}
	if raw, ok := filterEmbedded(s); ok {
		return raw, nil
	}
	return filterCompile(filterNative, s)
}

// filterCompile compiles for a given architecture.
func filterCompile(arch string, s FilterSpec) ([]byte, error) {
	actions, err := filterActions(s)
	if err != nil {
		return nil, err
	}
	numbers, err := filterNumbersOf(arch, filterSorted(actions))
	if err != nil {
		return nil, err
	}
	stage, err := filterStage(arch, numbers, actions, s.UserNamespaces)
	if err != nil {
		return nil, err
	}
	tree, err := filterTree(arch, actions)
	if err != nil {
		return nil, err
	}
	prog := append(stage, tree...)
	if len(prog) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("compile filter: %d instructions, the kernel takes %d", len(prog), unix.BPF_MAXINSNS)
	}
	return filterEncode(prog), nil
}

// filterActions decides every known call by name.
func filterActions(s FilterSpec) (map[string]filterAction, error) {
	if problems := filterNameProblems(s); len(problems) > 0 {
		return nil, fmt.Errorf("compile filter: %w", policy.Problems(problems))
	}
	actions := map[string]filterAction{}
	for _, set := range syscallSets() {
		for _, call := range set.names() {
			actions[call] = filterAction{allow: set.base, errno: set.answer()}
		}
	}
	for _, n := range filterAllowed(s) {
		calls, _ := syscallExpand(n.Text)
		for _, call := range calls {
			actions[call] = filterAction{allow: true}
		}
	}
	for _, n := range s.Deny {
		calls, _ := syscallExpand(n.Text)
		for _, call := range calls {
			set, _ := syscallSetOf(call)
			actions[call] = filterAction{errno: set.answer()}
		}
	}
	return actions, nil
}

// filterAllowed is s.Allow and the sets behind the switches.
func filterAllowed(s FilterSpec) []policy.Name {
	names := slices.Clone(s.Allow)
	if s.UserNamespaces {
		names = append(names, policy.Name{Text: "@user-namespaces"})
	}
	if s.Ptrace {
		names = append(names, policy.Name{Text: "@ptrace"})
	}
	return names
}

// filterSorted gives the names of a table in a fixed order, so that the same
// spec always gives the same program.
func filterSorted(actions map[string]filterAction) []string {
	return slices.Sorted(maps.Keys(actions))
}

// allows tells whether some form of a call is allowed, by the lists alone. A
// spec that does not compile allows nothing.
func (s FilterSpec) allows(call string) bool {
	actions, err := filterActions(s)
	return err == nil && actions[call].allow
}

// FilterVerdict tells whether a call is allowed and why. It runs the compiled
// program, so it says what the kernel will do. For a call whose arguments are
// checked, allowed means that some arguments pass, and why says which.
func FilterVerdict(s FilterSpec, name string) (allowed bool, why string) {
	set, ok := syscallSetOf(name)
	if !ok {
		return false, fmt.Sprintf("%q is no system call that this program knows; unknown calls answer ENOSYS", name)
	}
	if allowed, why, changed := s.weakCallVerdict(name); changed {
		return allowed, why
	}
	numbers, err := filterNumbersOf(filterNative, []string{name})
	if err != nil {
		return false, err.Error()
	}
	nr, ok := numbers[name]
	if !ok {
		return false, fmt.Sprintf("%s has no number on %s", name, filterNative)
	}
	r, check, err := filterAsk(s, name, nr)
	switch {
	case err != nil:
		return false, err.Error()
	case r.allowed() && r.looked:
		return true, fmt.Sprintf("allowed for %s (%s)", check.says, set.name)
	case r.allowed() && set.base:
		return true, fmt.Sprintf("in the base: %s, %s", set.name, set.why)
	case r.allowed():
		return true, fmt.Sprintf("opened by the policy: %s, %s", set.name, set.why)
	case set.base:
		return false, fmt.Sprintf("%s: refused by syscalls.deny", unix.ErrnoName(r.errno))
	}
	return false, fmt.Sprintf("%s: %s, %s", unix.ErrnoName(r.errno), set.name, set.why)
}

// filterAsk runs the program of a spec for one call, with arguments that pass
// its check when it has one.
func filterAsk(s FilterSpec, name string, nr uint32) (filterResult, filterCheck, error) {
	raw, err := CompileFilter(s)
	if err != nil {
		return filterResult{}, filterCheck{}, err
	}
	prog, err := filterDecode(raw)
	if err != nil {
		return filterResult{}, filterCheck{}, err
	}
	audit, err := filterAudit(filterNative)
	if err != nil {
		return filterResult{}, filterCheck{}, err
	}
	var check filterCheck
	for _, c := range filterChecks(s.UserNamespaces) {
		if c.call == name {
			check = c
		}
	}
	r, err := filterRun(prog, filterData{nr: nr, arch: audit, args: check.pass})
	if err == nil && r.looked && check.call == "" {
		err = errors.New("BUG: the filter reads arguments of a call that has no check")
	}
	return r, check, err
}

// filterEssential are the calls without which not even the command starts.
const filterEssential = "execve exit_group rt_sigreturn mmap brk"

// FilterProblems lists what is wrong with the names of a spec: unknown ones,
// those that cannot be opened, and refusals that would stop every command.
func FilterProblems(s FilterSpec) []policy.Problem {
	problems := filterNameProblems(s)
	for i, n := range s.Deny {
		calls, _ := syscallExpand(n.Text)
		for _, call := range strings.Fields(filterEssential) {
			if slices.Contains(calls, call) {
				problems = append(problems, policy.Problem{
					Pos: n.Pos, Path: fmt.Sprintf("syscalls.deny[%d]", i),
					What: fmt.Sprintf("refusing %q means that no command can start", call),
				})
				break
			}
		}
	}
	return problems
}

// filterNameProblems lists the mistakes that CompileFilter refuses.
func filterNameProblems(s FilterSpec) []policy.Problem {
	var problems []policy.Problem
	for i, n := range s.Allow {
		path := fmt.Sprintf("syscalls.allow[%d]", i)
		if p, bad := filterUnknown(n, path); bad {
			problems = append(problems, p)
			continue
		}
		calls, _ := syscallExpand(n.Text)
		for _, call := range calls {
			if set, _ := syscallSetOf(call); set.closed {
				problems = append(problems, policy.Problem{
					Pos: n.Pos, Path: path,
					What: fmt.Sprintf("%q cannot be allowed: %s", n.Text, set.why),
				})
				break
			}
		}
	}
	for i, n := range s.Deny {
		if p, bad := filterUnknown(n, fmt.Sprintf("syscalls.deny[%d]", i)); bad {
			problems = append(problems, p)
		}
	}
	return problems
}

// filterUnknown is the problem with a name that stands for nothing.
func filterUnknown(n policy.Name, path string) (policy.Problem, bool) {
	if _, ok := syscallExpand(n.Text); ok {
		return policy.Problem{}, false
	}
	kind := "system call"
	if strings.HasPrefix(n.Text, "@") {
		kind = "set of system calls"
	}
	p := policy.Problem{Pos: n.Pos, Path: path, What: fmt.Sprintf("unknown %s %q", kind, n.Text)}
	p.Hint = `names are those of syscalls(2) and the sets in docs/policy-reference.md: "@mount"`
	if near, ok := filterNearest(n.Text); ok {
		p.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	return p, true
}

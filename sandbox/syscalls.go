package sandbox

import (
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// syscallSet is a named group of system calls. Each call is in exactly one
// set, so that every number has one documented reason.
type syscallSet struct {
	// name is how a policy writes the set: "@files".
	name string
	// why says who needs the set or, for a refused one, why it is refused.
	why string
	// base makes the set part of the strict base; the others are refused until
	// a policy opens them.
	base bool
	// errno is what a refused member answers; 0 stands for EPERM.
	errno syscall.Errno
	// closed forbids opening the set: no policy can allow its members.
	closed bool
	// calls are the names, separated by white space, as in syscalls(2).
	calls string
}

// FilterSet describes a named set, for the policy reference and for explain.
type FilterSet struct {
	Name   string   // as a policy writes it: "@files"
	Why    string   // who needs it, or why it is refused
	Base   bool     // part of the strict base
	Closed bool     // no policy can open it
	Calls  []string // the members
}

// FilterSets lists every set, those of the base first.
func FilterSets() []FilterSet {
	var sets []FilterSet
	for _, s := range syscallSets() {
		sets = append(sets, FilterSet{Name: s.name, Why: s.why, Base: s.base, Closed: s.closed, Calls: s.names()})
	}
	return sets
}

// syscallBase is the union of the sets with base set.
const syscallBase = "@base"

// answer gives what a refused member of the set returns.
func (s syscallSet) answer() syscall.Errno {
	if s.errno == 0 {
		return unix.EPERM
	}
	return s.errno
}

// names gives the members.
func (s syscallSet) names() []string { return strings.Fields(s.calls) }

// syscallSetOf finds the set that a call belongs to.
func syscallSetOf(call string) (syscallSet, bool) {
	for _, s := range syscallSets() {
		if slices.Contains(s.names(), call) {
			return s, true
		}
	}
	return syscallSet{}, false
}

// syscallExpand gives the calls behind a name or "@set" of a policy.
func syscallExpand(text string) ([]string, bool) {
	if !strings.HasPrefix(text, "@") {
		_, ok := syscallSetOf(text)
		return []string{text}, ok
	}
	var calls []string
	for _, s := range syscallSets() {
		if s.name == text || text == syscallBase && s.base {
			calls = append(calls, s.names()...)
		}
	}
	return calls, calls != nil
}

// syscallKnown lists everything a policy may write, sets first.
func syscallKnown() []string {
	known := []string{syscallBase}
	for _, s := range syscallSets() {
		known = append(known, s.name)
	}
	for _, s := range syscallSets() {
		known = append(known, s.names()...)
	}
	return known
}

// syscallFirstLate is the first number that does not come from libseccomp.
// Version 2.5.4 knows the calls up to 450 in every distribution that ships it
// and some later ones only in some; from here on the numbers are ours, which
// also keeps the compiled program the same on every build machine.
const syscallFirstLate = unix.SYS_CACHESTAT

// syscallLate numbers the calls from syscallFirstLate on. They have the same
// number on every architecture.
func syscallLate() map[string]uint32 {
	return map[string]uint32{
		"cachestat":         unix.SYS_CACHESTAT,
		"fchmodat2":         unix.SYS_FCHMODAT2,
		"map_shadow_stack":  unix.SYS_MAP_SHADOW_STACK,
		"futex_wake":        unix.SYS_FUTEX_WAKE,
		"futex_wait":        unix.SYS_FUTEX_WAIT,
		"futex_requeue":     unix.SYS_FUTEX_REQUEUE,
		"statmount":         unix.SYS_STATMOUNT,
		"listmount":         unix.SYS_LISTMOUNT,
		"lsm_get_self_attr": unix.SYS_LSM_GET_SELF_ATTR,
		"lsm_set_self_attr": unix.SYS_LSM_SET_SELF_ATTR,
		"lsm_list_modules":  unix.SYS_LSM_LIST_MODULES,
		"mseal":             unix.SYS_MSEAL,
		"setxattrat":        unix.SYS_SETXATTRAT,
		"getxattrat":        unix.SYS_GETXATTRAT,
		"listxattrat":       unix.SYS_LISTXATTRAT,
		"removexattrat":     unix.SYS_REMOVEXATTRAT,
		"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
		"file_getattr":      unix.SYS_FILE_GETATTR,
		"file_setattr":      unix.SYS_FILE_SETATTR,
		"listns":            unix.SYS_LISTNS,
		"rseq_slice_yield":  unix.SYS_RSEQ_SLICE_YIELD,
	}
}

// syscallTrampolines numbers the calls of uprobes, which only code placed by
// the kernel makes. They are in a gap of the amd64 numbers that libseccomp
// 2.5.4 does not know, and exist nowhere else.
func syscallTrampolines() map[string]uint32 {
	return map[string]uint32{"uretprobe": 335, "uprobe": 336}
}

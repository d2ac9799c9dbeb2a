package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// proxyDenied is what the proxy never does: start a program, look into another
// process, or make a namespace, a mount or a device of its own.
var proxyDenied = []string{"execve", "execveat", "ptrace", "memfd_create", "mknod", "mknodat", "setns", "unshare", "kill", "tkill", "pidfd_send_signal"}

// proxyFilterSpec is the proxy's own filter: the strict base less proxyDenied.
// tgkill stays, by which the Go runtime preempts its own threads.
func proxyFilterSpec() FilterSpec {
	var s FilterSpec
	for _, call := range proxyDenied {
		s.Deny = append(s.Deny, policy.Name{Text: call})
	}
	return s
}

func (s FilterSpec) isProxy() bool {
	return len(s.Allow) == 0 && !s.UserNamespaces && !s.Ptrace &&
		slices.EqualFunc(s.Deny, proxyDenied, func(n policy.Name, call string) bool { return n.Text == call })
}

// StartProxy executes our own binary as arg0 in a Landlock domain that may read
// the given paths, remove runDir and remove directories in cgroups, and nothing
// else of the file system. Its
// standard input is the control connection; every other descriptor is closed.
// It lives in a process group of its own, so that Ctrl-C does not reach it.
func StartProxy(arg0 string, control *os.File, reads []string, runDir string, cgroups []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	ruleset, flags, err := proxyRuleset(self, reads, runDir, cgroups)
	if err != nil {
		return err
	}
	if ruleset >= 0 {
		defer unix.Close(ruleset)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	ignored, blocked := inheritedSignals()
	s := start{
		ruleset: ruleset, flags: flags, path: self, argv: []string{arg0},
		// No variable of the caller changes verification, the resolver or the
		// place of temporary files.
		// The heap is small and short-lived. Collecting half as often was worth a
		// seventh more inspected requests at 256 clients, for some 10 KiB more a
		// connection after a burst.
		envp:  []string{"GOMAXPROCS=2", "GOGC=200"},
		stdio: [3]int{int(control.Fd()), int(null.Fd()), 2}, cwd: "/", tty: -1, umask: -1,
		sigIgnored: ignored, sigBlocked: blocked,
		rlimits: []Rlimit{{Name: "RLIMIT_CORE", Resource: unix.RLIMIT_CORE}},
	}
	r, err := s.spawn()
	if err != nil {
		return err
	}
	if err := r.release(); err != nil {
		return err
	}
	return r.started()
}

// proxyRuleset gives -1 on a kernel without Landlock: whether a launch may go
// on without it is decided with the plan.
func proxyRuleset(self string, reads []string, runDir string, cgroups []string) (int, uint32, error) {
	abi := min(LandlockABI(), newestABI)
	if abi == 0 {
		return -1, 0, nil
	}
	c := rulesetConfig(abi)
	rules := []landlock.Rule{
		landlock.PathAccess(ll.AccessFSExecute|ll.AccessFSReadFile, self),
		landlock.PathAccess(rightsRead|ll.AccessFSRemoveFile|ll.AccessFSRemoveDir, runDir),
		landlock.PathAccess(ll.AccessFSRemoveDir, filepath.Dir(runDir)),
	}
	for _, dir := range cgroups {
		rules = append(rules, landlock.PathAccess(ll.AccessFSReadDir|ll.AccessFSRemoveDir, dir))
	}
	grants := loaderGrants(self)
	for _, path := range reads {
		grants = append(grants, Grant{Path: path})
	}
	for _, g := range grants {
		r, err := g.rule(c.HandledAccessFS, false)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return -1, 0, err
		}
		rules = append(rules, r)
	}
	fd, flags, err := c.NewRulesetFD(rules...)
	if err != nil {
		return -1, 0, fmt.Errorf("build the proxy's Landlock ruleset: %w", err)
	}
	if fd < 0 {
		return -1, 0, errors.New("build the proxy's Landlock ruleset: the library gave none")
	}
	return fd, flags, nil
}

// loaderGrants is empty for the static binary; one that was linked dynamically
// starts through the loader and reads its libraries.
func loaderGrants(self string) (out []Grant) {
	if loader, _ := elfNeeds(self); loader == "" {
		return nil
	}
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"} {
		out = append(out, Grant{Path: dir, Exec: true})
	}
	return append(out, Grant{Path: "/etc/ld.so.cache"})
}

// ConfineProxyCalls loads the proxy's filter on all threads.
func ConfineProxyCalls() error {
	raw, err := CompileFilter(proxyFilterSpec())
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(raw) / unix.SizeofSockFilter), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	r, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if no != 0 {
		return fmt.Errorf("load the proxy's filter: %w", no)
	}
	if r != 0 {
		return fmt.Errorf("load the proxy's filter: thread %d could not be bound", r)
	}
	return nil
}

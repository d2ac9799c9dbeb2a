package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
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

// ProxyStart is how the proxy is started.
type ProxyStart struct {
	// Arg0 is its argv[0], by which our own binary knows its role.
	Arg0 string
	// Control is its standard input, Stderr its standard error. They stay open here.
	Control, Stderr *os.File
	// Reads are the paths that it may read.
	Reads []string
	// RunDir may be removed by it, and directories in Cgroups.
	RunDir  string
	Cgroups []string
}

// StartProxy executes our own binary in a Landlock domain that may read the
// given paths, remove the run's directory and remove directories in cgroups, and
// nothing else of the file system. Every descriptor but the standard streams is
// closed. It lives in a process group of its own, so that Ctrl-C does not reach
// it. No parent-death signal is bound to the calling thread, so any goroutine
// may call this: the proxy ends with its control connection.
func StartProxy(o ProxyStart) (*ProxyProcess, error) {
	self, err := ownExecutable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	ruleset, flags, err := proxyRuleset(self, o.Reads, o.RunDir, o.Cgroups)
	if err != nil {
		return nil, err
	}
	if ruleset >= 0 {
		defer unix.Close(ruleset)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	s := start{
		ruleset: ruleset, flags: flags, path: self, argv: []string{o.Arg0},
		// No variable of the caller changes verification, the resolver or the
		// place of temporary files.
		// The heap is small and short-lived. Collecting half as often was worth a
		// seventh more inspected requests at 256 clients, for some 10 KiB more a
		// connection after a burst.
		envp:  []string{"GOMAXPROCS=2", "GOGC=200"},
		stdio: [3]int{int(o.Control.Fd()), int(null.Fd()), int(o.Stderr.Fd())}, cwd: "/", tty: -1, umask: -1,
		inherited: fromCaller(),
		rlimits:   []Rlimit{{Name: "RLIMIT_CORE", Resource: unix.RLIMIT_CORE}},
	}
	p, r, err := proxies.spawn(s)
	if err != nil {
		return nil, err
	}
	if err = r.release(); err == nil {
		err = r.started()
	}
	if err != nil {
		p.Kill()
		_, _ = p.Wait()
		return nil, err
	}
	return p, nil
}

// ownExecutable is the file that this process runs. One that was replaced or
// removed since, as an upgrade does, is still to be had by its link in /proc:
// the launcher and its proxy are of one version.
func ownExecutable() (string, error) {
	const link = "/proc/self/exe"
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	var named, running unix.Stat_t
	if err := unix.Stat(link, &running); err != nil {
		return "", &os.PathError{Op: "stat", Path: link, Err: err}
	}
	if unix.Stat(self, &named) != nil || named.Dev != running.Dev || named.Ino != running.Ino {
		return link, nil
	}
	return self, nil
}

// proxies are those of this process that were started and not reaped: in the
// weaker tier what ends the tree below us must leave them alone.
var proxies living

type living struct {
	mu   sync.Mutex
	pids []int
}

func (l *living) spawn(s start) (*ProxyProcess, *running, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := s.spawn()
	if err != nil {
		return nil, nil, err
	}
	l.pids = append(l.pids, r.pid)
	return &ProxyProcess{pid: r.pid}, r, nil
}

// look calls with the living, of which none is started or reaped meanwhile.
func (l *living) look(f func(pids []int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.pids)
}

func (l *living) reaped(pid int) {
	l.pids = slices.DeleteFunc(l.pids, func(p int) bool { return p == pid })
}

// ProxyProcess is a proxy that was started.
type ProxyProcess struct {
	pid int

	mu     sync.Mutex
	reaped bool
}

// Pid is its process id.
func (p *ProxyProcess) Pid() int { return p.pid }

// Kill ends it at once. One that ended already keeps its status.
func (p *ProxyProcess) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped { // afterwards the number may be somebody else's
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// Wait blocks until it ended and gives its wait status. It is called once.
func (p *ProxyProcess) Wait() (ws unix.WaitStatus, err error) {
	// In two steps: as long as it is not reaped, its number is its own.
	for {
		err = unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wait for the proxy: %w", err)
	}
	proxies.mu.Lock()
	defer proxies.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	proxies.reaped(p.pid)
	for {
		if _, err = unix.Wait4(p.pid, &ws, 0, nil); err != unix.EINTR {
			return ws, err
		}
	}
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

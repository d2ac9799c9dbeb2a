package sandbox

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include <stdlib.h>
#include "spawn.h"

static struct hw_rlimit *hw_rlimits(int n) { return calloc(n ? n : 1, sizeof(struct hw_rlimit)); }
static struct hw_probe *hw_probes(int n) { return calloc(n ? n : 1, sizeof(struct hw_probe)); }
static struct hw_guard_entry *hw_entries(int n) { return calloc(n ? n : 1, sizeof(struct hw_guard_entry)); }
static char **hw_strings(int n) { return calloc(n + 1, sizeof(char *)); }
static void hw_set_rlimit(struct hw_rlimit *l, int i, int res, uint64_t soft, uint64_t hard)
{ l[i].resource = res; l[i].soft = soft; l[i].hard = hard; }
static void hw_set_probe(struct hw_probe *p, int i, int kind, const char *path, int port)
{ p[i].kind = kind; p[i].path = path; p[i].port = port; }
static void hw_set_entry(struct hw_guard_entry *e, int i, const char *parent, const char *name, const char *rest)
{ e[i].parent = parent; e[i].name = name; e[i].rest = rest; }
static void hw_set_string(char **v, int i, char *s) { v[i] = s; }
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probe is one thing that must fail once the process is confined.
type probe struct {
	kind int
	path string
	port int
	what string // for the error: "read \"/…\""
}

// start is what the C part needs to start one confined process. C memory made
// for it is not freed: PID 1 starts one process, or a few.
type start struct {
	newUserNS  bool
	ruleset    int
	flags      uint32
	filter     []byte
	guard      []Guarded
	innerNS    bool // programs make user namespaces of their own
	path       string
	argv, envp []string
	cwd        string
	stdio      [3]int
	tty        int
	umask      int
	inherited  inherited
	rlimits    []Rlimit
	probes     []probe
	// starter makes it the starter, which executes nothing itself; stdio is its
	// end of the socket.
	starter bool
}

// running is a process between clone and exec.
type running struct {
	pid    int
	goW    *os.File
	report *os.File
	probes []probe
}

// spawn clones the confined process; it waits until release is called.
func (s start) spawn() (*running, error) {
	goR, goW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer goR.Close()
	repR, repW, err := os.Pipe()
	if err != nil {
		goW.Close()
		return nil, err
	}
	defer repW.Close()
	c := s.native()
	c.go_fd, c.go_write_fd, c.report_fd = C.int(goR.Fd()), C.int(goW.Fd()), C.int(repW.Fd())
	pid := C.hw_spawn(c)
	if pid < 0 {
		goW.Close()
		repR.Close()
		return nil, fmt.Errorf("clone: %w", unix.Errno(-pid))
	}
	return &running{pid: int(pid), goW: goW, report: repR, probes: s.probes}, nil
}

// release lets the process go on; its id maps are written.
func (r *running) release() error {
	_, err := r.goW.Write([]byte{1})
	r.goW.Close()
	return err
}

// started waits for the exec, or until the starter serves, or says which step
// failed.
func (r *running) started() error {
	defer r.report.Close()
	var b [12]byte
	_, err := io.ReadFull(r.report, b[:])
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	word := func(i int) int { return int(int32(binary.NativeEndian.Uint32(b[i:]))) }
	return explainStep(word(0), unix.Errno(word(4)), word(8), r.probes)
}

// explainStep puts a failed step of the C part into words.
func explainStep(step int, no unix.Errno, detail int, probes []probe) error {
	switch step {
	case C.HW_STEP_MAP:
		return stepErr(StepConfine, fmt.Errorf("wait for id maps: %w", no))
	case C.HW_STEP_GROUP:
		return stepErr(StepConfine, fmt.Errorf("make process group: %w", no))
	case C.HW_STEP_TERMINAL:
		return stepErr(StepTerminal, fmt.Errorf("take the foreground: %w", no))
	case C.HW_STEP_STDIO, C.HW_STEP_CLOSE:
		return stepErr(StepConfine, fmt.Errorf("lay out descriptor %d: %w", detail, no))
	case C.HW_STEP_RLIMIT:
		return stepErr(StepLimits, fmt.Errorf("set resource limit %d: %w", detail, no))
	case C.HW_STEP_CHDIR:
		return stepErr(StepConfine, fmt.Errorf("enter the working directory inside: %w", no))
	case C.HW_STEP_CAPS:
		return stepErr(StepConfine, fmt.Errorf("drop capability %d: %w", detail, no))
	case C.HW_STEP_NNP:
		return stepErr(StepConfine, fmt.Errorf("set no_new_privs: %w", no))
	case C.HW_STEP_LANDLOCK:
		return stepErr(StepConfine, fmt.Errorf("landlock_restrict_self: %w", no))
	case C.HW_STEP_GUARD:
		return stepErr(StepConfine, fmt.Errorf("start the guard of protected names: %w", no))
	case C.HW_STEP_SIGNALS:
		return stepErr(StepConfine, fmt.Errorf("reset signal %d: %w", detail, no))
	case C.HW_STEP_SECCOMP:
		return stepErr(StepConfine, fmt.Errorf("load the system call filter: %w", no))
	case C.HW_STEP_SELFTEST:
		return stepErr(StepSelfTest, fmt.Errorf("%s succeeded and must not", probes[detail].what))
	case C.HW_STEP_EXEC:
		return stepErr(StepExec, no)
	case C.HW_STEP_STARTER:
		return stepErr(StepConfine, fmt.Errorf("become the starter: %w", no))
	case C.HW_STEP_FORK:
		return stepErr(StepExec, fmt.Errorf("fork: %w", no))
	case C.HW_STEP_ORDER:
		return stepErr(StepExec, fmt.Errorf("take the order to start: %w", no))
	}
	return fmt.Errorf("BUG: unknown step %d: %w", step, no)
}

func (s start) native() *C.struct_hw_spawn {
	c := (*C.struct_hw_spawn)(C.calloc(1, C.sizeof_struct_hw_spawn))
	if s.newUserNS {
		c.new_userns = 1
	}
	if s.starter {
		c.starter = 1
	}
	c.ruleset_fd, c.ruleset_flags = C.int(s.ruleset), C.uint(s.flags)
	if len(s.filter) > 0 {
		c.filter = (*C.struct_sock_filter)(C.CBytes(s.filter))
		c.filter_len = C.ushort(len(s.filter) / 8)
	}
	if len(s.guard) > 0 {
		c.guard = s.nativeGuard()
	}
	c.path, c.cwd = C.CString(s.path), C.CString(s.cwd)
	c.argv, c.envp = cStrings(s.argv), cStrings(s.envp)
	for i, fd := range s.stdio {
		c.stdio[i] = C.int(fd)
	}
	c.tty, c.umask = C.int(s.tty), C.int(s.umask)
	c.inherited = C.struct_hw_inherited{
		ignored: C.uint64_t(s.inherited.Ignored), blocked: C.uint64_t(s.inherited.Blocked), timer_slack: C.uint64_t(s.inherited.TimerSlack),
	}
	c.rlimits, c.rlimits_len = C.hw_rlimits(C.int(len(s.rlimits))), C.int(len(s.rlimits))
	for i, l := range s.rlimits {
		C.hw_set_rlimit((*C.struct_hw_rlimit)(unsafe.Pointer(c.rlimits)), C.int(i), C.int(l.Resource), C.uint64_t(l.Soft), C.uint64_t(l.Hard))
	}
	c.probes, c.probes_len = C.hw_probes(C.int(len(s.probes))), C.int(len(s.probes))
	for i, p := range s.probes {
		C.hw_set_probe((*C.struct_hw_probe)(unsafe.Pointer(c.probes)), C.int(i), C.int(p.kind), C.CString(p.path), C.int(p.port))
	}
	return c
}

func (s start) nativeGuard() *C.struct_hw_guard {
	g := (*C.struct_hw_guard)(C.calloc(1, C.sizeof_struct_hw_guard))
	entries := C.hw_entries(C.int(len(s.guard)))
	for i, e := range s.guard {
		C.hw_set_entry(entries, C.int(i), C.CString(e.Parent), C.CString(e.Name), C.CString(e.Rest))
	}
	g.entries, g.n = entries, C.int(len(s.guard))
	if s.innerNS {
		g.names_only = 1
	}
	return g
}

func cStrings(v []string) **C.char {
	p := C.hw_strings(C.int(len(v)))
	for i, s := range v {
		C.hw_set_string(p, C.int(i), C.CString(s))
	}
	return p
}

// inherited is what the caller passed on to the launcher, and the command gets.
type inherited struct {
	// Ignored and Blocked are signals, bit n-1 for signal n.
	Ignored uint64 `json:"ignored"`
	Blocked uint64 `json:"blocked"`
	// TimerSlack is in nanoseconds, PR_SET_TIMERSLACK(2const); 0 leaves it alone.
	TimerSlack uint64 `json:"timer_slack"`
}

// ProxyArg0 is what the proxy is called in its argument vector.
const ProxyArg0 = C.HW_PROXY_ARG0

// fromCaller gives what this process was started with.
func fromCaller() inherited {
	i := C.hw_inherited()
	return inherited{Ignored: uint64(i.ignored), Blocked: uint64(i.blocked), TimerSlack: uint64(i.timer_slack)}
}

// Attentive runs f, which starts a process that is to have the timer slack that
// this one was started with.
func Attentive(f func() error) error {
	if slack := fromCaller().TimerSlack; slack > 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(now), 0, 0, 0) }()
		}
	}
	return f()
}

// probeKinds maps the C enumeration for code that has no cgo.
const (
	probeRead    = C.HW_PROBE_OPEN_READ
	probeWrite   = C.HW_PROBE_OPEN_WRITE
	probeUserNS  = C.HW_PROBE_SYSCALL
	probeConnect = C.HW_PROBE_CONNECT
	probeIOUring = C.HW_PROBE_IOURING
	probeCaps    = C.HW_PROBE_CAPS
)

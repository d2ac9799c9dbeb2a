package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterHelperEnv makes the test binary act as a confined program: "probe",
// "exec" or "program". filterSpecEnv holds the filter's spec, or nothing for
// no filter.
const (
	filterHelperEnv = "FILTER_TEST_HELPER"
	filterSpecEnv   = "FILTER_TEST_SPEC"
)

// TestFilterHelper is no test: it is the process that the tests below start.
func TestFilterHelper(t *testing.T) {
	mode := os.Getenv(filterHelperEnv)
	if mode == "" {
		return
	}
	if spec := os.Getenv(filterSpecEnv); spec != "" {
		var s FilterSpec
		if err := json.Unmarshal([]byte(spec), &s); err != nil {
			t.Fatal(err)
		}
		if err := filterLoadHere(s); err != nil {
			t.Fatal(err)
		}
	}
	switch mode {
	case "probe":
		if err := json.NewEncoder(os.Stdout).Encode(filterProbeAll()); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	case "exec":
		argv := os.Args[len(os.Args)-1]
		t.Fatal(unix.Exec(strings.Split(argv, "\x1f")[0], strings.Split(argv, "\x1f"), os.Environ()))
	case "program":
		if err := filterGoProgram(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("done")
		os.Exit(0)
	}
}

// filterLoadHere puts this process under a filter.
func filterLoadHere(s FilterSpec) error {
	raw, err := CompileFilter(s)
	if err != nil {
		return err
	}
	prog, err := filterDecode(raw)
	if err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// Every thread of this process, which Go has already started.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(raw)
	if errno != 0 {
		return errno
	}
	return nil
}

// filterProbe is a call with arguments that are harmless, that an ordinary
// user may make, and whose answer from the kernel differs from the filter's.
type filterProbe struct {
	name string
	nr   uintptr
	args [6]uintptr
	want string
}

// filterProbes lists the probes; root makes the same ones.
func filterProbes() []filterProbe {
	const garbage = 1 << 32
	none := ^uintptr(0) // as a descriptor: EBADF from the kernel
	return []filterProbe{
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{1}, "ENOSYS"},
		{"clone3", unix.SYS_CLONE3, [6]uintptr{}, "ENOSYS"},
		// CLONE_FS makes the kernel refuse with EINVAL before it copies anything.
		{"clone user namespace", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS | uintptr(unix.SIGCHLD)}, "EPERM"},
		{"unshare", unix.SYS_UNSHARE, [6]uintptr{0}, "EPERM"},
		{"setns", unix.SYS_SETNS, [6]uintptr{none, 0}, "EPERM"},
		{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{none}, "EPERM"},
		{"keyctl", unix.SYS_KEYCTL, [6]uintptr{^uintptr(0)}, "EPERM"},
		{"add_key", unix.SYS_ADD_KEY, [6]uintptr{}, "EPERM"},
		{"request_key", unix.SYS_REQUEST_KEY, [6]uintptr{}, "EPERM"},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [6]uintptr{uintptr(os.Getpid())}, "EPERM"},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [6]uintptr{uintptr(os.Getpid())}, "EPERM"},
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_PEEKDATA, 0}, "EPERM"},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [6]uintptr{none}, "EPERM"},
		{"process_madvise", unix.SYS_PROCESS_MADVISE, [6]uintptr{none}, "EPERM"},
		{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{1}, "EPERM"},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}, "EPERM"},
		{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [6]uintptr{none}, "EPERM"},
		{"move_pages", unix.SYS_MOVE_PAGES, [6]uintptr{}, "EPERM"},
		{"set_mempolicy", unix.SYS_SET_MEMPOLICY, [6]uintptr{}, "EPERM"},
		{"adjtimex", unix.SYS_ADJTIMEX, [6]uintptr{}, "EPERM"},
		{"personality no ASLR", unix.SYS_PERSONALITY, [6]uintptr{0x40000}, "EPERM"},
		{"personality high bits", unix.SYS_PERSONALITY, [6]uintptr{0x40000 | garbage}, "EPERM"},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCSTI}, "EPERM"},
		{"ioctl TIOCSTI high bits", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCSTI | garbage}, "EPERM"},
		{"ioctl TIOCLINUX", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCLINUX}, "EPERM"},
		{"ioctl TIOCSETD", unix.SYS_IOCTL, [6]uintptr{none, unix.TIOCSETD}, "EPERM"},
		{"socket MPTCP", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, "EPERM"},
		{"socket netlink xfrm", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM}, "EPERM"},
		{
			"socket netlink uevent high bits", unix.SYS_SOCKET,
			[6]uintptr{unix.AF_NETLINK | garbage, unix.SOCK_RAW | garbage, unix.NETLINK_KOBJECT_UEVENT | garbage},
			"EPERM",
		},
		{"socketpair inet", unix.SYS_SOCKETPAIR, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM}, "EAFNOSUPPORT"},
		{"setsockopt TCP_ULP", unix.SYS_SETSOCKOPT, [6]uintptr{none, unix.SOL_TCP, unix.TCP_ULP}, "ENOPROTOOPT"},
	}
}

// filterProbeAll makes every probe and gives the answers by name.
func filterProbeAll() map[string]string {
	answers := map[string]string{}
	for _, p := range filterProbes() {
		r, _, errno := unix.Syscall6(p.nr, p.args[0], p.args[1], p.args[2], p.args[3], p.args[4], p.args[5])
		answers[p.name] = "OK"
		if errno != 0 {
			answers[p.name] = unix.ErrnoName(errno)
		} else if strings.HasPrefix(p.name, "socket ") || p.name == "userfaultfd" {
			_ = unix.Close(int(r))
		}
	}
	return answers
}

// filterGoProgram does what Go programs do: threads, processes, sockets.
func filterGoProgram() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	failed := make(chan error, 1)
	go func() {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		if err == nil {
			err = conn.Close()
		}
		failed <- err
	}()
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := net.Interfaces(); err != nil {
		return err
	}
	if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
		return err
	}
	return <-failed
}

// filterHelper prepares the test binary in a mode, under a filter unless spec
// is nil.
func filterHelper(t *testing.T, mode string, spec *FilterSpec, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFilterHelper$", "--", strings.Join(argv, "\x1f"))
	cmd.Env = append(os.Environ(), filterHelperEnv+"="+mode)
	cmd.Dir = t.TempDir()
	if spec != nil {
		raw, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, filterSpecEnv+"="+string(raw))
	}
	return cmd
}

// filterAnswers runs the probes in a process of their own.
func filterAnswers(t *testing.T, spec *FilterSpec) map[string]string {
	t.Helper()
	cmd := filterHelper(t, "probe", spec)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helper: %v\n%s%s", err, out, stderr.String())
	}
	answers := map[string]string{}
	if err := json.Unmarshal(out, &answers); err != nil {
		t.Fatalf("helper: %v in %q", err, out)
	}
	return answers
}

func TestFilterInKernel(t *testing.T) {
	bare := filterAnswers(t, nil)
	confined := filterAnswers(t, &FilterSpec{})
	for _, p := range filterProbes() {
		t.Run(p.name, func(t *testing.T) {
			if got := confined[p.name]; got != p.want {
				t.Errorf("inside: got %v, want %v", got, p.want)
			}
			if got := bare[p.name]; got == p.want {
				t.Errorf("control: got %v outside too, so this kernel does not exercise the probe", got)
			}
		})
	}
	opened := filterAnswers(t, &FilterSpec{Ptrace: true, Allow: filterTestNames("@io_uring")})
	for _, name := range []string{"ptrace", "process_vm_readv", "io_uring_setup"} {
		if got, want := opened[name], bare[name]; got != want {
			t.Errorf("%s opened by the policy: got %v, want %v", name, got, want)
		}
	}
}

// filterRequireProgram finds a program that a test needs.
func filterRequireProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		if os.Getenv("HERMES_MUST_WORK") == "1" {
			t.Fatalf("%s is missing: %v", name, err)
		}
		t.Skipf("%s is missing", name)
	}
	return path
}

const filterPython = `
import asyncio, multiprocessing, os, socket, subprocess, tempfile, threading
t = threading.Thread(target=lambda: None); t.start(); t.join()
assert subprocess.run(["/bin/sh", "-c", "exit 7"]).returncode == 7
async def main():
    p = await asyncio.create_subprocess_exec("/bin/true"); await p.wait()
asyncio.run(main())
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, 1]) == [1, 1]
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
socket.if_nameindex(); socket.getaddrinfo("127.0.0.1", 80)
with tempfile.NamedTemporaryFile() as f: f.write(b"x"); f.flush(); os.stat(f.name)
m, s = os.openpty(); os.ttyname(s); os.get_terminal_size(m)
print("done")`

const filterNode = `
const { Worker } = require('worker_threads'), http = require('http'), fs = require('fs'), os = require('os');
const cp = require('child_process');
if (cp.spawnSync('/bin/sh', ['-c', 'exit 7']).status !== 7) process.exit(1);
os.networkInterfaces(); fs.watch('.').close();
new Worker('1', {eval: true}).on('exit', () => {
  const s = http.createServer((q, r) => r.end('ok')).listen(0, '127.0.0.1', () =>
    http.get({port: s.address().port, host: '127.0.0.1', agent: false}, r => { r.resume(); s.close(); console.log('done'); }));
});`

func TestProgramsRunUnderFilter(t *testing.T) {
	tests := []struct {
		name string
		argv []string
	}{
		{"bash", []string{"bash", "-c", `set -e; x=$(echo a | cat); sleep 0 & wait; [ "$x" = a ]; ulimit -n >/dev/null; echo done`}},
		{"python3", []string{"python3", "-c", filterPython}},
		{"node", []string{"node", "-e", filterNode}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			argv := append([]string{filterRequireProgram(t, tt.argv[0])}, tt.argv[1:]...)
			for _, spec := range filterUsual {
				filterWantDone(t, filterHelper(t, "exec", &spec, argv...))
			}
		})
	}
	t.Run("go", func(t *testing.T) {
		for _, spec := range filterUsual {
			filterWantDone(t, filterHelper(t, "program", &spec))
		}
	})
}

// filterWantDone runs a program that says done.
func filterWantDone(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "done") {
		t.Errorf("got %v, want success:\n%s", err, out)
	}
}

func TestFilterUserNamespaces(t *testing.T) {
	unshare := filterRequireProgram(t, "unshare")
	userns := &FilterSpec{UserNamespaces: true}
	tests := []struct {
		name string
		argv []string
		spec *FilterSpec
		ok   bool
	}{
		{"user namespace, no filter", []string{"-U", "true"}, nil, true},
		{"user namespace, base", []string{"-U", "true"}, &FilterSpec{}, false},
		{"user namespace, opened", []string{"-U", "true"}, userns, true},
		{"Chromium's namespaces, no filter", []string{"-Urpn", "--fork", "true"}, nil, true},
		{"Chromium's namespaces, base", []string{"-Urpn", "--fork", "true"}, &FilterSpec{}, false},
		{"Chromium's namespaces, opened", []string{"-Urpn", "--fork", "true"}, userns, true},
		{"mount namespace, no filter", []string{"-Um", "--propagation", "unchanged", "true"}, nil, true},
		{"mount namespace, opened", []string{"-Um", "--propagation", "unchanged", "true"}, userns, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := filterHelper(t, "exec", tt.spec, append([]string{unshare}, tt.argv...)...).CombinedOutput()
			if (err == nil) != tt.ok {
				t.Errorf("got %v, want success %v:\n%s", err, tt.ok, out)
			}
			if !tt.ok && !strings.Contains(string(out), "Operation not permitted") {
				t.Errorf("got %q, want the kernel's EPERM", out)
			}
		})
	}
}

// filterInt80 makes a call through the 32-bit entry: getpid is 20 there.
const filterInt80 = `
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
print("done")`

// filterX32Call makes a call of the x32 ABI; kernels without it say ENOSYS.
const filterX32Call = `
import ctypes
ctypes.CDLL(None).syscall(0x40000000 | 39)
print("done")`

// filterSignal runs a program and returns what killed it, 0 for nothing, and what
// it said.
func filterSignal(t *testing.T, cmd *exec.Cmd) (unix.Signal, string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return 0, string(out)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status := exit.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return status.Signal(), string(out)
	case status.ExitStatus() > 128: // of a shell in between
		return unix.Signal(status.ExitStatus() - 128), string(out)
	}
	t.Fatalf("got %v, want success or a signal:\n%s", err, out)
	return 0, ""
}

func TestForeignABIKills(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // the entries exist on amd64 alone
	}
	python := filterRequireProgram(t, "python3")
	for name, program := range map[string]string{"int 0x80": filterInt80, "x32": filterX32Call} {
		t.Run(name, func(t *testing.T) {
			bare, out := filterSignal(t, filterHelper(t, "exec", nil, python, "-c", program))
			want := unix.SIGSYS
			switch {
			case name == "int 0x80" && bare == unix.SIGSEGV:
				// A machine without a gate for 32-bit calls: the instruction is a
				// fault, and no call is made that a filter could see.
				want = unix.SIGSEGV
			case bare != 0 || strings.TrimSpace(out) != "done":
				t.Fatalf("no filter: got signal %v, want success:\n%s", bare, out)
			}
			if got, out := filterSignal(t, filterHelper(t, "exec", &FilterSpec{}, python, "-c", program)); got != want {
				t.Errorf("got signal %v, want %v:\n%s", got, want, out)
			}
		})
	}
}

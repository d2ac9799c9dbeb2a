package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// feature is one term of an expression like "landlock>=6 kernel>=5.19 !arm64".
type feature struct {
	name string
	not  bool
	than string // "", ">=" or "<"
	with []int
}

var featureTerm = regexp.MustCompile(`^(!?)([a-z0-9_]+)(?:(>=|<)([0-9.]+))?$`)

// parseFeatures reads an expression: terms between blanks or commas, all of
// which must hold.
func parseFeatures(text string) ([]feature, error) {
	var out []feature
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		m := featureTerm.FindStringSubmatch(word)
		if m == nil {
			return nil, fmt.Errorf("kernel: %q: want NAME, !NAME, NAME>=N or NAME<N", word)
		}
		f := feature{name: m[2], not: m[1] != "", than: m[3]}
		if f.than != "" {
			f.with = version(m[4])
		}
		if _, known := probes[f.name]; !known {
			return nil, fmt.Errorf("kernel: %q: no such feature", f.name)
		}
		out = append(out, f)
	}
	return out, nil
}

// lacking says which term of an expression does not hold here; "" when all do.
func lacking(expression string) string {
	terms, err := parseFeatures(expression)
	if err != nil {
		return err.Error()
	}
	for _, f := range terms {
		has := probes[f.name]()
		holds := len(has) > 0
		switch f.than {
		case ">=":
			holds = holds && compare(has, f.with) >= 0
		case "<":
			holds = holds && compare(has, f.with) < 0
		}
		if holds == f.not {
			return fmt.Sprintf("needs %s%s%s%s, found %s", strings.Repeat("!", map[bool]int{true: 1}[f.not]), f.name, f.than, dotted(f.with), found(has))
		}
	}
	return ""
}

func found(v []int) string {
	if len(v) == 0 {
		return "none"
	}
	return dotted(v)
}

// probes say what the kernel has: a version, or nil for nothing.
var probes = map[string]func() []int{ //nolint:gochecknoglobals // a constant
	"kernel": kernelVersion,
	"landlock": func() []int {
		const versionFlag = 1
		n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, versionFlag)
		if errno != 0 {
			return nil
		}
		return []int{int(n)}
	},
	"amd64":    func() []int { return present(machine() == "x86_64") },
	"arm64":    func() []int { return present(machine() == "aarch64") },
	"io_uring": func() []int { return call(unix.SYS_IO_URING_SETUP) },
	"bpf":      func() []int { return call(unix.SYS_BPF) },
	"keyring":  func() []int { return call(unix.SYS_KEYCTL) },
	"sysvipc":  func() []int { return exists("/proc/sysvipc/shm") },
	"mqueue":   func() []int { return exists("/proc/sys/fs/mqueue") },
	"userns":   func() []int { return exists("/proc/self/ns/user") },
	"af_alg":   func() []int { return family(unix.AF_ALG) },
	"cgroups":  func() []int { return exists("/sys/fs/cgroup") },
	// The proof owns the machine, and may say what happens to crashes on it.
	"coreowner":       func() []int { return present(os.Getenv("ESCAPES_OWN_MACHINE") != "") },
	"apparmor_userns": func() []int { return setSysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") },
	"vt":              func() []int { return exists("/dev/tty63") },
	"timens":          func() []int { return exists("/proc/self/ns/time") },
	"ipv6":            func() []int { return exists("/proc/net/if_inet6") },
	"ia32":            func() []int { return present(gate32()) },
	"x32":             func() []int { return call(0x40000000 | unix.SYS_IO_URING_SETUP) },
	"vsock":           func() []int { return exists("/dev/vsock") },
	"fuse":            func() []int { return exists("/dev/fuse") },
	"kvm":             func() []int { return exists("/dev/kvm") },
	"tun":             func() []int { return exists("/dev/net/tun") },
	"yama":            func() []int { return exists("/proc/sys/kernel/yama") },
	"debugfs":         func() []int { return exists("/sys/kernel/debug/tracing") },
	"overlay":         func() []int { return filesystem("overlay") },
	"modules":         func() []int { return exists("/proc/modules") },
	"kexec":           func() []int { return exists("/sys/kernel/kexec_loaded") },
}

func present(ok bool) []int {
	if ok {
		return []int{1}
	}
	return nil
}

func exists(path string) []int {
	_, err := os.Stat(path)
	return present(err == nil)
}

// call tells whether the kernel was built with a system call. Arguments that no
// call accepts keep it from doing anything.
func call(nr uintptr) []int {
	_, _, errno := unix.Syscall6(nr, ^uintptr(0), 0, 0, 0, 0, 0)
	return present(errno != unix.ENOSYS)
}

// gate32 tells whether a bare program can make 32-bit calls. Kernels are built or
// started without them, and some hypervisors do not pass the interrupt on.
var gate32 = sync.OnceValue(runs32)

// runs32 executes the smallest program of the 32-bit ABI, which only exits.
func runs32() bool {
	program := []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x03\x00\x01\x00\x00\x00" +
		"\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x5d\x00\x00\x00\x5d\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
		"\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80")
	dir, err := os.MkdirTemp("", "escapes-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	return os.WriteFile(path, program, 0o755) == nil && exec.Command(path).Run() == nil
}

func filesystem(name string) []int {
	text, _ := os.ReadFile("/proc/filesystems")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == name {
			return []int{1}
		}
	}
	return nil
}

func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Machine[:])
}

func kernelVersion() []int {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return version(unix.ByteSliceToString(u.Release[:]))
}

var digits = regexp.MustCompile(`^[0-9]+`)

func version(text string) []int {
	var out []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(digits.FindString(part))
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

func dotted(v []int) string {
	var words []string
	for _, n := range v {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ".")
}

func compare(a, b []int) int {
	for i := range max(len(a), len(b)) {
		x, y := 0, 0
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x - y
		}
	}
	return 0
}

// family tells whether sockets of a family can be made.
func family(domain int) []int {
	fd, err := unix.Socket(domain, unix.SOCK_SEQPACKET, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return present(err == nil)
}

func setSysctl(path string) []int {
	b, err := os.ReadFile(path)
	return present(err == nil && strings.TrimSpace(string(b)) != "0")
}

package sandbox

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

var filterUpdate = flag.Bool("update", false, "write golden files and embedded filters anew")

// filterArches are the architectures that filters are shipped for.
var filterArches = []string{"amd64", "arm64"}

// filterUsual are the specs with an embedded filter.
var filterUsual = []FilterSpec{
	{}, {UserNamespaces: true}, {Ptrace: true}, {UserNamespaces: true, Ptrace: true},
}

// simFilter compiles a spec for the simulator.
func simFilter(t *testing.T, arch string, s FilterSpec) func(call string, args ...uint64) string {
	t.Helper()
	raw, err := filterCompile(arch, s)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := filterDecode(raw)
	if err != nil {
		t.Fatal(err)
	}
	audit, err := filterAudit(arch)
	if err != nil {
		t.Fatal(err)
	}
	actions, err := filterActions(s)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := filterNumbersOf(arch, filterSorted(actions))
	if err != nil {
		t.Fatal(err)
	}
	return func(call string, args ...uint64) string {
		t.Helper()
		nr, ok := numbers[call]
		if !ok {
			t.Fatalf("%s has no number on %s", call, arch)
		}
		d := filterData{nr: nr, arch: audit}
		copy(d.args[:], args)
		return simRun(t, prog, d)
	}
}

// simRun gives the outcome of a program in a word: allow, kill or an errno.
func simRun(t *testing.T, prog []filterInstr, d filterData) string {
	t.Helper()
	r, err := filterRun(prog, d)
	if err != nil {
		t.Fatal(err)
	}
	switch r.action {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill"
	case unix.SECCOMP_RET_ERRNO:
		return unix.ErrnoName(r.errno)
	}
	return fmt.Sprintf("action %#x", r.action)
}

func TestEmbeddedFilters(t *testing.T) {
	for _, arch := range filterArches {
		for _, s := range append(slices.Clone(filterUsual), proxyFilterSpec()) {
			name := filterFile(arch, s)
			t.Run(name, func(t *testing.T) {
				fresh, err := filterCompile(arch, s)
				if err != nil {
					t.Fatal(err)
				}
				if *filterUpdate {
					if err := os.WriteFile(filepath.Join("filters", name), fresh, 0o644); err != nil {
						t.Fatal(err)
					}
					return
				}
				shipped, err := filterFiles.ReadFile("filters/" + name)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(shipped, fresh) {
					return
				}
				// Another libseccomp may order the tree otherwise; it must
				// not decide otherwise.
				if major, minor, micro := libseccomp.GetLibraryVersion(); major == 2 && minor == 5 && micro == 4 {
					t.Fatal("the embedded filter is out of date; run go generate")
				}
				if diff := cmp.Diff(simTable(t, arch, s, fresh), simTable(t, arch, s, shipped)); diff != "" {
					t.Errorf("fresh (-) and embedded (+) filter differ:\n%s", diff)
				}
			})
		}
	}
}

// simTable describes a program: each number with its name and its answer.
func simTable(t *testing.T, arch string, s FilterSpec, raw []byte) string {
	t.Helper()
	prog, err := filterDecode(raw)
	if err != nil {
		t.Fatal(err)
	}
	audit, err := filterAudit(arch)
	if err != nil {
		t.Fatal(err)
	}
	actions, err := filterActions(s)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := filterNumbersOf(arch, filterSorted(actions))
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]filterCheck{}
	for _, c := range filterChecks(s.UserNamespaces) {
		checks[c.call] = c
	}
	names := map[uint32]string{}
	for name, nr := range numbers {
		names[nr] = name
	}
	var b strings.Builder
	for _, nr := range slices.Sorted(maps.Keys(names)) {
		name := names[nr]
		set, _ := syscallSetOf(name)
		line := fmt.Sprintf("%3d %-24s %-20s %s", nr, name, set.name,
			simRun(t, prog, filterData{nr: nr, arch: audit, args: checks[name].pass}))
		if c, ok := checks[name]; ok && strings.HasSuffix(line, "allow") {
			line += " " + c.says
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestFilterGolden(t *testing.T) {
	for _, arch := range filterArches {
		t.Run(arch, func(t *testing.T) {
			raw, err := filterCompile(arch, FilterSpec{})
			if err != nil {
				t.Fatal(err)
			}
			got := simTable(t, arch, FilterSpec{}, raw)
			file := filepath.Join("testdata", "filter_"+arch+".golden")
			if *filterUpdate {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the filter changed (-want +got); review each line and run with -update:\n%s", diff)
			}
		})
	}
}

func TestFilterUnknownNumbersAnswerENOSYS(t *testing.T) {
	for _, arch := range filterArches {
		for _, s := range filterUsual {
			raw, err := filterCompile(arch, s)
			if err != nil {
				t.Fatal(err)
			}
			prog, err := filterDecode(raw)
			if err != nil {
				t.Fatal(err)
			}
			audit, _ := filterAudit(arch)
			numbers, err := filterNumbersOf(arch, syscallNames())
			if err != nil {
				t.Fatal(err)
			}
			known := map[uint32]bool{}
			for _, nr := range numbers {
				known[nr] = true
			}
			for nr := range uint32(600) {
				if known[nr] {
					continue
				}
				if got := simRun(t, prog, filterData{nr: nr, arch: audit}); got != "ENOSYS" {
					t.Errorf("%s: number %d: got %v, want ENOSYS", arch, nr, got)
				}
			}
			for _, nr := range []uint32{0x3fffffff, 0xffffffff} {
				if got := simRun(t, prog, filterData{nr: nr, arch: audit}); got != "ENOSYS" {
					t.Errorf("%s: number %#x: got %v, want ENOSYS", arch, nr, got)
				}
			}
		}
	}
}

func TestFilterForeignABI(t *testing.T) {
	foreign := map[string]uint32{
		"i386": unix.AUDIT_ARCH_I386, "arm": unix.AUDIT_ARCH_ARM, "riscv64": unix.AUDIT_ARCH_RISCV64,
		"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "zero": 0,
	}
	for _, arch := range filterArches {
		for _, s := range filterUsual {
			raw, err := filterCompile(arch, s)
			if err != nil {
				t.Fatal(err)
			}
			prog, err := filterDecode(raw)
			if err != nil {
				t.Fatal(err)
			}
			for name, audit := range foreign {
				if name == arch {
					continue
				}
				for nr := range uint32(600) {
					if got := simRun(t, prog, filterData{nr: nr, arch: audit}); got != "kill" {
						t.Fatalf("%s filter, %s call %d: got %v, want kill", arch, name, nr, got)
					}
				}
			}
			// arm64 has no x32: the numbers are merely unknown there.
			want := map[string]string{"amd64": "kill", "arm64": "ENOSYS"}[arch]
			for nr := range uint32(600) {
				d := filterData{nr: filterX32 | nr, arch: foreign[arch]}
				if got := simRun(t, prog, d); got != want {
					t.Fatalf("%s: x32 call %d: got %v, want %v", arch, nr, got, want)
				}
			}
		}
	}
}

package sandbox

import (
	"fmt"
	"io"
	"os"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// filterScmpArch translates an architecture's name.
func filterScmpArch(arch string) (libseccomp.ScmpArch, error) {
	switch arch {
	case "amd64":
		return libseccomp.ArchAMD64, nil
	case "arm64":
		return libseccomp.ArchARM64, nil
	}
	return libseccomp.ArchInvalid, fmt.Errorf("compile filter: libseccomp has no architecture for %q", arch)
}

// filterNumbersOf gives the numbers of calls on an architecture. Calls that it
// does not have are left out; a name that libseccomp does not know at all is
// an error.
func filterNumbersOf(arch string, calls []string) (map[string]uint32, error) {
	scmp, err := filterScmpArch(arch)
	if err != nil {
		return nil, err
	}
	late, trampolines := syscallLate(), syscallTrampolines()
	numbers := make(map[string]uint32, len(calls))
	for _, call := range calls {
		if n, ok := late[call]; ok {
			numbers[call] = n
			continue
		}
		if n, ok := trampolines[call]; ok {
			if arch == "amd64" {
				numbers[call] = n
			}
			continue
		}
		n, err := libseccomp.GetSyscallFromNameByArch(call, scmp)
		if err != nil {
			return nil, fmt.Errorf("resolve system call %q: %w", call, err)
		}
		if n >= 0 { // libseccomp numbers calls of other architectures below zero
			numbers[call] = uint32(n)
		}
	}
	return numbers, nil
}

// filterTree is the second part of the program, made by libseccomp: a binary
// tree over the numbers. A foreign architecture (and on amd64 the x32 ABI)
// kills the process; a number without a rule answers ENOSYS, so that programs
// fall back as on an older kernel.
func filterTree(arch string, actions map[string]filterAction) ([]filterInstr, error) {
	unknown := libseccomp.ActErrno.SetReturnCode(int16(unix.ENOSYS))
	f, err := libseccomp.NewFilter(unknown)
	if err != nil {
		return nil, fmt.Errorf("compile filter: %w", err)
	}
	defer f.Release()
	if err := filterOnlyArch(f, arch); err != nil {
		return nil, fmt.Errorf("compile filter for %q: %w", arch, err)
	}
	if err := f.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("compile filter: kill on a foreign architecture: %w", err)
	}
	if err := f.SetOptimize(2); err != nil {
		return nil, fmt.Errorf("compile filter: binary tree: %w", err)
	}
	for _, call := range filterSorted(actions) {
		if err := filterRule(f, call, actions[call]); err != nil {
			return nil, fmt.Errorf("compile filter: rule for %q: %w", call, err)
		}
	}
	raw, err := filterExport(f)
	if err != nil {
		return nil, fmt.Errorf("compile filter: export: %w", err)
	}
	return filterDecode(raw)
}

// filterOnlyArch makes arch the one architecture of a new filter.
func filterOnlyArch(f *libseccomp.ScmpFilter, arch string) error {
	want, err := filterScmpArch(arch)
	if err != nil {
		return err
	}
	native, err := libseccomp.GetNativeArch()
	if err != nil || native == want {
		return err
	}
	if err := f.AddArch(want); err != nil {
		return err
	}
	return f.RemoveArch(native)
}

// filterRule adds what happens to one call. ENOSYS is what a call without a
// rule answers, and libseccomp refuses a rule that says the default.
func filterRule(f *libseccomp.ScmpFilter, call string, a filterAction) error {
	if _, ours := syscallLate()[call]; ours {
		return nil
	}
	if _, ours := syscallTrampolines()[call]; ours {
		return nil
	}
	if !a.allow && a.errno == unix.ENOSYS {
		return nil
	}
	// Rules take the number of the machine that compiles, whatever the
	// architecture of the filter.
	n, err := libseccomp.GetSyscallFromName(call)
	if err != nil {
		return err
	}
	if a.allow {
		return f.AddRule(n, libseccomp.ActAllow)
	}
	return f.AddRule(n, libseccomp.ActErrno.SetReturnCode(int16(a.errno)))
}

// filterExport reads the program back through a file: libseccomp 2.5 can
// write it nowhere else.
func filterExport(f *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

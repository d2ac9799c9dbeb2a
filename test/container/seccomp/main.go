// Command seccomp runs a command below the default filter of container engines
// (Docker, containerd, Podman ship the same list), for a process without
// capabilities.
package main

import (
	"fmt"
	"os"
	"runtime"

	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func main() {
	runtime.LockOSThread()
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "seccomp:", err)
		os.Exit(99)
	}
	err := unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	fmt.Fprintln(os.Stderr, "seccomp:", err)
	os.Exit(99)
}

func confine() error {
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	profile, err := moby.GetDefaultProfile(spec)
	if err != nil {
		return err
	}
	config, err := specconv.SetupSeccomp(profile)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, err = seccomp.InitSeccomp(config)
	return err
}

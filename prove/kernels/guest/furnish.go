package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

// furnish mounts what a service manager would have mounted.
func furnish(job protocol.Job) error {
	mounts := []mount{
		{"sys", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"pts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"sec", "/sys/kernel/security", "securityfs", 0, ""},
	}
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := os.MkdirAll("/run/user/"+strconv.Itoa(userID), 0o700); err != nil {
		return err
	}
	if err := os.Chown("/run/user/"+strconv.Itoa(userID), userID, userID); err != nil {
		return err
	}
	return cgroups(job.Cgroups)
}

func cgroups(layout string) error {
	const root = "/sys/fs/cgroup"
	switch layout {
	case "", "none":
		return nil
	case "v2", "delegated":
		if err := (mount{"cgroup", root, "cgroup2", 0, ""}).do(); err != nil {
			return err
		}
		if layout == "v2" {
			return nil
		}
		return delegate(root)
	case "v1":
		if err := (mount{"cgroup", root, "tmpfs", 0, "mode=755"}).do(); err != nil {
			return err
		}
		for _, c := range []string{"memory", "pids", "cpu", "devices", "freezer"} {
			if err := (mount{"cgroup", filepath.Join(root, c), "cgroup", 0, c}).do(); err != nil {
				return err
			}
		}
		return (mount{"cgroup", filepath.Join(root, "systemd"), "cgroup", 0, "none,name=systemd"}).do()
	}
	return fmt.Errorf("no cgroup layout %q", layout)
}

// delegate gives the user a subtree as systemd's Delegate=yes does: the
// directory, and the files by which processes and controllers move in it.
func delegate(root string) error {
	const controllers = "+memory +pids +cpu"
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return err
	}
	dir := filepath.Join(root, "user")
	if err := os.MkdirAll(filepath.Join(dir, "session"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(dir, "session")} {
		for _, name := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(d, name), userID, userID); err != nil {
				return err
			}
		}
	}
	return nil
}

// addresses are where the guest's servers listen. There is no other network.
func addresses() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"addr", "add", "203.0.113.10/32", "dev", "lo"}, {"addr", "add", "203.0.113.11/32", "dev", "lo"},
	} {
		if out, err := exec.Command("/usr/sbin/ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

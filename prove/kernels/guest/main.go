// Command guest is what runs inside of the emulated machines of prove/kernels:
// the first process of the initramfs, then the first process of the root file
// system (or a service of systemd's there), which carries out one job and
// writes what came out of it on a disk. It decides nothing: whoever started the
// machine judges.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] != "steps" {
		if err := act(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	do := stepsMain
	if len(os.Args) == 1 {
		do = early
	}
	err := do()
	if err != nil {
		fmt.Fprintf(os.Stdout, "%s: %v\n", protocol.Lost, err)
	}
	unix.Sync()
	// The last console line has to leave the machine before it goes.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// act is what the program does inside of a sandbox.
func act(what string, args []string) error {
	switch what {
	case "probe":
		return probe(args)
	case "memory":
		return bombMemory()
	case "fork":
		return bombFork()
	case "burn":
		return burn()
	case "fetch":
		return fetch()
	}
	return fmt.Errorf("nothing to do that is called %q", what)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// early is the initramfs: it loads the drivers of the disks and goes over to the
// root file system.
func early() error {
	for _, m := range []mount{
		{"proc", "/proc", "proc", 0, ""}, {"dev", "/dev", "devtmpfs", 0, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	order, err := os.ReadFile("/order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		if err := load(name); err != nil {
			return err
		}
	}
	if exists("/in/job.json") {
		return stepsMain()
	}
	for _, m := range []mount{
		{protocol.DiskRoot, "/new", "ext4", 0, ""},
		{protocol.DiskModules, "/new/lib/modules", "ext4", unix.MS_RDONLY, ""},
		{protocol.DiskIn, "/new/in", "ext4", unix.MS_RDONLY, ""},
		{"/dev", "/new/dev", "", unix.MS_MOVE, ""},
		{"/proc", "/new/proc", "", unix.MS_MOVE, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := unix.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	job, err := readJob()
	if err != nil {
		return err
	}
	env := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb"}
	if job.Systemd {
		return unix.Exec("/lib/systemd/systemd", []string{"systemd"}, env)
	}
	return unix.Exec("/in/guest", []string{"guest", "steps"}, env)
}

// load inserts one module of the initramfs.
func load(name string) error {
	f, err := os.Open(filepath.Join("/", name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", name, err)
	}
	return nil
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

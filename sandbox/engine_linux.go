package sandbox

import (
	"fmt"
	"os"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	// The C constructor that enters the namespaces before the Go runtime starts.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"golang.org/x/sys/unix"
)

// container is the running sandbox as libcontainer holds it.
type container struct {
	c *libcontainer.Container
	p *libcontainer.Process
}

// createContainer writes the container's state below stateDir; nothing runs yet.
func createContainer(stateDir, id, root string, p Plan) (*container, error) {
	c, err := libcontainer.Create(stateDir, id, containerConfig(id, root, p))
	if err != nil {
		return nil, err
	}
	return &container{c: c}, nil
}

// start runs init with the standard streams and the inherited descriptors.
func (c *container) start(stdio [3]*os.File, extra []*os.File) error {
	c.p = &libcontainer.Process{
		Args:  []string{fmt.Sprintf("/proc/self/fd/%d", fdSelf), stageArgPidOne},
		Env:   []string{"GOMAXPROCS=2", "GODEBUG="},
		Cwd:   "/",
		Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2],
		ExtraFiles: extra,
		Init:       true,
	}
	return c.c.Run(c.p)
}

func (c *container) pid() int {
	pid, err := c.p.Pid()
	if err != nil {
		return 0
	}
	return pid
}

// kill ends init and with it everything in its pid namespace.
func (c *container) kill() { _ = c.c.Signal(unix.SIGKILL) }

// destroy waits for init and removes what libcontainer keeps about it.
func (c *container) destroy() error {
	if c.p != nil {
		_, _ = c.p.Wait()
	}
	return c.c.Destroy()
}

// containerConfig leaves to libcontainer the namespaces, the id maps, /proc,
// /dev, the masked paths, the pivot, the cgroup and the capabilities of init.
// Seccomp stays nil: it would be loaded before Landlock.
func containerConfig(id, root string, p Plan) *configs.Config {
	// Init needs three capabilities until the agent runs: to map the agent's
	// ids over its own user 0 (SETFCAP, since Linux 5.12), and to write the
	// maps of its child (SETUID, SETGID).
	caps := []string{"CAP_SETFCAP", "CAP_SETUID", "CAP_SETGID"}
	return &configs.Config{
		Rootfs:       root,
		Readonlyfs:   true,
		Hostname:     p.Hostname,
		NoNewKeyring: false,
		Namespaces: configs.Namespaces{
			{Type: configs.NEWUSER}, {Type: configs.NEWNS}, {Type: configs.NEWPID},
			{Type: configs.NEWNET}, {Type: configs.NEWIPC}, {Type: configs.NEWUTS}, {Type: configs.NEWCGROUP},
		},
		UIDMappings:     []configs.IDMap{{ContainerID: 0, HostID: int64(os.Geteuid()), Size: 1}},
		GIDMappings:     []configs.IDMap{{ContainerID: 0, HostID: int64(os.Getegid()), Size: 1}},
		Capabilities:    &configs.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
		Cgroups:         p.Limits.Cgroup(id),
		RootlessEUID:    os.Geteuid() != 0,
		RootlessCgroups: os.Geteuid() != 0,
		Mounts:          systemMounts(p),
		Devices:         standardDevices(),
		MaskPaths:       maskedPaths(os.Geteuid() == 0),
		ReadonlyPaths:   readonlyPaths(os.Geteuid() == 0, p),
	}
}

// maskedPaths are the entries of /proc that tell of the host. What only host
// user 0 can open is covered when we are that user; each cover costs a mount.
func maskedPaths(hostRoot bool) []string {
	paths := []string{"/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/modules", "/proc/config.gz"}
	if !hostRoot {
		return paths
	}
	return append(paths, "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/kpagecount", "/proc/kpageflags", "/proc/sysrq-trigger")
}

// readonlyPaths are what the owner could write: host user 0 owns all of it, and
// an ordinary user the settings of the sandbox's own namespaces. The device
// nodes are the host's own inodes: a read-only mount lets them be written to and
// keeps their owner from a chmod(2) that the host would see.
func readonlyPaths(hostRoot bool, p Plan) []string {
	if !hostRoot {
		return append([]string{"/proc/sys"}, p.Devices...)
	}
	paths := append([]string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}, p.Devices...)
	for _, d := range standardDevices() {
		paths = append(paths, d.Path)
	}
	return paths
}

// systemMounts are the file systems that are the sandbox's own instances.
func systemMounts(p Plan) []*configs.Mount {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	ms := []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: plain},
		{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_RDONLY, Data: "mode=755,size=64k"},
		{Source: "devpts", Destination: "/dev/pts", Device: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Data: "newinstance,ptmxmode=0666,mode=0620"},
		{Source: "shm", Destination: "/dev/shm", Device: "tmpfs", Flags: plain, Data: fmt.Sprintf("mode=1777,size=%d", p.ShmSize)},
		{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: plain},
	}
	for _, d := range p.Devices {
		ms = append(ms, &configs.Mount{Source: d, Destination: d, Device: "bind", Flags: unix.MS_BIND | unix.MS_NOSUID | unix.MS_NOEXEC})
	}
	return ms
}

// standardDevices leaves out the wildcard entries, which are cgroup rules only.
func standardDevices() (list []*devices.Device) {
	for _, d := range specconv.AllowedDevices {
		if d.Path != "" && d.Path != "/dev/ptmx" {
			list = append(list, d)
		}
	}
	return list
}

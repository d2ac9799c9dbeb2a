package sandbox

import (
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	// The C constructor that enters the namespaces before the Go runtime starts.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// container is the running sandbox as libcontainer holds it.
type container struct {
	c *libcontainer.Container
	p *libcontainer.Process
}

// createContainer writes the container's state below stateDir; nothing runs yet.
func createContainer(stateDir, id, root string, p Plan) (*container, error) {
	// The library logs beside returning its errors; stderr is the command's.
	logrus.SetOutput(io.Discard)
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
		Env:   []string{"GOMAXPROCS=1", "GODEBUG="},
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

// kill ends init and with it everything in its pid namespace. Where not even the
// fork succeeded there is nothing to end, and libcontainer's Signal would follow
// a process that is not there.
func (c *container) kill() {
	if c.pid() > 0 {
		_ = c.c.Signal(unix.SIGKILL)
	}
}

// destroy waits for init and removes what libcontainer keeps about it.
func (c *container) destroy() error {
	if c.p != nil {
		_, _ = c.p.Wait()
	}
	return c.c.Destroy()
}

// containerConfig leaves to libcontainer the namespaces, the id maps, the pivot,
// the cgroup, the session keyring and the capabilities of init.
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
			{Type: configs.NEWUSER},
			{Type: configs.NEWNS},
			{Type: configs.NEWPID},
			{Type: configs.NEWNET},
			{Type: configs.NEWIPC},
			{Type: configs.NEWUTS},
			{Type: configs.NEWCGROUP},
		},
		UIDMappings:     []configs.IDMap{{ContainerID: 0, HostID: int64(os.Geteuid()), Size: 1}},
		GIDMappings:     []configs.IDMap{{ContainerID: 0, HostID: int64(os.Getegid()), Size: 1}},
		Capabilities:    &configs.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
		Cgroups:         p.Limits.Cgroup(id),
		RootlessEUID:    os.Geteuid() != 0,
		RootlessCgroups: os.Geteuid() != 0,
		// /dev is made already; a bind onto it tells libcontainer to leave it alone.
		Mounts: []*configs.Mount{{
			Source: root + "/dev", Destination: "/dev", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC,
		}},
	}
}

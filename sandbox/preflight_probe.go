package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ProbeName is the name (argv[0]) under which our executable is the throw-away
// sandbox of Preflight.
const ProbeName = "hermes-wrap: probe"

const probeFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// ProbeHooks are attempts that another part of the package knows how to make.
type ProbeHooks struct {
	// Tproxy sets up the capture of every TCP port in the current network
	// namespace, where lo is up. nil: not tried.
	Tproxy func() error
}

// probeNamespaces builds the throw-away sandbox and reports step by step. The
// steps are apart, because AppArmor lets the clone pass and refuses what follows.
func probeNamespaces(ctx context.Context) []probeResult {
	cmd := probeCommand(ctx)
	// 0 is mapped, as libcontainer's stages need it.
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return []probeResult{newProbeResult(probeClone, err)}
	}
	if err := cmd.Start(); err != nil {
		return probeStart(ctx, err)
	}
	defer cmd.Wait()
	defer in.Close()
	results := []probeResult{{Step: probeClone}, {Step: probeMap}}
	// The namespace we are in, so that the stage can see that it is in another.
	outside, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return results
	}
	fmt.Fprintln(in, outside)
	return append(results, parseProbe(out)...)
}

// probeStart tells a refused clone from refused id maps: without maps, only
// the former can fail.
func probeStart(ctx context.Context, failure error) []probeResult {
	cmd := probeCommand(ctx)
	if err := cmd.Start(); err != nil {
		return []probeResult{newProbeResult(probeClone, fmt.Errorf("clone: %w", errno(err)))}
	}
	_ = cmd.Wait() // it reads the end of its input and leaves
	return []probeResult{{Step: probeClone}, newProbeResult(probeMap, fmt.Errorf("write id maps: %w", errno(failure)))}
}

func probeCommand(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{ProbeName}
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: probeFlags, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// parseProbe reads the stage's report: one JSON object a line.
func parseProbe(r io.Reader) []probeResult {
	var all []probeResult
	for s := bufio.NewScanner(r); s.Scan(); {
		var p probeResult
		if json.Unmarshal(s.Bytes(), &p) == nil {
			all = append(all, p)
		}
	}
	return all
}

// ProbeStage is the inside of the throw-away sandbox. main calls it first; it
// returns at once unless this process was started as one, and does not return
// from one. It acts only as PID 1 of a user namespace that is not its parent's:
// typed by hand, it does nothing.
func ProbeStage(hooks ProbeHooks) {
	if len(os.Args) != 1 || os.Args[0] != ProbeName {
		return
	}
	outside, err := bufio.NewReader(os.Stdin).ReadString('\n')
	inside, linkErr := os.Readlink("/proc/self/ns/user")
	if err != nil || linkErr != nil || os.Getpid() != 1 || outside == inside+"\n" {
		os.Exit(exitProbe)
	}
	for _, s := range probeSteps(hooks) {
		err := s.try()
		b, _ := json.Marshal(newProbeResult(s.step, err))
		fmt.Printf("%s\n", b)
		if err != nil && s.step == probeMount {
			break // what follows would touch the directories of the host
		}
	}
	os.Exit(0)
}

const exitProbe = 125

type probeStep struct {
	step string
	try  func() error
}

func probeSteps(hooks ProbeHooks) []probeStep {
	steps := []probeStep{{probeLoopback, tryLoopback}}
	if hooks.Tproxy != nil {
		steps = append(steps, probeStep{probeTproxy, hooks.Tproxy})
	}
	return append(steps, probeStep{probeMount, tryMount}, probeStep{probeProc, tryProc},
		probeStep{probeNested, tryNested}, probeStep{probeLook, tryLook}, probeStep{probeOverlay, tryOverlay}, probeStep{probePivot, tryPivot})
}

// probeDir is a directory that every machine has; a tmpfs covers it inside.
const probeDir = "/tmp"

// tryNested starts ourselves once more, which then finds nothing to do. The map
// shows another id for our 0, as the agent's does. It is written under the pid
// that we know, so only where /proc is that of our own pid namespace.
func tryNested() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{ProbeName}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	if self, err := os.Readlink("/proc/self"); err == nil && self == "1" {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in a second user namespace: %w", errno(err))
	}
	_ = cmd.Wait()
	return nil
}

// tryLook takes a descriptor of a child of ours, which waits for its input and
// leaves: what the guard of protected names does with the agent's.
func tryLook() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{ProbeName}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a child: %w", errno(err))
	}
	defer cmd.Wait()
	defer in.Close()
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 0, 0)
	if err != nil {
		return fmt.Errorf("pidfd_getfd: %w", err)
	}
	return unix.Close(fd)
}

// errno keeps the kernel's words of an error of package os.
func errno(err error) error {
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

func tryLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	return nil
}

func tryMount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("probe", probeDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	// What is set is set already: the question is whether the kernel has the call.
	if err := unix.MountSetattr(unix.AT_FDCWD, probeDir, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

func tryProc() error {
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return nil
}

func tryOverlay() error {
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probeDir, d), 0o700); err != nil {
			return err
		}
	}
	// A tmpfs holds user attributes since Linux 6.6.
	if err := unix.Setxattr(filepath.Join(probeDir, "upper"), "user.hermes-wrap", []byte{1}, 0); err != nil {
		return fmt.Errorf("set a user attribute on a tmpfs (layers are kept on disk then): %w", err)
	}
	options := fmt.Sprintf("%[2]s,lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probeDir, overlayOptions)
	if err := unix.Mount("overlay", filepath.Join(probeDir, "merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// tryPivot comes last: nothing of the old root is in reach afterwards.
func tryPivot() error {
	if err := unix.Chdir(probeDir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return nil
}

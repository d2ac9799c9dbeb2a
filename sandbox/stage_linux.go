package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// Descriptors that the stages inside inherit, in the order of the launcher's
// list (they start at 3).
const (
	fdControl = 3
	fdSpec    = 4
	fdSelf    = 5 // our own sealed executable
	fdProc    = 6 // a writable mount of the sandbox's /proc that no path leads to
	fdStderr  = 7 // the command's standard error; theirs is for the Go runtime alone
)

// stageInit is the first act inside the namespaces: already PID 1, with every
// capability in the new user namespace and the host's files still in view. It
// makes the network and the private root, and leaves the rest to libcontainer.
func stageInit() error {
	debug.SetGCPercent(-1)
	c := OpenChannel(fdControl)
	s, err := readSpec(os.NewFile(fdSpec, "plan"))
	if err == nil {
		err = prepareInside(c, s)
	}
	if err != nil {
		return reportFailure(c, StepContainer, err)
	}
	return nil
}

func prepareInside(c *Channel, s spec) error {
	// The launcher's death ends the tree: this, and the end of the control
	// connection that PID 1 waits for.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return stepErr(StepContainer, fmt.Errorf("set parent-death signal: %w", err))
	}
	if err := keepSelf(); err != nil {
		return stepErr(StepContainer, err)
	}
	if err := boundUserNamespaces(s.Plan); err != nil {
		return stepErr(StepContainer, err)
	}
	network := make(chan error, 1)
	go func() { network <- offerDoors(c, s.Plan) }()
	in := &inbox{control: c}
	layers := newLayerMaker(s.Plan, s.Layers)
	layers.ask, layers.say = in.directories, in.progress
	if err := buildRoot(s.Root, s.Plan.View, (&blobReader{inbox: in}).read, layers); err != nil {
		return stepErr(StepRoot, err)
	}
	if err := in.hand(layers); err != nil {
		return stepErr(StepRoot, err)
	}
	if err := keepProc(); err != nil {
		return stepErr(StepRoot, err)
	}
	return stepErr(StepNetwork, <-network)
}

// inbox sorts what the launcher sends to this stage.
type inbox struct {
	control *Channel
	early   []message
}

// want waits for a message of one kind and keeps the others.
func (b *inbox) want(op string) (message, error) {
	for i, m := range b.early {
		if m.Op == op {
			b.early = slices.Delete(b.early, i, i+1)
			return m, nil
		}
	}
	for {
		m, err := b.control.receive()
		if err != nil || m.Op == op {
			return m, err
		}
		b.early = append(b.early, m)
	}
}

// ask sends a request and waits for its answer, which may be a refusal.
func (b *inbox) ask(m message, answer string) (message, error) {
	if err := b.control.send(m); err != nil {
		return message{}, err
	}
	a, err := b.want(answer)
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

func (b *inbox) directories() ([]LayerDir, error) {
	m, err := b.ask(message{Op: opWant}, opDirs)
	return m.Dirs, err
}

func (b *inbox) progress(text string) { _ = b.control.send(message{Op: opCopying, Found: text}) }

// hand tells the launcher what the layers are, before anything can be written
// to them, and who holds them: our own process, by the host's number.
func (b *inbox) hand(m *layerMaker) error {
	defer closeAll(m.files)
	if len(m.made) == 0 {
		return nil
	}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(self)
	if err != nil {
		return fmt.Errorf("parse own process id: %w", err)
	}
	_, err = b.ask(message{Op: opLayers, Layers: m.made, Pid: pid, files: m.files}, opKept)
	return err
}

// blobReader gives the large content that the launcher sends, in one message,
// while the container is being made.
type blobReader struct {
	inbox *inbox
	got   map[Blob][]byte
}

func (b *blobReader) read(name Blob) ([]byte, error) {
	if b.got == nil {
		if err := b.receive(); err != nil {
			return nil, fmt.Errorf("wait for the %s: %w", name, err)
		}
	}
	data, ok := b.got[name]
	if !ok {
		return nil, fmt.Errorf("wait for the %s: the launcher sent none", name)
	}
	return data, nil
}

func (b *blobReader) receive() error {
	m, err := b.inbox.want(opBlobs)
	defer closeAll(m.files)
	if err != nil || len(m.files) != len(m.Blobs) {
		return errors.Join(err, errors.New("the launcher sent none"))
	}
	b.got = map[Blob][]byte{}
	for i, f := range m.files {
		if b.got[m.Blobs[i]], err = ReadSealed(f); err != nil {
			return err
		}
	}
	return nil
}

// keepSelf puts our sealed executable where PID 1 is executed from, so that no
// file of ours needs to lie inside.
func keepSelf() error {
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open own executable: %w", err)
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, fdSelf, 0)
}

// keepProc leaves PID 1 a way to write the agent's id maps: /proc as it is
// mounted inside is read-only, because what an owner changes there (the mode of
// an entry, as host user 0) would hold on the host too.
func keepProc() error {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open proc: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("configure proc: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return fmt.Errorf("mount proc for init: %w", err)
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, fdProc, 0)
}

// boundUserNamespaces is the second lock on nested namespaces beside the
// filter: the agent's own is the only one this namespace may hold.
func boundUserNamespaces(p Plan) error {
	if p.UserNS {
		return nil
	}
	err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func offerDoors(c *Channel, p Plan) error {
	d, err := openDoors(p)
	if err != nil {
		return err
	}
	defer d.close()
	m := message{Op: opNetwork, Found: d.lack, Status: len(d.listeners)}
	m.files = append(append(m.files, d.listeners...), d.resolvers...)
	return c.send(m)
}

// reportFailure tells the launcher which step failed, with the kernel's own
// error, before libcontainer reports no more than an early exit.
func reportFailure(c *Channel, at Step, err error) error {
	m := message{Op: opFailed, Step: string(at), Error: err.Error()}
	var se *StepError
	if errors.As(err, &se) {
		m.Step, m.Error = string(se.Step), se.Err.Error()
	}
	var no unix.Errno
	if errors.As(err, &no) {
		m.Errno = int(no)
	}
	return errors.Join(err, c.send(m))
}

// RunStage runs the stage that this process was started as, and does not
// return from one; for a command that somebody typed it does nothing. It must
// be the first call of main.
func RunStage() {
	runKeeper()
	runMeasure()
	if len(os.Args) != 2 {
		return
	}
	switch {
	case os.Args[1] == stageArgInit && os.Getenv("_LIBCONTAINER_INITPIPE") != "":
		// A process that joins a sandbox has no root and no network to make.
		if os.Getenv("_LIBCONTAINER_INITTYPE") != "setns" {
			if err := stageInit(); err != nil {
				os.Exit(exitFailed)
			}
		}
		libcontainer.Init()
	case os.Args[1] == stageArgCover && os.Args[0] == fmt.Sprintf("/proc/self/fd/%d", fdCoverSelf):
		if err := stageCover(); err != nil {
			fmt.Fprintln(os.Stderr, "hermes-wrap: cover:", err)
			os.Exit(exitFailed)
		}
		os.Exit(0)
	case os.Args[1] == stageArgPidOne && os.Getpid() == 1 && os.Args[0] == fmt.Sprintf("/proc/self/fd/%d", fdSelf):
		if err := stagePidOne(); err != nil {
			os.Exit(exitFailed)
		}
		os.Exit(0)
	}
}

const exitFailed = 125

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// pidOne is PID 1 of the sandbox: it starts the agent, gives up every
// capability, reaps, passes signals on, and ends with the agent or with the
// launcher, whichever is first; the kernel then ends everything inside.
type pidOne struct {
	c     *Channel
	s     spec
	agent int
	slave int       // terminal, or -1
	ptmx  string    // where pseudo-terminals are made
	group int       // the agent's process group
	early []message // what came before the agent ran
	// covered is told when the launcher has put the covers back.
	covered chan struct{}
	// frozen: everything is stopped by watchCovers and not by job control.
	frozen atomic.Bool
}

func stagePidOne() error {
	debug.SetGCPercent(-1)
	p := &pidOne{c: OpenChannel(fdControl), slave: -1, ptmx: "/dev/pts/ptmx", covered: make(chan struct{}, 1)}
	if err := p.run(); err != nil {
		return reportFailure(p.c, err)
	}
	return nil
}

func (p *pidOne) run() (err error) {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return stepErr(StepConfine, fmt.Errorf("set parent-death signal: %w", err))
	}
	planFile := os.NewFile(fdSpec, "plan")
	if p.s, err = readSpec(planFile); err != nil {
		return stepErr(StepConfine, err)
	}
	planFile.Close()
	unix.Close(fdSelf)
	children := make(chan os.Signal, 64)
	signal.Notify(children, unix.SIGCHLD)
	// The end of the terminal is for the agent; init ends with it or with the launcher.
	signal.Ignore(unix.SIGTTOU, unix.SIGTTIN, unix.SIGTSTP, unix.SIGPIPE, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	if p.s.Terminal {
		if err := p.openTerminal(); err != nil {
			return stepErr(StepTerminal, err)
		}
	}
	if err := p.startAgent(); err != nil {
		return err
	}
	go p.listen()
	go p.watchCovers()
	return p.reap(children)
}

func (p *pidOne) startAgent() error {
	st, err := p.prepare()
	if err != nil {
		return err
	}
	r, err := st.spawn()
	if err != nil {
		return stepErr(StepConfine, err)
	}
	p.agent, p.group = r.pid, r.pid
	if err := p.mapIDs(r.pid); err != nil {
		return stepErr(StepConfine, err)
	}
	if err := dropEverything(); err != nil {
		return stepErr(StepConfine, err)
	}
	if err := r.release(); err != nil {
		return stepErr(StepConfine, err)
	}
	if st.ruleset >= 0 {
		unix.Close(st.ruleset)
	}
	if err := r.started(); err != nil {
		return err
	}
	// What the agent wrote to must not be held open here: a reader outside
	// waits for the last writer.
	p.closeStreams()
	return p.c.send(message{Op: opStarted, Pid: p.agent})
}

func (p *pidOne) prepare() (start, error) {
	plan := p.s.Plan
	st := start{
		newUserNS: true, ruleset: -1, filter: p.s.Filter, guard: plan.Guard,
		path: plan.Program, argv: plan.Argv, envp: plan.Env, cwd: plan.Cwd,
		stdio: p.streams(), tty: p.slave, umask: plan.Umask,
		sigIgnored: p.s.SigIgnored, sigBlocked: p.s.SigBlocked,
		rlimits: plan.Rlimits, probes: plan.probes(p.s.CanaryPort),
	}
	if plan.Abi > 0 {
		var err error
		if st.ruleset, st.flags, err = buildRuleset(plan.Abi, plan.Grants, nil, true); err != nil {
			return st, stepErr(StepConfine, err)
		}
	}
	return st, nil
}

// mapIDs shows the user's own ids inside: container user 0 is the user
// outside, and this second namespace names it again by its own number.
func (p *pidOne) mapIDs(pid int) error {
	defer unix.Close(fdProc)
	write := func(name, text string) error {
		fd, err := unix.Openat(fdProc, strconv.Itoa(pid)+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte(text))
		return err
	}
	if err := write("/uid_map", fmt.Sprintf("%d 0 1\n", p.s.Plan.Uid)); err != nil {
		return fmt.Errorf("map user id: %w", err)
	}
	if err := write("/setgroups", "deny"); err != nil {
		return fmt.Errorf("deny setgroups: %w", err)
	}
	if err := write("/gid_map", fmt.Sprintf("%d 0 1\n", p.s.Plan.Gid)); err != nil {
		return fmt.Errorf("map group id: %w", err)
	}
	return nil
}

// dropEverything empties the capability sets of all threads (a plain capset
// changes one of them only) and closes /proc/1 to the agent.
func dropEverything() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make init non-dumpable: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, no := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none[0])), 0)
	if no != 0 {
		return fmt.Errorf("drop capabilities of init: %w", no)
	}
	return nil
}

// streams are what the agent gets as its standard streams: the terminal, what
// the caller passed, and for the host's /dev/null the sandbox's own, which can
// be opened again by name.
func (p *pidOne) streams() [3]int {
	fds := [3]int{0, 1, 2}
	for i := range fds {
		if p.s.Slave[i] {
			fds[i] = p.slave
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(i, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != standardNumbers["null"] {
			continue
		}
		if own, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			fds[i] = own
		}
	}
	return fds
}

func (p *pidOne) closeStreams() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
	unix.Close(null)
}

// openTerminal makes a pseudo-terminal in the sandbox's own devpts and takes it
// as the controlling terminal of this session, so that the agent's group is
// not orphaned and can be stopped and continued.
func (p *pidOne) openTerminal() error {
	master, err := os.OpenFile(p.ptmx, os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("name terminal: %w", err)
	}
	p.slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	if err := unix.IoctlSetInt(p.slave, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("take controlling terminal: %w", err)
	}
	if err := p.c.send(message{Op: opTTY, files: []*os.File{master}}); err != nil {
		return err
	}
	// The launcher copies modes and size before the agent can look at them. A
	// signal that comes first waits for the agent.
	for {
		m, err := p.c.receive()
		if err != nil || m.Op == opResume {
			return err
		}
		p.early = append(p.early, m)
	}
}

// listen carries out the launcher's requests until the launcher is gone.
func (p *pidOne) listen() {
	for _, m := range p.early {
		p.carryOut(m)
	}
	for {
		m, err := p.c.receive()
		if err != nil {
			os.Exit(exitFailed) // the launcher died: so does everything inside
		}
		p.carryOut(m)
	}
}

func (p *pidOne) carryOut(m message) {
	switch m.Op {
	case opSignal:
		p.signal(unix.Signal(m.Signal), m.Group)
	case opSocket:
		p.offerSocket(m)
	case opCovered:
		p.covered <- struct{}{}
	}
}

func (p *pidOne) signal(sig unix.Signal, group bool) {
	to := p.agent
	if group {
		to = -p.group
	}
	_ = unix.Kill(to, sig)
}

// offerSocket hands out a socket of this network namespace, or one that is
// connected to a Unix socket inside: how the launcher reaches what is published.
func (p *pidOne) offerSocket(m message) {
	f, err := newSocket(m.Family, m.Path)
	if err != nil {
		no := unix.EIO
		errors.As(err, &no)
		_ = p.c.send(message{Op: opSocket, Errno: int(no)})
		return
	}
	defer f.Close()
	_ = p.c.send(message{Op: opSocket, files: []*os.File{f}})
}

func newSocket(family int, path string) (*os.File, error) {
	// A connection that cannot be had at once must not hold up everything else.
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	if family != unix.AF_UNIX {
		return f, nil
	}
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = servedInside(fd)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// servedInside refuses a socket of the host in a granted tree, to which a link of
// the agent may lead: who listens there has no number in this PID namespace.
func servedInside(fd int) error {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && peer.Pid <= 0 {
		return unix.EACCES
	}
	return err
}

// reap waits for every child, its own and adopted ones, until the agent ends.
func (p *pidOne) reap(children <-chan os.Signal) error {
	for {
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			if pid != p.agent {
				continue
			}
			if ws.Stopped() && p.frozen.Load() {
				continue
			}
			if ws.Stopped() {
				_ = p.c.send(message{Op: opStopped, Signal: int(ws.StopSignal())})
				continue
			}
			return p.c.send(message{Op: opExited, Status: int(ws)})
		}
		<-children
	}
}

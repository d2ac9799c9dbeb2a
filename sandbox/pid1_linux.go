package sandbox

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// pidOne is PID 1 of the sandbox: it starts the agent, gives up every
// capability, reaps, passes signals on, and ends with the agent or with the
// launcher, whichever is first; the kernel then ends everything inside.
type pidOne struct {
	c       *Channel
	s       spec
	agent   int      // the command; 0 for a plan without one
	starter *starter // forked the command and forks the tasks; nil: init forked the command
	tasks   tasks
	slave   int       // terminal, or -1
	ptmx    string    // where pseudo-terminals are made
	group   int       // the agent's process group
	early   []message // what came before the agent ran
	// covered is told when the launcher has put the covers back.
	covered chan struct{}
	freezer freezer
}

func stagePidOne() error {
	debug.SetGCPercent(-1)
	p := &pidOne{c: OpenChannel(fdControl), slave: -1, ptmx: "/dev/pts/ptmx", covered: make(chan struct{}, 1)}
	if err := p.run(); err != nil {
		return reportFailure(p.c, StepExec, err)
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
	// Every start and every connection from outside leaves something behind.
	debug.SetGCPercent(100)
	go p.listen()
	go p.watchCovers()
	return p.reap(children)
}

func (p *pidOne) startAgent() error {
	st, err := p.prepare()
	if err != nil {
		return err
	}
	m := message{Op: opStarted}
	if path := p.s.Plan.Docker; path != "" {
		f, err := p.listenAt(path, false)
		if err != nil {
			return stepErr(StepNetwork, err)
		}
		defer f.Close()
		m.files = []*os.File{f}
	}
	if err := p.await(opGo); err != nil {
		return stepErr(StepExec, err)
	}
	if err := p.start(st, p.mapIDs); err != nil {
		return err
	}
	if st.ruleset >= 0 {
		unix.Close(st.ruleset)
	}
	// What the agent wrote to must not be held open here: a reader outside
	// waits for the last writer.
	p.closeStreams()
	m.Pid = p.agent
	return p.c.send(m)
}

// start confines a process and returns when the command runs. Where the plan
// allows it, that process is the starter, which forks the command. before is
// done while the process waits, with what init loses then.
func (p *pidOne) start(st start, before func(pid int) error) error {
	command, err := p.useStarter(&st)
	if err != nil {
		return stepErr(StepConfine, err)
	}
	r, err := st.spawn()
	if command != nil {
		defer command.block.Close()
		command.theirs.Close()
	}
	if err != nil {
		return stepErr(StepConfine, err)
	}
	if err := before(r.pid); err != nil {
		return stepErr(StepConfine, err)
	}
	if err := dropEverything(); err != nil {
		return stepErr(StepConfine, err)
	}
	if command != nil {
		p.starter.pid = r.pid
		return p.order(r, command.order)
	}
	p.agent, p.group = r.pid, r.pid
	if err := r.release(); err != nil {
		return stepErr(StepConfine, err)
	}
	return r.started()
}

// firstOrder is the command's, and the starter's end of its socket.
type firstOrder struct {
	order
	theirs *os.File
}

// useStarter turns the start of the command into that of the starter; nil where
// a plan has to do without one.
func (p *pidOne) useStarter(st *start) (*firstOrder, error) {
	if err := p.s.Plan.noStarter(); err != nil {
		if p.s.Plan.Hold {
			return nil, err
		}
		return nil, nil
	}
	o := order{stdio: st.stdio, tty: -1}
	for i, fd := range st.stdio {
		if p.slave >= 0 && fd == p.slave {
			o.tty = i
		}
	}
	var err error
	o.block, err = block{[]string{st.path}, st.argv, st.envp, st.cwd}.seal()
	if err != nil {
		return nil, err
	}
	var theirs *os.File
	if p.starter, theirs, err = newStarter(); err != nil {
		return nil, err
	}
	fd := int(theirs.Fd())
	st.starter, st.tty, st.cwd, st.stdio = true, -1, "/", [3]int{fd, fd, fd}
	st.rlimits = withStarter(st.rlimits)
	return &firstOrder{o, theirs}, nil
}

// order lets the starter go on and has it start the command. It finds the order
// waiting, so the command waits for no answer.
func (p *pidOne) order(r *running, o order) error {
	if !p.s.Plan.Hold {
		if err := p.starter.send(o); err != nil {
			return stepErr(StepConfine, fmt.Errorf("order the command: %w", err))
		}
	}
	if err := r.release(); err != nil {
		return stepErr(StepConfine, err)
	}
	if err := r.started(); err != nil || p.s.Plan.Hold {
		return err
	}
	w, err := p.starter.read()
	if err != nil {
		return stepErr(StepExec, err)
	}
	p.agent, p.group = w.pid, w.pid
	return w.err
}

// withStarter makes room for the starter in the number of processes, which is
// the agent's alone. A hard limit of the caller's stays.
func withStarter(limits []Rlimit) []Rlimit {
	limits = slices.Clone(limits)
	for i, l := range limits {
		var now unix.Rlimit
		if l.Resource == unix.RLIMIT_NPROC && unix.Getrlimit(l.Resource, &now) == nil && now.Max > l.Hard {
			limits[i].Soft, limits[i].Hard = l.Soft+1, l.Hard+1
		}
	}
	return limits
}

func (p *pidOne) prepare() (start, error) {
	plan := p.s.Plan
	st := start{
		newUserNS: true, ruleset: -1, filter: p.s.Filter, guard: plan.Guard, innerNS: plan.UserNS,
		path: plan.Program, argv: plan.Argv, envp: plan.Env, cwd: plan.Cwd,
		stdio: p.streams(), tty: p.slave, umask: plan.Umask,
		inherited: p.s.Inherited,
		rlimits:   plan.Rlimits, probes: plan.probes(p.s.CanaryPort),
	}
	if plan.Abi > 0 {
		var err error
		if st.ruleset, st.flags, err = buildRuleset(plan.Abi, plan.Grants, domain{mounted: true}); err != nil {
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
	fds := [3]int{0, 1, fdStderr}
	for i, fd := range fds {
		if p.s.Slave[i] {
			fds[i] = p.slave
			continue
		}
		if own, ok := ownDevice(fd); ok {
			fds[i] = own
		}
	}
	return fds
}

// ownDevice opens the sandbox's own node in the place of one of the host's that
// came as a stream: root could change the mode of the host's by its descriptor.
func ownDevice(fd int) (own int, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return -1, false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return -1, false
	}
	for name, number := range standardNumbers {
		if number != st.Rdev || name == "tty" {
			continue
		}
		own, err := unix.Open("/dev/"+name, flags&unix.O_ACCMODE|unix.O_CLOEXEC, 0)
		return own, err == nil
	}
	return -1, false
}

func (p *pidOne) closeStreams() {
	unix.Close(fdStderr)
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
	master, slave, err := openPair(p.ptmx)
	if err != nil {
		return err
	}
	defer master.Close()
	p.slave = slave
	if err := unix.IoctlSetInt(p.slave, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("take controlling terminal: %w", err)
	}
	if err := p.c.send(message{Op: opTTY, files: []*os.File{master}}); err != nil {
		return err
	}
	// The launcher copies modes and size before the agent can look at them.
	return p.await(opResume)
}

// await waits for one kind of message. A signal that comes first waits for the
// agent.
func (p *pidOne) await(op string) error {
	if i := slices.IndexFunc(p.early, func(m message) bool { return m.Op == op }); i >= 0 {
		p.early = slices.Delete(p.early, i, i+1)
		return nil
	}
	for {
		m, err := p.c.receive()
		if err != nil || m.Op == op {
			return err
		}
		p.early = append(p.early, m)
	}
}

// openPair makes a pseudo-terminal.
func openPair(ptmx string) (master *os.File, slave int, err error) {
	master, err = os.OpenFile(ptmx, os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, -1, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, -1, fmt.Errorf("name terminal: %w", err)
	}
	slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open terminal: %w", err)
	}
	return master, slave, nil
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
		p.signal(m)
	case opCovered:
		p.covered <- struct{}{}
	case opStart, opPause, opUnpause, opSocket, opListen, opDial:
		// Each on its own: a starter that is stopped takes no order, and what
		// continues it comes through here too.
		go p.answer(m)
	default:
		closeAll(m.files)
	}
}

// reap waits for every child, its own and adopted ones, until the command ends.
func (p *pidOne) reap(children <-chan os.Signal) error {
	words := p.words()
	var known []int
	if p.agent != 0 {
		known = append(known, p.agent)
	}
	if p.starter != nil {
		known = append(known, p.starter.pid)
	}
	for {
		for {
			pid, ws, task := p.tasks.wait(known...)
			if pid == 0 {
				break
			}
			switch {
			case pid == p.agent && p.commandChanged(ws):
				return nil
			case task != 0:
				_ = p.c.send(message{Op: opEnded, Id: task, Status: int(ws)})
			case p.starter != nil && pid == p.starter.pid && !ws.Stopped():
				if p.withCommand() {
					return nil
				}
				return p.starter.gone(ws)
			}
		}
		select {
		case <-children:
		case w, ok := <-words:
			if !ok {
				words = nil // it has ended, which its wait status says
				continue
			}
			p.told(w)
		}
	}
}

// words are what the starter says; the channel is closed at its end.
func (p *pidOne) words() <-chan word {
	if p.starter == nil {
		return nil
	}
	words := make(chan word)
	go func() {
		defer close(words)
		for {
			w, err := p.starter.read()
			if err != nil {
				return
			}
			words <- w
		}
	}()
	return words
}

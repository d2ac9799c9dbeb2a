package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// keeperArg0 is how our own executable knows that it is the keeper.
const keeperArg0 = "hermes-wrap: keeper"

// IsKeeper tells whether a process is a keeper, of whatever run: all below it is
// inside. One that only has its name is taken for one too.
func IsKeeper(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(b), "\x00")
	return err == nil && name == keeperArg0
}

// keeper stands for PID 1 where there is no PID namespace: it starts the
// command, adopts its orphans, and ends all of them with the command or with
// the launcher, whichever is first. It lives in a session of its own, outside
// the agent's Landlock domain, so that from ABI 6 on the agent cannot signal it.
type keeper struct {
	pidOne
	port int // of the proxy, 0 for none
	end  sync.Once
}

// runKeeper runs the keeper when this process was started as one.
func runKeeper() {
	if len(os.Args) != 1 || os.Args[0] != keeperArg0 {
		return
	}
	debug.SetGCPercent(-1)
	k := &keeper{pidOne: pidOne{c: OpenChannel(fdControl), slave: -1, ptmx: "/dev/ptmx"}}
	err := k.run()
	if err != nil {
		_ = reportFailure(k.c, StepExec, err)
	}
	k.leave(err != nil)
}

func (k *keeper) run() (err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return stepErr(StepContainer, fmt.Errorf("become the reaper of the tree: %w", err))
	}
	planFile := os.NewFile(fdSpec, "plan")
	if k.s, err = readSpec(planFile); err != nil {
		return stepErr(StepContainer, err)
	}
	planFile.Close()
	unix.Close(fdSelf)
	unix.Close(fdProc)
	children := make(chan os.Signal, 64)
	signal.Notify(children, unix.SIGCHLD)
	signal.Ignore(unix.SIGTTOU, unix.SIGTTIN, unix.SIGTSTP, unix.SIGPIPE, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP)
	if err := k.openDoor(); err != nil {
		return stepErr(StepNetwork, err)
	}
	if err := k.makePlaces(); err != nil {
		return stepErr(StepRoot, err)
	}
	if k.s.Terminal {
		if err := k.openTerminal(); err != nil {
			return stepErr(StepTerminal, err)
		}
	}
	if err := k.startCommand(); err != nil {
		return err
	}
	debug.SetGCPercent(100)
	go k.attend()
	return k.reap(children)
}

// openDoor listens for the proxy on the host's loopback and hands it over. The
// proxy asks every client there for the run's token.
func (k *keeper) openDoor() error {
	m := message{Op: opNetwork}
	if k.s.Plan.Weak.Network {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for the proxy: %w", err)
		}
		defer l.Close()
		tcp, _ := l.(*net.TCPListener)
		f, err := tcp.File()
		if err != nil {
			return fmt.Errorf("hand the proxy's listener over: %w", err)
		}
		defer f.Close()
		if k.port, err = portOf(l); err != nil {
			return err
		}
		m.Status, m.files = 1, []*os.File{f}
		m.Port = k.port
	}
	return k.c.send(m)
}

// makePlaces makes the private directories and the files of the launcher's.
func (k *keeper) makePlaces() error {
	for _, dir := range k.s.Plan.Weak.Dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	blobs := &blobReader{inbox: &inbox{control: k.c}}
	for _, e := range k.s.Plan.View {
		if e.Blob == "" {
			continue
		}
		data, err := blobs.read(e.Blob)
		if err != nil {
			return err
		}
		if err := os.WriteFile(e.Target, data, fs.FileMode(e.Mode)); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) startCommand() error {
	st, open, err := k.confinement()
	defer closeAll(open)
	if err != nil {
		return stepErr(StepConfine, err)
	}
	defer unix.Close(st.ruleset)
	if k.port > 0 && k.s.Plan.Weak.Mediated {
		if err := startMediator(k.port, k.s.Plan.Weak.Sockets); err != nil {
			return stepErr(StepConfine, err)
		}
	}
	if err := k.await(opGo); err != nil {
		return stepErr(StepExec, err)
	}
	if err := k.start(st, func(int) error { return nil }); err != nil {
		return err
	}
	k.closeStreams()
	return k.c.send(message{Op: opStarted, Pid: k.agent})
}

// confinement is what the command is held by. The grants name open files, each
// the very one that was judged.
func (k *keeper) confinement() (start, []*os.File, error) {
	plan := k.s.Plan
	st := start{
		ruleset: -1, filter: k.s.Filter,
		path: plan.Program, argv: plan.Argv, envp: plan.environment(k.port, k.s.ProxyUser, k.s.ProxyToken), cwd: plan.Cwd,
		stdio: k.streams(), tty: k.slave, umask: plan.Umask,
		inherited: k.s.Inherited,
		rlimits:   plan.Rlimits, probes: plan.probes(k.s.CanaryPort),
	}
	grants, open, err := pinGrants(plan)
	if err != nil {
		return st, open, err
	}
	var tcp []uint16
	if plan.Abi >= weakTCP {
		tcp = []uint16{}
		// What is mediated needs no port of its own.
		if k.port > 0 && !plan.Weak.Mediated {
			tcp = append(tcp, uint16(k.port))
		}
	}
	if plan.Weak.Network && (k.port == 0 || tcp == nil) || len(k.s.Filter) == 0 {
		return st, open, errors.New("BUG: a network without a rule for it, or no filter")
	}
	st.ruleset, st.flags, err = buildRuleset(plan.Abi, grants, domain{tcp: tcp, bind: plan.Weak.Sockets, unix: plan.Weak.SocketsHeld})
	return st, open, err
}

// pinGrants opens what the plan grants and compares it with what was judged.
func pinGrants(p Plan) (grants []Grant, open []*os.File, err error) {
	entries := map[string]Entry{}
	for _, e := range p.View {
		entries[e.Source] = e
	}
	for _, g := range p.Grants {
		fd, err := unix.Open(g.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, open, &os.PathError{Op: "open", Path: g.Path, Err: err}
		}
		f := os.NewFile(uintptr(fd), g.Path)
		open = append(open, f)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, open, &os.PathError{Op: "stat", Path: g.Path, Err: err}
		}
		e := entries[g.Path]
		if e.Ino != 0 && (e.Dev != st.Dev || e.Ino != st.Ino) {
			return nil, open, fmt.Errorf("%q was replaced after it was judged", g.Path)
		}
		g.Path = fmt.Sprintf("/proc/self/fd/%d", fd)
		grants = append(grants, g)
	}
	return grants, open, nil
}

// environment gives the proxy's variables their value. Port 0: there is no proxy.
func (p Plan) environment(port int, user, token string) []string {
	env := slices.Clone(p.Env)
	if p.Weak == nil || port == 0 {
		return env
	}
	to := url.URL{Scheme: "http", User: url.UserPassword(user, token), Host: fmt.Sprintf("127.0.0.1:%d", port)}
	for i, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(p.Weak.ProxyVars, name) {
			env[i] = name + "=" + to.String()
		}
	}
	return env
}

// attend carries out the launcher's requests until the launcher is gone.
func (k *keeper) attend() {
	for _, m := range k.early {
		k.carryOut(m)
	}
	for {
		m, err := k.c.receive()
		if err != nil {
			k.leave(true)
		}
		k.carryOut(m)
	}
}

// leave ends everything that the command left behind. When the launcher was
// killed nobody else may be left to remove what was made since.
func (k *keeper) leave(failed bool) {
	k.end.Do(func() {
		endDescendants(os.Getpid(), nil)
		if w := k.s.Plan.Weak; w != nil {
			SweepRunDir(w.Run)
		}
	})
	if failed {
		os.Exit(exitFailed)
	}
	os.Exit(0)
}

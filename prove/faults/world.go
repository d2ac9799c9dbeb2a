package faults

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

//go:embed c/trace.c
var traceSource []byte

//go:embed c/probe.c
var probeSource []byte

// The limits of one run: until its end, and until the last process is gone then.
const (
	runLimit = 45 * time.Second // the launcher itself waits 30 s for an init
	endLimit = 8 * time.Second
)

// probeExit is how the probe ends when it came to its end; nothing else in a
// launch gives that number.
const probeExit = 7

// workshop is what all worlds share: the programs, and the account.
type workshop struct {
	report.Options
	dir          string // readable by the account, gone at the end
	trace, probe string
	uid, gid     int
	drop         bool // root starts, the account runs
	path         string
}

// newWorkshop compiles the programs. The directory lies in the account's home:
// a private /tmp inside would hide a mistake in the mounts.
func newWorkshop(ctx context.Context, o report.Options) (*workshop, error) {
	who, err := user.Current()
	if o.User != "" {
		who, err = user.Lookup(o.User)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the account: %w", err)
	}
	s := &workshop{Options: o, drop: o.User != "" && os.Getuid() == 0, path: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	s.uid, _ = strconv.Atoi(who.Uid)
	s.gid, _ = strconv.Atoi(who.Gid)
	if s.dir, err = os.MkdirTemp(who.HomeDir, "prove-faults-"); err != nil {
		return nil, fmt.Errorf("make the worlds: %w", err)
	}
	// Where it is, it stays when /tmp is covered.
	if s.Bin, err = copied(o.Bin, filepath.Join(s.dir, "hermes-wrap")); err == nil {
		s.trace, err = s.compile(ctx, "trace", traceSource)
	}
	if err == nil {
		s.probe, err = s.compile(ctx, "probe", probeSource)
	}
	return s, errors.Join(err, os.Chmod(s.dir, 0o755))
}

// copied copies a program, and gives where it is then.
func copied(from, to string) (string, error) {
	program, err := os.ReadFile(from)
	if err != nil {
		return "", fmt.Errorf("copy the program to try: %w", err)
	}
	return to, os.WriteFile(to, program, 0o755)
}

func (s *workshop) close() { _ = os.RemoveAll(s.dir) }

func (s *workshop) compile(ctx context.Context, name string, source []byte) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".c", source, 0o644); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "cc", "-O2", "-static", "-o", path, path+".c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// world is one account's home, workspace and runtime directory, for one run at a
// time, and what the host looked like before.
type world struct {
	*workshop
	dir, home, ws, runtime, state string
	secret, policy                string
	host                          net.Listener // on the host's loopback
	before                        []string
	env                           []string
	asRoot                        bool // the command line gives its rights up itself

	peers    *peers // nil: the command has no network
	script   string // what the command does before it is the probe
	reloaded string // what the last reload said
}

const secretText = "this must stay outside\n"

func (s *workshop) newWorld(name, policy string) (*world, error) {
	dir := filepath.Join(s.dir, name)
	w := &world{
		workshop: s, dir: dir, home: filepath.Join(dir, "home"), ws: filepath.Join(dir, "ws"), runtime: filepath.Join(dir, "run"),
		state: filepath.Join(dir, "home/.local/state/hermes-wrap"), secret: filepath.Join(dir, "home/.ssh/id_ed25519"), policy: filepath.Join(dir, "policy.yaml"),
	}
	w.env = []string{"HOME=" + w.home, "PATH=" + s.path, "XDG_RUNTIME_DIR=" + w.runtime, "TERM=dumb", "LANG=C.UTF-8", "TZ=UTC"}
	for _, d := range []string{dir, w.home, w.ws, w.runtime, filepath.Dir(w.secret), filepath.Join(w.ws, "kept")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	for path, text := range map[string]string{w.secret: secretText, w.policy: policy, filepath.Join(w.ws, "kept/file"): "of the user\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	program, err := os.ReadFile(s.probe)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.ws, "probe"), program, 0o755)
	}
	if err == nil {
		err = w.own(dir)
	}
	if err == nil {
		w.host, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("make world %s: %w", name, err)
	}
	go greet(w.host)
	return w, nil
}

// greet answers whoever reaches the host's loopback.
func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("the host\n"))
		_ = c.Close()
	}
}

func (w *world) close() { _ = w.host.Close() }

func (s *workshop) own(dir string) error {
	if !s.drop {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, s.uid, s.gid))
	})
}

// ended is how one run went.
type ended struct {
	exit     int // as a shell shows it
	out, err string
	ran      bool
	hung     bool
	stuck    []string // where each process was then
	// fault is what was injected, as the log has it; "" when it was not reached.
	fault fault
	hit   bool
	calls []fault  // of a recorded run
	steps []string // that the launcher said were done before the fault
	left  []string // processes
	took  time.Duration
}

// words is the command line of the launcher.
func (w *world) words(flags ...string) []string {
	port := strconv.Itoa(w.host.Addr().(*net.TCPAddr).Port)
	probe := []string{filepath.Join(w.ws, "probe"), "ran", w.secret, "/run/hermes-wrap/no-landlock-rule", port, ".vscode"}
	if w.script != "" {
		probe = append([]string{"bash", "-c", w.script + `exec "$@"`, "bash"}, probe...)
	}
	return slices.Concat([]string{w.Bin, "--trace", "--policy", w.policy}, flags, []string{"--"}, probe)
}

// run starts the launcher with the probe; rule is what trace injects, or "".
func (w *world) run(ctx context.Context, rule string, argv ...string) (ended, error) {
	if len(argv) == 0 {
		argv = w.words()
	}
	log := filepath.Join(w.dir, "trace.log")
	words := []string{"-o", log, "-t", ms(runLimit), "-g", ms(endLimit)}
	if w.drop && !w.asRoot {
		words = append(words, "-u", fmt.Sprintf("%d:%d", w.uid, w.gid))
	}
	if rule != "" {
		words = append(words, "-f", rule)
	}
	cmd := exec.CommandContext(ctx, w.trace, slices.Concat(words, []string{"--"}, argv)...)
	var out, errs bytes.Buffer
	cmd.Env = append(slices.Clone(w.env), "RUN="+w.runtime, "STATE="+w.state, fmt.Sprintf("OWNER=%d:%d", w.uid, w.gid))
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.ws, &out, &errs
	cmd.WaitDelay = runLimit + endLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	err := cmd.Run()
	e := ended{out: strings.ReplaceAll(out.String(), w.dir, "WORLD"), err: errs.String(), took: time.Since(began)}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return e, err
	}
	if e.exit = cmd.ProcessState.ExitCode(); e.exit == 99 {
		return e, fmt.Errorf("trace: %s", e.err)
	}
	ran := filepath.Join(w.ws, "ran")
	if _, err := os.Lstat(ran); err == nil {
		e.ran = true
		_ = os.Remove(ran)
	}
	text, err := os.ReadFile(log)
	e.read(string(text))
	return e, err
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// read takes the log of trace apart.
func (e *ended) read(log string) {
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 4 && (f[0] == "call" || f[0] == "fault"):
			n, _ := strconv.Atoi(f[3])
			one := fault{role: f[1], call: f[2], n: n, after: last(e.steps)}
			if len(f) > 4 {
				one.detail = f[4]
			}
			if f[0] == "call" {
				e.calls = append(e.calls, one)
			} else {
				e.fault, e.hit = one, true
			}
		case len(f) == 2 && f[0] == "step" && !e.hit:
			e.steps = append(e.steps, f[1])
		case len(f) >= 3 && f[0] == "left":
			e.left = append(e.left, "the process of the "+f[1])
		case len(f) >= 3 && f[0] == "timeout":
			e.hung, e.stuck = true, append(e.stuck, strings.Join(append([]string{f[1]}, f[3:]...), " in "))
		}
	}
}

func last(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

// remember notes how the host looks with no run.
func (w *world) remember() { w.before = w.traces() }

var volatile = regexp.MustCompile(`/hermes-wrap/(sessions/.*|audit\.[^/]*|audit-runs/.*|runs/.*)$`)

// traces are the names that a run could leave: below the world, control groups
// and mounts. Records that a run leaves by design are not among them.
func (w *world) traces() (out []string) {
	_ = filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != w.policy && !volatile.MatchString(path) && path != filepath.Join(w.dir, "trace.log") {
			line := path
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				line += fmt.Sprintf(" (%d bytes)", info.Size())
			}
			out = append(out, line)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.dir) {
			out = append(out, "mount "+strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

// leftovers lists what was not there before, and what of the user's is gone.
func (w *world) leftovers() (out []string) {
	now := w.traces()
	for _, name := range now {
		if !slices.Contains(w.before, name) {
			out = append(out, name)
		}
	}
	for _, name := range w.before {
		if !slices.Contains(now, name) {
			out = append(out, "gone: "+name)
		}
	}
	return out
}

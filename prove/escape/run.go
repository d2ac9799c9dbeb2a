package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Verdict says how one run ended.
type Verdict string

// The verdicts. The last two are mistakes of a case or of the sandbox's use,
// never good news.
const (
	Escaped    Verdict = "escaped"
	Contained  Verdict = "contained"
	Broken     Verdict = "broken"     // a legitimate use failed
	Unfinished Verdict = "unfinished" // the probe did not run to its end
)

// Outcome is one run.
type Outcome struct {
	Verdict Verdict
	// Why lists what was touched, or what went wrong.
	Why []string
	// Missed lists the variants of which the probe says that nothing came of
	// them. A twin with any is no control.
	Missed []string
	Stdout string
	Stderr string
	Exit   int
	Took   time.Duration
	// Late says that the run was ended at its time limit. A part of the attack
	// that said DONE does not speak for what was still to come.
	Late bool
}

// trial is what to run.
type trial struct {
	Case          Case
	Configuration string
	Account       account
	Variant       variant
	// Twin asks for the run without the sandbox.
	Twin bool
	// Slack multiplies the time that the run has; 0 counts as 1.
	Slack int
}

// orders are what every worker is told.
type orders struct {
	Bin      string
	Seed     int64
	Short    bool
	Keep     bool
	Base     map[string]string // directories of the runs, by account kind
	Compiled map[string]string // programs, by the case's ID
	Template string            // the command line of another sandbox
	Programs map[string]string // of other sandboxes, by configuration
}

// worker runs trials in a world of its own, one at a time.
type worker struct {
	orders
	number int
	world  *world
	count  int
	spoilt bool // the world was changed and must be made anew
}

const binPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// run carries one trial out.
func (w *worker) run(ctx context.Context, t trial) (Outcome, error) {
	w.count++
	p, err := newPlace(w.Base[t.Account.Kind], fmt.Sprintf("%s-%d-%d", t.Case.ID, w.number, w.count), t.Account)
	if err != nil {
		return Outcome{}, err
	}
	if !w.Keep {
		defer p.remove()
	}
	if err := plantKey(p.tokens.fresh("session keyring")); err != nil {
		return Outcome{}, err
	}
	v, err := startVictim(w.tool(t.Account), p, t.Account)
	if err != nil {
		return Outcome{}, err
	}
	defer v.end()
	cmd, err := w.prepare(p, v, t)
	if err != nil {
		return Outcome{}, err
	}
	if err := p.arm(); err != nil {
		return Outcome{}, err
	}
	again, err := p.listen()
	if err != nil {
		return Outcome{}, err
	}
	before := observe(w.Bin)
	w.world.begin(p.tokens, t.Twin, t.Case.Control)
	o, err := execute(ctx, cmd, t.Case.Kill*time.Duration(max(1, t.Slack)))
	again()
	if err != nil {
		return o, err
	}
	touched, err := w.look(ctx, p, v, o, before, t.Configuration)
	o.judge(touched)
	return o, err
}

// tool is this program, where the account can execute it.
func (w *worker) tool(a account) string { return filepath.Join(w.Base[a.Kind], "escapes") }

// look goes round the canaries. Processes come first: what still runs could
// touch them later.
func (w *worker) look(ctx context.Context, p *place, v *victim, o Outcome, before system, configuration string) ([]string, error) {
	touched := leftover(v.PID)
	if changed := before.changed(observe(w.Bin)); len(changed) > 0 {
		// A world that stays changed is no ground for the next job.
		w.spoilt = !before.restore(w.Bin) || w.spoilt
		touched = append(touched, changed...)
	}
	touched = append(touched, v.touched()...)
	if err := w.world.settle(ctx); err != nil {
		if !w.spoilt {
			return touched, err
		}
		touched = append(touched, err.Error())
	}
	files, err := p.touched(configuration)
	touched = append(append(touched, files...), w.world.touched(p.tokens)...)
	for _, where := range p.tokens.in([]byte(o.Stdout + o.Stderr)) {
		if !strings.HasPrefix(where, "placeholder ") {
			touched = append(touched, "the token of "+where+" in the output")
		}
	}
	return touched, err
}

// judge decides, from what was touched and what the scripts said.
func (o *Outcome) judge(touched []string) {
	var done bool
	var broken []string
	for line := range strings.Lines(o.Stdout) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "ESCAPED"):
			touched = append(touched, line)
		case strings.HasPrefix(line, "BROKEN"):
			broken = append(broken, line)
		case strings.HasPrefix(line, "MISSED"):
			o.Missed = append(o.Missed, line)
		case line == "DONE":
			done = true
		}
	}
	switch {
	case len(touched) > 0:
		o.Verdict, o.Why = Escaped, touched
	case len(broken) > 0:
		o.Verdict, o.Why = Broken, broken
	case !done || o.Late:
		o.Verdict = Unfinished
		o.Why = append(o.Why, fmt.Sprintf("%s; exit %d: %s", map[bool]string{true: "DONE", false: "no DONE"}[done], o.Exit, tail(o.Stderr)))
	default:
		o.Verdict = Contained
	}
}

func tail(text string) string {
	const most = 400
	text = strings.TrimSpace(text)
	return text[max(0, len(text)-most):]
}

// prepare writes the scripts and gives the command of the host script.
func (w *worker) prepare(p *place, v *victim, t trial) (*exec.Cmd, error) {
	m := &maker{}
	vars := map[string]string{
		"WS": p.Work, "OUTSIDE": p.Outside, "SEED": strconv.FormatInt(w.Seed, 10),
		"HOST_HOME": p.Home, "PORT": strconv.Itoa(port), "VICTIM": strconv.Itoa(v.PID), "SHM_KEY": strconv.Itoa(v.Key), "SHM_ID": strconv.Itoa(v.ID),
		"CA": filepath.Join(p.Work, "probe", "ca.pem"),
	}
	if w.Short {
		vars["SHORT"] = "1"
	}
	if !gate32() {
		vars["GATE32"] = "none"
	}
	if _, other := peers[t.Configuration]; other {
		vars["PATIENCE"] = "6" // seconds: in others much never comes
	}
	if vars["VARIANT"] = t.Variant.Value; t.Case.Variants != "lines" {
		vars["VARIANT"] = t.Variant.fill(vars)
	}
	m.write(filepath.Join(p.Dir, "policy", "ca.pem"), string(w.world.CA.PEM()), 0o644)
	maps.Copy(vars, w.programs(m, p, t.Case, t.Account, vars))
	policy := filepath.Join(p.Dir, "policy", "configuration.yaml")
	m.write(policy, policyOf(t.Configuration, p), 0o644)
	if own := t.Case.Sections["policy"]; own != "" {
		policy = filepath.Join(p.Dir, "policy", "policy.yaml")
		m.write(policy, layer(own), 0o644)
	}
	sandbox := w.sandbox(m, p, t, policy)
	vars["SANDBOX"], vars["RUN"] = filepath.Join(p.Dir, "sandbox"), p.Dir
	vars["WRAP"], vars["POLICY"], vars["LIB"] = w.Bin, policy, filepath.Join(w.Base[t.Account.Kind], "lib")
	for name, where := range map[string]string{"API_TOKEN": "credential api", "LLM_TOKEN": "credential llm"} {
		vars[name] = p.tokens[where]
	}
	if t.Twin && strings.HasPrefix(t.Case.Control, "naive") {
		for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
			vars[name] = "http://" + gateway + ":3128"
		}
	}
	m.write(vars["SANDBOX"], "#!/bin/sh\n"+sandbox+"\n", 0o755)
	text := t.Case.Sections["host"]
	if t.Twin && t.Case.Control == "own" {
		text = t.Case.Sections["control"]
	}
	script := filepath.Join(p.Dir, "host.sh")
	m.write(script, hostScript(t.Case, text), 0o644)
	for _, name := range []string{"ask", "answer"} {
		m.add(syscall.Mkfifo(filepath.Join(p.Dir, name), 0o600))
	}
	m.own(p.Dir, t.Account)
	cmd := exec.Command("/bin/sh", script) // #nosec: the table is ours
	cmd.Dir, cmd.Env = p.Work, p.environ(t.Account, vars)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: t.Account.credential(), Setpgid: true}
	return cmd, errors.Join(m.errs...)
}

// sandbox is the body of the command that puts another one into the sandbox.
func (w *worker) sandbox(m *maker, p *place, t trial, policy string) string {
	if t.Twin {
		return `exec "$@"`
	}
	if other, ok := peers[t.Configuration]; ok {
		return other.Script(peerPlace{place: p, m: m, Program: w.Programs[t.Configuration], Template: w.Template, account: t.Account})
	}
	ours := fmt.Sprintf(`%s --quiet --no-supervise --policy %s -- "$@"`, quoted(w.Bin), quoted(policy))
	if t.Configuration == weak {
		return "exec " + quoted(w.tool(t.Account)) + " " + refuseArg + " " + ours
	}
	return "exec " + ours
}

func (p *place) environ(a account, vars map[string]string) []string {
	env := []string{
		"PATH=" + binPath, "HOME=" + p.Home, "USER=" + a.Name, "LOGNAME=" + a.Name, "SHELL=/bin/sh",
		"LANG=C.UTF-8", "TERM=dumb", "TZ=UTC", "PYTHONDONTWRITEBYTECODE=1",
		"XDG_RUNTIME_DIR=" + filepath.Join(p.State, "run"), "XDG_CONFIG_HOME=" + filepath.Join(p.State, "config"),
		"XDG_STATE_HOME=" + filepath.Join(p.State, "state"), "XDG_CACHE_HOME=" + filepath.Join(p.State, "cache"),
		"XDG_DATA_HOME=" + filepath.Join(p.State, "data"),
	}
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// listen lets the host script say "baseline": what it did so far is no escape.
// The returned function ends that.
func (p *place) listen() (func(), error) {
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(p.Dir, name), os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	ask, err := open("ask")
	if err != nil {
		return nil, err
	}
	answer, err := open("answer")
	if err != nil {
		ask.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var b [16]byte
		for {
			if _, err := ask.Read(b[:]); err != nil {
				return
			}
			if p.arm() != nil {
				return
			}
			if _, err := answer.WriteString("noted\n"); err != nil {
				return
			}
		}
	}()
	return func() {
		ask.Close()
		<-ended
		answer.Close()
	}, nil
}

// execute runs a command to its end, or to the end of its time; then its whole
// process group is killed.
func execute(ctx context.Context, cmd *exec.Cmd, limit time.Duration) (Outcome, error) {
	stdout, stderr := &capped{most: 1 << 20}, &capped{most: 1 << 20}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A process that went into the background must not hold us by our pipe.
	cmd.WaitDelay = 2 * time.Second
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return Outcome{}, fmt.Errorf("start a host script: %w", err)
	}
	group := cmd.Process.Pid
	kill := func() { _ = syscall.Kill(-group, syscall.SIGKILL) }
	timer := time.AfterFunc(limit, kill)
	stop := context.AfterFunc(ctx, kill)
	err := cmd.Wait()
	late := !timer.Stop()
	stop()
	o := Outcome{Stdout: stdout.String(), Stderr: stderr.String(), Exit: cmd.ProcessState.ExitCode(), Took: time.Since(began)}
	if o.Late = late; late {
		o.Why = append(o.Why, fmt.Sprintf("not done after %v", limit))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return o, err
	}
	return o, ctx.Err()
}

// capped keeps the beginning of an output.
type capped struct {
	bytes.Buffer
	most int
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.most - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

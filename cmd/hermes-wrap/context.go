package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
)

// caller is what the process knows of who started it, read once.
type caller struct {
	cwd, home, name, shell string
	uid, gid               int
	environ                []string
	run                    string // the run's directory; "" when nothing is run
}

func whoCalls() (caller, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return caller{}, fmt.Errorf("find the working directory: %w", err)
	}
	c := caller{cwd: cwd, uid: os.Geteuid(), gid: os.Getegid(), home: os.Getenv("HOME"), shell: os.Getenv("SHELL"), environ: os.Environ()}
	c.name = "user" + strconv.Itoa(c.uid)
	if u, err := user.LookupId(strconv.Itoa(c.uid)); err == nil {
		c.name = u.Username
		if c.home == "" {
			c.home = u.HomeDir
		}
	}
	if !filepath.IsAbs(c.home) {
		// A user without a home (a container's random id) still gets a private one.
		c.home = "/home/" + c.name
	}
	return c, nil
}

// load reads the policy for a command.
func (c caller) load(f policyFlags, argv []string) (policy.Policy, error) {
	o := policy.Options{
		Arg: f.policy, Given: f.given, Cwd: c.cwd, Home: c.home, Getenv: os.Getenv,
		Builtin: profiles.Lookup, Fragment: c.fragment, Fragments: profiles.Fragments(), FloorPath: "/etc/hermes-wrap/floor.yaml", Uid: c.uid, Flags: f.layer,
	}
	if len(argv) > 0 {
		o.Command = filepath.Base(argv[0])
	}
	return policy.Load(o)
}

// prepared is a policy with everything that was decided from it.
type prepared struct {
	policy policy.Policy
	engine *netpolicy.Engine
	plan   sandbox.Plan
	host   sandbox.Host
	// name is the session's, and session its directory, which may not exist yet.
	name, session string
}

// prepare loads, judges the network part, and compiles the plan.
func (c caller) prepare(f policyFlags, argv []string, extra []string) (prepared, error) {
	p, err := c.load(f, argv)
	if err != nil {
		return prepared{}, err
	}
	e, err := compileNetwork(p)
	if err != nil {
		return prepared{}, err
	}
	out := prepared{policy: p, engine: e}
	out.name = cmp.Or(f.name, session.DefaultName(p.Name, c.runId()))
	if keepsLayers(p) {
		// What stays has to be found again.
		out.name = cmp.Or(f.name, p.Name)
	}
	if err := session.CheckName(out.name); err != nil {
		return out, err
	}
	out.session = session.Dir(c.stateHome(), out.name)
	out.host = c.host(p, e, extra)
	if p.Filesystem.Home == "persistent" {
		if err := os.MkdirAll(out.host.State, 0o700); err != nil {
			return prepared{}, fmt.Errorf("make the persistent home: %w", err)
		}
	}
	if out.plan, err = sandbox.Compile(p, out.host, argv); err != nil {
		return out, err
	}
	out.plan.Env = foreseen(out.plan.Env, p)
	return out, nil
}

// compileNetwork judges by a policy. A denial for want of a rule points to the
// list in which one is missing.
func compileNetwork(p policy.Policy) (*netpolicy.Engine, error) {
	e, err := netpolicy.Compile(p.Network, p.Inference.Routes...)
	_, modelsErr := inference.Compile(p.Inference)
	if err = bothProblems(err, modelsErr); err != nil {
		return nil, err
	}
	pos, ok := p.Where["network.rules"]
	if !ok {
		pos = p.Where["network"]
	}
	return e.WithPos(pos), nil
}

// bothProblems puts the mistakes of two sections together.
func bothProblems(a, b error) error {
	var first, second policy.Problems
	switch {
	case b == nil:
		return a
	case errors.As(a, &first) && errors.As(b, &second):
		return append(first, second...)
	case a == nil:
		return b
	}
	return a
}

// host looks at the machine, as far as a plan needs it.
func (c caller) host(p policy.Policy, e *netpolicy.Engine, extra []string) sandbox.Host {
	h := sandbox.Host{
		Uid: c.uid, Gid: c.gid, User: c.name, Home: c.home, Shell: c.shell, Cwd: c.cwd, Environ: c.environ,
		Abi: sandbox.LandlockABI(), Tproxy: sandbox.TproxyLikely(), Limits: sandbox.ProbeLimits(),
		Inspect: e.Inspects(), Ports: e.Ports(),
		State:  filepath.Join(c.stateDir(), "homes", p.Name),
		Run:    c.run,
		Secret: slices.Concat(extra, []string{p.Audit.File.Abs, c.auditKey(), c.auditRuns(p.Audit.File.Abs), session.Root(c.stateHome())}),
	}
	for _, f := range secretFiles(p) {
		h.Secret = append(h.Secret, f.Abs)
	}
	if s := p.Metrics.Socket.Abs; s != "" {
		h.Secret = append(h.Secret, s)
	}
	if d := p.Network.Docker; d.Enabled() {
		h.Secret = append(h.Secret, d.SocketPath())
	}
	for _, e := range p.Network.Publish {
		if e.Unix() {
			h.Secret = append(h.Secret, e.Listen)
		}
	}
	if h.Run == "" {
		h.Run = filepath.Join(sandbox.RuntimeBase(os.Getenv), "RUN")
	}
	if slices.Contains(p.Require.MayDegrade, policy.LayerNamespaces) {
		h.NoNamespaces = sandbox.ProbeTier(context.Background())
		h.Mediate = h.NoNamespaces != nil && sandbox.CanMediate()
		if h.NoNamespaces != nil && slices.Contains(p.Require.MayDegrade, policy.LayerSockets) {
			h.Sockets, h.RunsInShm = sandbox.FindSockets(c.environ), sandbox.RunsInShm()
		}
	}
	return h
}

// runId is the run's identifier, or what stands for one where nothing is run.
func (c caller) runId() string {
	if c.run == "" {
		return "RUN"
	}
	return filepath.Base(c.run)
}

// stateHome is $XDG_STATE_HOME, or what stands for it.
func (c caller) stateHome() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return d
	}
	return filepath.Join(c.home, ".local", "state")
}

func (c caller) stateDir() string { return filepath.Join(c.stateHome(), "hermes-wrap") }

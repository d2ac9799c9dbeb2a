package sandbox

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Weak is the weaker tier: what a run is when namespaces cannot be had and
// require.may_degrade names them. The command then runs in the host's own view,
// held by Landlock, the system call filter, resource limits and the proxy.
type Weak struct {
	// Needs and Found say why there are no namespaces.
	Needs string `json:"needs"`
	Found string `json:"found"`
	// Run is the run's directory, which holds the private directories.
	Run string `json:"run"`
	// Dirs are the private directories, made empty for the run.
	Dirs []string `json:"dirs"`
	// Network opens TCP to the proxy's port. Otherwise no internet socket can be
	// made at all.
	Network bool `json:"network,omitempty"`
	// Mediated says that each connect(2) is carried out by the keeper, to the
	// proxy alone. Otherwise Landlock holds the port and nothing the address.
	Mediated bool `json:"mediated,omitempty"`
	// Sockets says that the policy consents to local sockets and listening.
	Sockets bool `json:"sockets,omitempty"`
	// SocketsHeld says that Landlock keeps sockets with a path that were made
	// outside shut, but for those that the policy lists.
	SocketsHeld bool `json:"sockets_held,omitempty"`
	// Shm says that /dev/shm is the host's own.
	Shm bool `json:"shm,omitempty"`
	// Reached are the well-known sockets outside that are reached.
	Reached []HostSocket `json:"reached,omitempty"`
	// ProxyVars are the variables that lead clients to the proxy; their values
	// are known when it listens.
	ProxyVars []string `json:"proxy_vars,omitempty"`
	// NotHeld are the rules of the policy that nothing holds in this tier.
	NotHeld []Note `json:"not_held,omitempty"`
}

// The least Landlock of this tier. Truncation of files that may only be read is
// stopped by ABI 3; nothing else stands in its way here. TCP rules came with
// ABI 4, the scope of signals with ABI 6.
const (
	weakABI    = 3
	weakTCP    = 4
	weakSignal = 6
)

// foresee decides on the tier before anything else is compiled.
func (c *compiler) foresee() error {
	f := c.h.NoNamespaces
	if f == nil {
		return nil
	}
	if !slices.Contains(c.p.Require.MayDegrade, policy.LayerNamespaces) {
		return f.lack()
	}
	c.plan.Degraded = append(c.plan.Degraded, Degradation{policy.LayerNamespaces, f.Needed, f.Found})
	c.plan.Weak = &Weak{Needs: f.Needed, Found: f.Found, Run: c.h.Run}
	if slices.Contains(c.p.Require.MayDegrade, policy.LayerSockets) {
		c.plan.Weak.Sockets, c.plan.Weak.SocketsHeld = true, c.h.Abi >= weakUnix
		c.plan.Degraded = append(c.plan.Degraded, Degradation{policy.LayerSockets, fmt.Sprintf("namespaces, or Landlock ABI %d for sockets with a path", weakUnix), f.Found})
	}
	if c.h.Abi < weakABI {
		return &LackError{
			Layer: policy.LayerLandlock, Feature: "a sandbox without namespaces",
			Needed: abiName(weakABI), Found: abiName(c.h.Abi), Hint: f.Remedy,
		}
	}
	for what, asked := range map[string]bool{
		"process.uid: root": c.p.Process.Uid == "root",
		"network.publish":   len(c.p.Network.Publish) > 0,
		"network.docker":    c.p.Network.Docker.Enabled(),
		"copy-on-write":     c.p.Workspace.Access == policy.AccessCow || len(c.p.Filesystem.Cow) > 0,
	} {
		if asked {
			return &LackError{Layer: policy.LayerNamespaces, Feature: what, Needed: f.Needed, Found: f.Found, Hint: f.Remedy}
		}
	}
	// Nothing is captured, so the kernel's means for that do not matter; and
	// libcontainer, which would make a cgroup, is not asked.
	c.h.Tproxy, c.h.Limits.Controllers, c.h.Limits.NprocPerUserns = true, nil, true
	c.p.Process.UserNamespaces = false
	return nil
}

// lack is the error of a launch that stops for a finding.
func (f Finding) lack() *LackError {
	return &LackError{Layer: f.Layer, Feature: f.Feature, Needed: f.Needed, Found: f.Found, Hint: f.Remedy}
}

// weaken turns the finished plan of a private root into what Landlock can hold
// in the host's own view.
func (c *compiler) weaken() error {
	w := c.plan.Weak
	if w == nil {
		return nil
	}
	if err := c.refuseHoles(); err != nil {
		return err
	}
	c.listUnheld()
	c.plan.Guard, c.plan.Devices = nil, nil
	c.plan.View = slices.DeleteFunc(c.v.entries(), func(e Entry) bool {
		return e.Kind != KindBind || e.Target != e.Source || !w.SocketsHeld && !e.Dir && c.isSocket(e.Source)
	})
	c.weakHome()
	c.weakSystem()
	c.plan.Grants = nil
	for _, e := range c.plan.View {
		c.plan.Grants = append(c.plan.Grants, Grant{Path: e.Source, Write: e.Write, Exec: e.Exec, Ioctl: within(e.Source, "/dev"), Rule: e.Rule, Pos: e.Pos})
	}
	c.weakNetwork()
	c.weakLimits()
	c.plan.Env = c.env.list()
	return c.weakSockets()
}

func (c *compiler) isSocket(path string) bool {
	r, err := resolve(path)
	return err == nil && r.mode&fs.ModeSocket != 0
}

// refuseHoles stops when something hidden lies inside a granted tree: Landlock
// only grants, and granting the neighbours one by one would miss a name that
// comes later. A secret is not given up for consent to a weaker tier. One that is
// not there cannot be; that it would show if it came later is listed like
// everything else that is not held.
func (c *compiler) refuseHoles() error {
	for _, h := range c.v.hidden {
		if h.res.mode&fs.ModeSocket != 0 {
			continue // its file is no secret; that it is reached is listed
		}
		if err := c.refuseHole(h.res.real, h.rule, h.pos); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) refuseHole(path, rule string, pos policy.Pos) error {
	for _, root := range slices.Sorted(maps.Keys(c.v.trees)) {
		t := c.v.trees[root]
		if root == path || !within(path, root) || c.v.isHidden(root) {
			continue
		}
		f := c.h.NoNamespaces
		return &LackError{
			Layer:   policy.LayerNamespaces,
			Feature: fmt.Sprintf("hiding %q (%s, %s)", path, rule, pos),
			Needed:  fmt.Sprintf("a mount namespace, because %s (%s) grants %q around it", t.rule, t.pos, root),
			Found:   f.Found, Hint: fmt.Sprintf("move it out of %q, or %s", root, f.Remedy),
		}
	}
	return nil
}

// listUnheld names the rules that only mounts or the guard could hold.
func (c *compiler) listUnheld() {
	add := func(what, path, why, rule string, pos policy.Pos) {
		if !slices.ContainsFunc(c.plan.Weak.NotHeld, func(n Note) bool { return n.Path == path }) {
			c.plan.Weak.NotHeld = append(c.plan.Weak.NotHeld, Note{what, path, notHeld + " (" + why + ")", rule, pos})
		}
	}
	const writable = "Landlock cannot except an entry from a writable tree"
	for _, p := range c.v.protect {
		if _, write := c.v.writableAbove(p.res.real); write {
			add("protect", p.res.real, writable, p.rule, p.pos)
		}
	}
	for _, g := range c.v.guarded() {
		if !g.Hide {
			add("protect", filepath.Join(g.Parent, g.Name), writable, g.Rule, g.Pos)
		}
	}
	for _, g := range c.v.absent {
		path := filepath.Join(g.Parent, g.Name)
		if visible, _, _ := c.v.rights(g.Parent); g.Hide && visible {
			add("hide", path, "it does not exist; if it comes, it shows", g.Rule, g.Pos)
		}
	}
}

// weakHome puts the private directories below the run's own.
func (c *compiler) weakHome() {
	own := func(name, rule string, exec bool) string {
		path := filepath.Join(c.h.Run, name)
		c.plan.Weak.Dirs = append(c.plan.Weak.Dirs, path)
		c.plan.View = append(c.plan.View, Entry{Kind: KindBind, Target: path, Source: path, Dir: true, Write: true, Exec: exec, Rule: rule})
		return path
	}
	f := c.p.Filesystem
	// git gives up on a system file that exists and cannot be read.
	c.setEnv("GIT_CONFIG_NOSYSTEM", "1")
	tmp := own("tmp", "filesystem.tmp_size", f.TmpExec)
	c.setEnv("TMPDIR", tmp)
	// A policy that leads programs to /tmp means the private one.
	if visible, _, _ := c.v.rights("/tmp"); !visible {
		for name, value := range c.env.vars {
			if value == "/tmp" || value == "/var/tmp" {
				c.env.vars[name] = tmp
			}
		}
	}
	c.setEnv("XDG_RUNTIME_DIR", own("runtime", "a private runtime directory", false))
	before := c.plan.Home
	switch f.Home {
	case "private":
		c.plan.Home = own("home", "filesystem.home", f.TmpExec)
	case "persistent":
		if r, err := resolve(c.h.State); err == nil {
			c.plan.Home = r.real
			c.plan.View = append(c.plan.View, Entry{Kind: KindBind, Target: r.real, Source: r.real, Dev: r.dev, Ino: r.ino, Dir: true, Write: true, Exec: f.TmpExec, Rule: "filesystem.home"})
		}
	default:
		return
	}
	c.setEnv("HOME", c.plan.Home)
	if c.plan.Cwd == before {
		if visible, _, _ := c.v.rights(before); !visible {
			c.plan.Cwd = c.plan.Home
		}
	}
}

// setEnv sets a variable unless the policy does.
func (c *compiler) setEnv(name, value string) {
	if _, ours := c.p.Env.Set[name]; !ours {
		c.env.vars[name] = value
	}
}

// weakSystem grants the little of the host's own system that programs need: the
// names of users, a few devices, and /proc, where Landlock keeps the memory,
// the environment and the files of processes outside its domain closed.
func (c *compiler) weakSystem() {
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"} {
		c.showHost(path, false, "the host's own, for names of users and machines")
	}
	for _, path := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		c.showHost(path, true, "a standard device of the host's")
	}
	c.weakShm()
	for i, d := range c.p.Filesystem.Devices {
		c.showHost(d.Abs, true, fmt.Sprintf("filesystem.devices[%d]", i))
	}
	c.showHost("/proc", false, "the host's own /proc")
	if c.h.Inspect {
		path := filepath.Join(c.h.Run, "ca-bundle.pem")
		c.plan.View = append(c.plan.View, Entry{Kind: KindFile, Target: path, Source: path, Blob: BlobBundle, Mode: 0o444, Rule: "the merged " + string(BlobBundle)})
		for _, name := range caVariables {
			c.env.vars[name] = path
		}
	}
}

func (c *compiler) showHost(path string, write bool, rule string) {
	r, err := resolve(path)
	if err != nil || c.v.isHidden(r.real) {
		return
	}
	c.plan.View = append(c.plan.View, Entry{Kind: KindBind, Target: r.real, Source: r.real, Dev: r.dev, Ino: r.ino, Dir: r.isDir(), Write: write, Rule: rule})
}

// proxyVariables lead clients to the proxy. NO_PROXY stays unset: nothing else
// can be reached, the loopback neither.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"}

// weakNetwork opens as little as the policy needs: without a rule that allows a
// host, or without TCP rules in Landlock, there are no internet sockets.
func (c *compiler) weakNetwork() {
	w := c.plan.Weak
	wants := len(c.p.Network.Rules)+len(c.p.Inference.Routes) > 0
	w.Network = wants && c.plan.Abi >= weakTCP
	c.plan.CaptureAll, c.plan.Ports, c.plan.MayCaptureLess = false, nil, false
	c.plan.Filter.Tier = TierOffline
	if wants && !w.Network {
		c.plan.Warnings = append(c.plan.Warnings, fmt.Sprintf(
			"network: there is none, because without namespaces Landlock ABI %d is needed for it and the kernel has %d", weakTCP, c.plan.Abi))
	}
	if !w.Network {
		return
	}
	w.Mediated = c.h.Mediate
	c.plan.Filter.Tier = TierProxied
	c.setEnv("NODE_USE_ENV_PROXY", "1")
	for _, name := range proxyVariables {
		if _, set := c.p.Env.Set[name]; !set {
			c.env.vars[name] = ""
			w.ProxyVars = append(w.ProxyVars, name)
		}
	}
}

// weakLimits corrects the mechanisms that the private root or a user namespace
// would have been.
func (c *compiler) weakLimits() {
	for i, l := range c.plan.Limits.Limits {
		switch l.Name {
		case "pids":
			c.plan.Limits.Limits[i].Mechanism = "RLIMIT_NPROC, which counts every process of the user"
		case "home_size", "tmp_size":
			c.plan.Limits.Limits[i].Mechanism = MechanismNone
		case "shm_size":
			c.plan.Limits.Limits[i].Mechanism = "no shared memory: /dev/shm is not granted"
			if c.plan.Weak.Shm {
				c.plan.Limits.Limits[i].Mechanism = MechanismNone
			}
		}
	}
}

// errTier are the answers of the kernel that mean that namespaces are not to be
// had; another failure is not taken for that.
var errTier = []unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL, unix.ENOSYS}

// lackOf gives the finding that keeps a private root from being built; nil when
// nothing was refused in a way that is known to mean that.
func lackOf(results []probeResult, m machine) *Finding {
	known := slices.ContainsFunc(results, func(r probeResult) bool {
		return r.Step != probeTproxy && r.Step != probeOverlay && r.is(errTier...)
	})
	if !known {
		return nil
	}
	for _, f := range Findings(namespaceFindings(results, m)).Missing() {
		if f.Layer == policy.LayerNamespaces || f.Layer == policy.LayerProc {
			return &f
		}
	}
	return nil
}

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Host is what Compile knows of the machine and of the caller. The zero value
// is a machine without Landlock and without anything else.
type Host struct {
	Uid, Gid int
	User     string
	Home     string // real home directory
	Shell    string
	Cwd      string
	Environ  []string
	Abi      int  // Landlock ABI, 0: none
	Tproxy   bool // nf_tables TPROXY can be loaded in a network namespace
	Limits   LimitFacts
	// State is the directory of this policy's persistent home, if it has one.
	State string
	// Secret are host paths of ours that must never be visible inside: the run
	// directory, the audit file. The self-test tries to open the first ones.
	Secret []string
	// Inspect tells that the proxy inspects TLS, so its CA must be trusted inside.
	Inspect bool
	// Ports are the TCP ports that the policy names, for a kernel without TPROXY.
	Ports []uint16
	// Run is the directory of the run, below which the weaker tier keeps what
	// would be private mounts.
	Run string
	// NoNamespaces says what keeps namespaces from being had. Nil: nothing does,
	// or nobody looked because the policy insists on them.
	NoNamespaces *Finding
	// Mediate says that one process may take a socket of another, see CanMediate.
	Mediate bool
	// Sockets are well-known sockets of the machine that the caller can open, for a
	// run without namespaces that is allowed to reach them. See FindSockets.
	Sockets []HostSocket
	// RunsInShm tells that directories of runs lie in /dev/shm, see RunsInShm.
	RunsInShm bool
}

// Compile decides everything about a launch and does nothing. argv is the
// command as typed.
func Compile(p policy.Policy, h Host, argv []string) (Plan, error) {
	c := compiler{p: p, h: h, v: newView(), plan: Plan{
		Name: p.Name, Digest: p.Digest, Argv: argv, Uid: h.Uid, Gid: h.Gid, Umask: -1, Inspect: h.Inspect,
	}}
	for _, step := range []func() error{
		c.foresee, c.identity, c.layers, c.environment, c.places, c.granted, c.command, c.withheld, c.keepPolicy, c.system, c.limits, c.finish, c.weaken,
	} {
		if err := step(); err != nil {
			return Plan{}, err
		}
	}
	return c.plan, nil
}

type compiler struct {
	p    policy.Policy
	h    Host
	v    *view
	env  environ
	plan Plan
}

func (c *compiler) identity() error {
	if c.p.Process.Uid == "root" {
		c.plan.Uid, c.plan.Gid = 0, 0
	}
	if c.p.Process.Umask != "" {
		u, err := strconv.ParseUint(c.p.Process.Umask, 8, 12)
		if err != nil {
			return fmt.Errorf("process.umask %q: %w", c.p.Process.Umask, err)
		}
		c.plan.Umask = int(u)
	}
	c.plan.Hostname = c.p.Process.Hostname
	if c.plan.Hostname == "" {
		c.plan.Hostname = "sandbox"
	}
	c.plan.UserNS = c.p.Process.UserNamespaces
	c.plan.Filter = FilterSpec{
		Allow: c.p.Syscalls.Allow, Deny: c.p.Syscalls.Deny,
		UserNamespaces: c.p.Process.UserNamespaces, Ptrace: c.p.Process.Ptrace,
	}
	if problems := FilterProblems(c.plan.Filter); len(problems) > 0 {
		return policy.Problems(problems)
	}
	return nil
}

// layers decides what this kernel can enforce, and whether that is enough.
func (c *compiler) layers() error {
	need := max(c.p.Require.LandlockABI, leastLandlock)
	c.plan.Abi = min(c.h.Abi, newestABI)
	if c.h.Abi < need {
		d := Degradation{policy.LayerLandlock, abiName(need), abiName(c.h.Abi)}
		if err := c.degrade(d, fmt.Sprintf("boot a kernel with Landlock (lsm=landlock,…), %s or newer", landlockSince(need))); err != nil {
			return err
		}
	}
	c.plan.CaptureAll, c.plan.Ports = c.h.Tproxy, c.h.Ports
	c.plan.MayCaptureLess = slices.Contains(c.p.Require.MayDegrade, policy.LayerCapture)
	if !c.h.Tproxy {
		d := Degradation{policy.LayerCapture, "nf_tables with TPROXY", "neither"}
		if err := c.degrade(d, "load the kernel modules nf_tables and nft_tproxy"); err != nil {
			return err
		}
	}
	return nil
}

// degrade accepts a missing layer that the policy allows to be missing.
func (c *compiler) degrade(d Degradation, hint string) error {
	if slices.Contains(c.p.Require.MayDegrade, d.Layer) {
		c.plan.Degraded = append(c.plan.Degraded, d)
		return nil
	}
	return &LackError{Layer: d.Layer, Feature: string(d.Layer), Needed: d.Needs, Found: d.Found, Hint: hint}
}

func (c *compiler) environment() error {
	c.env = filterEnv(c.p.Env, c.h.Environ)
	c.plan.Dropped = c.env.dropped
	set := func(k, v string) {
		if _, ok := c.p.Env.Set[k]; !ok {
			c.env.vars[k] = v
		}
	}
	if c.p.Filesystem.Home != "none" {
		set("HOME", c.h.Home)
	}
	set("XDG_RUNTIME_DIR", c.runtimeDir())
	if c.p.Network.Docker.Enabled() {
		c.plan.Docker = c.runtimeDir() + "/docker.sock"
		c.env.vars["DOCKER_HOST"] = "unix://" + c.plan.Docker
	}
	if c.env.vars["PATH"] == "" {
		c.env.vars["PATH"] = "/usr/local/bin:/usr/bin:/bin"
	}
	if c.h.Inspect {
		for _, name := range caVariables {
			c.env.vars[name] = bundlePath
		}
	}
	return nil
}

// defaultInodes is filesystem.inodes when it is not set.
const defaultInodes = 1_000_000

// inodes bounds the files of each private tmpfs, /dev/shm included.
func (c *compiler) inodes() int {
	if n := c.p.Filesystem.Inodes; n > 0 {
		return n
	}
	return defaultInodes
}

func (c *compiler) runtimeDir() string { return fmt.Sprintf("/run/user/%d", c.plan.Uid) }

// places makes the private directories.
func (c *compiler) places() error {
	f := c.p.Filesystem
	size := func(s policy.Size, def int64) int64 {
		if s > 0 {
			return int64(s)
		}
		return def
	}
	tmp := func(path string, n int64, mode uint32, rule string) {
		c.v.addTmp(tmpTree{path: path, size: n, mode: mode, exec: f.TmpExec, inodes: c.inodes(), rule: rule})
	}
	tmp("/tmp", size(f.TmpSize, 1<<30), 0o1777, "filesystem.tmp_size")
	tmp("/var/tmp", size(f.TmpSize, 1<<30), 0o1777, "filesystem.tmp_size")
	tmp(c.runtimeDir(), 64<<20, 0o700, "a private runtime directory")
	c.plan.ShmSize = size(f.ShmSize, 256<<20)
	c.plan.Home = c.h.Home
	switch f.Home {
	case "private":
		tmp(c.h.Home, size(f.HomeSize, 512<<20), 0o700, "filesystem.home")
	case "persistent":
		return c.persistentHome()
	}
	return nil
}

// persistentHome shows a directory of ours at the home directory's place.
func (c *compiler) persistentHome() error {
	r, err := resolve(c.h.State)
	if err != nil {
		return fmt.Errorf("filesystem.home: open the persistent home: %w", err)
	}
	c.v.addFile(Entry{
		Kind: KindBind, Target: c.h.Home, Source: r.real, Dev: r.dev, Ino: r.ino, Dir: true,
		Write: true, Exec: c.p.Filesystem.TmpExec, Rule: "filesystem.home",
	})
	c.plan.Grants = append(c.plan.Grants, Grant{Path: c.h.Home, Write: true, Exec: c.p.Filesystem.TmpExec, Rule: "filesystem.home"})
	return nil
}

// granted makes visible what the policy lists.
func (c *compiler) granted() error {
	f := c.p.Filesystem
	for _, g := range []struct {
		list        []policy.Path
		write, exec bool
		name        string
	}{
		{f.Read, false, false, "filesystem.read"},
		{f.Write, true, false, "filesystem.write"},
		{f.Exec, false, true, "filesystem.exec"},
	} {
		for i, p := range g.list {
			if err := c.v.grant(p, g.write, g.exec, fmt.Sprintf("%s[%d]", g.name, i)); err != nil {
				return err
			}
		}
	}
	if a := c.p.Workspace.Access; a == policy.AccessRead || a == policy.AccessWrite {
		ws := c.p.Workspace
		if err := c.v.grant(ws.Path, a == policy.AccessWrite, ws.Exec, "workspace"); err != nil {
			return err
		}
	}
	if err := c.copyOnWrite(); err != nil {
		return err
	}
	for i, d := range f.Devices {
		r, err := resolve(d.Abs)
		if err != nil {
			return fmt.Errorf("%s: filesystem.devices[%d]: %w", d.Pos, i, err)
		}
		c.plan.Devices = append(c.plan.Devices, r.real)
	}
	return errors.Join(c.leaksOut(), c.sockets())
}

// sockets binds single sockets of the host: connecting needs no more than the
// inode, and nothing else of its directory is shown.
func (c *compiler) sockets() error {
	for i, s := range c.p.Filesystem.Sockets {
		rule := fmt.Sprintf("filesystem.sockets[%d]", i)
		r, err := resolve(s.Abs)
		if errors.Is(err, fs.ErrNotExist) && s.Optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.Pos, rule, err)
		}
		if r.mode&fs.ModeSocket == 0 {
			return fmt.Errorf("%s: %s: %q is not a socket", s.Pos, rule, r.real)
		}
		c.v.addFile(Entry{Kind: KindBind, Target: r.real, Source: r.real, Dev: r.dev, Ino: r.ino, Write: true, Rule: rule, Pos: s.Pos})
		c.plan.Grants = append(c.plan.Grants, Grant{Path: r.real, Write: true, Rule: rule, Pos: s.Pos})
	}
	return nil
}

// command finds the program and whatever it needs to start.
func (c *compiler) command() error {
	c.plan.Cwd = c.workdir()
	program, err := lookup(c.plan.Argv[0], c.env.vars["PATH"], c.h.Cwd)
	if err != nil {
		return stepErr(StepExec, fmt.Errorf("%q: %w", c.plan.Argv[0], err))
	}
	c.plan.Program = program
	ch := followChain(program, c.h.Home, c.env.vars["PATH"], c.writable)
	if err := ch.explainMissing(); err != nil {
		return stepErr(StepExec, err)
	}
	for _, path := range ch.paths {
		if r, err := resolve(path); err == nil && !r.isDir() && !r.mode.IsRegular() {
			continue
		}
		if err := c.v.grant(policy.Path{Text: path, Abs: path, Optional: true}, false, true, "the command's own chain"); err != nil {
			return err
		}
	}
	return nil
}

// workdir is the caller's directory where it is visible, else the workspace.
func (c *compiler) workdir() string {
	r, err := resolve(c.h.Cwd)
	if err == nil {
		if visible, _, _ := c.v.rights(r.real); visible {
			return c.h.Cwd
		}
	}
	if a := c.p.Workspace.Access; a != policy.AccessNone && a != "" {
		return c.p.Workspace.Path.Abs
	}
	if c.p.Filesystem.Home != "none" {
		return c.h.Home
	}
	return "/"
}

// withheld hides and protects.
func (c *compiler) withheld() error {
	for i, p := range c.p.Filesystem.Hide {
		if err := c.v.hide(p, fmt.Sprintf("filesystem.hide[%d]", i)); err != nil {
			return err
		}
	}
	for i, p := range c.p.Filesystem.Protect {
		if err := c.v.keepOut(p, fmt.Sprintf("filesystem.protect[%d]", i)); err != nil {
			return err
		}
	}
	c.v.coverSockets(c.p.Filesystem.Sockets)
	// Nothing of ours may lie under a granted path.
	for _, path := range c.h.Secret {
		r, _ := resolve(path)
		if visible, _, _ := c.v.rights(r.real); visible && !c.v.isWithheld(r.real) {
			return fmt.Errorf("%q lies under a path that the policy grants, and the sandbox's own state must stay outside", path)
		}
	}
	return nil
}

// system adds the small files and the certificate bundle.
func (c *compiler) system() error {
	shell := c.env.vars["SHELL"]
	if shell == "" {
		shell = "/bin/sh"
	}
	for path, text := range etcFiles(c.h, c.plan.Hostname, c.plan.Home, shell, c.plan.Uid, c.plan.Gid) {
		c.ownFile(path, Entry{Data: text, Rule: "made by the launcher"})
	}
	c.v.addFile(Entry{Kind: KindFile, Target: landlockProbe, Data: "no rule of Landlock's grants this file\n", Mode: 0o444, Rule: "the self-test"})
	if c.h.Inspect {
		c.trust()
	}
	return nil
}

// trust puts the run's authority where clients look for authorities.
func (c *compiler) trust() {
	var bundles []string
	for _, path := range bundlePlaces {
		if r, err := resolve(path); err == nil && c.shown(r.real) && !slices.Contains(bundles, r.real) {
			bundles = append(bundles, r.real)
		}
	}
	stores := truststores(slices.Collect(maps.Keys(c.v.trees)), c.shown)
	c.shadow(bundlePath, BlobBundle, bundles)
	if len(stores) > 0 {
		c.shadow(truststorePath, BlobTruststore, stores)
	}
}

// shadow makes a file of the launcher's content and shows it at further places.
func (c *compiler) shadow(path string, b Blob, places []string) {
	rule := "the merged " + string(b)
	c.v.addFile(Entry{Kind: KindFile, Target: path, Blob: b, Mode: 0o444, Rule: rule})
	for _, place := range places {
		c.v.addFile(Entry{Kind: KindAlias, Target: place, Source: path, Rule: rule})
	}
}

func (c *compiler) shown(path string) bool {
	visible, _, _ := c.v.rights(path)
	return visible
}

// ownFile makes a file, also where a bound tree already has one there.
func (c *compiler) ownFile(path string, e Entry) {
	e.Kind, e.Target, e.Mode = KindFile, path, 0o444
	if visible, _, _ := c.v.rights(path); !visible {
		c.v.addFile(e)
		return
	}
	r, err := resolve(path)
	if visible, _, _ := c.v.rights(r.real); err == nil && visible {
		e.Target = "/run/hermes-wrap" + path
		c.v.addFile(e)
		c.v.addFile(Entry{Kind: KindAlias, Target: r.real, Source: e.Target, Rule: e.Rule})
		return
	}
	// A symlink of the tree leads out of it: make what it leads to.
	e.Target = filepath.Clean(r.real)
	c.v.addFile(e)
}

func (c *compiler) limits() error {
	lp, err := PlanLimits(c.p, c.h.Limits)
	if err != nil {
		return err
	}
	c.plan.Limits = lp
	c.plan.Rlimits = lp.Rlimits()
	c.plan.Degraded = append(c.plan.Degraded, lp.Degraded...)
	return nil
}

func (c *compiler) finish() error {
	c.plan.Env = c.env.list()
	c.plan.View = append(c.v.entries(), systemEntries(c.plan, c.inodes(), c.h.Uid == 0)...)
	c.plan.Guard = c.v.guarded()
	c.plan.Grants = append(c.plan.Grants, c.v.grants()...)
	c.plan.Grants = append(c.plan.Grants,
		Grant{Path: "/", List: true, Rule: "listing what is visible"},
		Grant{Path: "/proc", Write: c.plan.UserNS, Rule: "the sandbox's own /proc"},
		Grant{Path: "/dev", Write: true, Ioctl: true, Rule: "the sandbox's own /dev"},
	)
	for _, path := range c.h.Secret {
		if len(c.plan.Hidden) < 2 {
			c.plan.Hidden = append(c.plan.Hidden, path)
		}
	}
	c.plan.Warnings = append(c.plan.Warnings, c.v.warnings...)
	return nil
}

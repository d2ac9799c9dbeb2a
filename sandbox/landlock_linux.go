package sandbox

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// newestABI is the newest Landlock ABI that this package knows what to do with.
const newestABI = 9

// logABI is the first that can log what is refused after execve(2).
const logABI = 7

// landlockABI gives the ABI of this kernel, 0 when Landlock is missing. The
// error tells a kernel without it (ENOSYS) from one where it is not among the
// boot-time security modules (EOPNOTSUPP).
func landlockABI() (int, error) {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, err
	}
	return v, nil
}

// Rights by what they are for; see landlock(7).
const (
	rightsRead    = ll.AccessFSReadFile | ll.AccessFSReadDir
	rightsExec    = ll.AccessFSExecute
	rightsContent = ll.AccessFSWriteFile | ll.AccessFSTruncate
	rightsEntries = ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeDir | ll.AccessFSMakeReg |
		ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeSym | ll.AccessFSRefer
	// A device node can only be made with CAP_MKNOD, which nobody inside has.
	rightsOfFile = ll.AccessFSReadFile | ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
)

// rulesetConfig is everything that the given ABI can restrict in the file
// system, and its scopes. TCP is not handled: the network namespace is the
// boundary there, and Landlock knows ports but no addresses.
func rulesetConfig(abi int) landlock.Config {
	c := landlock.Config{HandledAccessFS: 1<<13 - 1}
	if abi >= 2 {
		c.HandledAccessFS |= ll.AccessFSRefer
	}
	if abi >= 3 {
		c.HandledAccessFS |= ll.AccessFSTruncate
	}
	if abi >= 5 {
		c.HandledAccessFS |= ll.AccessFSIoctlDev
	}
	if abi >= 6 {
		c.Scoped = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
	}
	return c
}

// domain is what a ruleset holds beside files.
type domain struct {
	// tcp are the ports that may be connected to; nil restricts none.
	tcp []uint16
	// bind leaves binding TCP sockets open.
	bind bool
	// unix closes sockets with a path that were made outside, from ABI 9.
	unix bool
	// mounted says that read-only mounts stand below the rules.
	mounted bool
}

// config adds to what the files need.
func (d domain) config(abi int) landlock.Config {
	c := rulesetConfig(abi)
	if d.tcp != nil {
		c.HandledAccessNet = ll.AccessNetConnectTCP
		if !d.bind {
			c.HandledAccessNet |= ll.AccessNetBindTCP
		}
	}
	if d.unix && abi >= weakUnix {
		c.HandledAccessFS |= ll.AccessFSResolveUnix
	}
	return c
}

// buildRuleset makes the ruleset from the paths as they are inside, after the
// pivot: rules hold inodes, and the tmpfs ones exist only now. The ruleset is
// enforced by the C part, on the one thread that will execute the agent.
func buildRuleset(abi int, grants []Grant, d domain) (fd int, flags uint32, err error) {
	c := d.config(abi)
	var rules []landlock.Rule
	if d.tcp != nil {
		for _, p := range d.tcp {
			rules = append(rules, landlock.ConnectTCP(p))
		}
	}
	if abi >= logABI {
		// Without this the kernel logs nothing once the agent is executed.
		c = c.EnableLoggingForSubprocesses()
	}
	for _, g := range grants {
		r, err := g.rule(c.HandledAccessFS, d.mounted)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return -1, 0, err
		}
		rules = append(rules, r)
	}
	fd, flags, err = c.NewRulesetFD(rules...)
	if err != nil {
		return -1, 0, fmt.Errorf("build Landlock ruleset: %w", err)
	}
	if fd < 0 {
		return -1, 0, errors.New("build Landlock ruleset: the library gave none")
	}
	return fd, flags, nil
}

// rule tailors the rights to what the path is: a right that a file cannot have
// voids the whole rule.
// mounted says that a read-only mount stands below the rule. The rule then
// grants truncation too, which the mount refuses (EROFS): an open(2) asks for
// that right in passing and climbs to the root for it, a quarter of what
// Landlock costs.
func (g Grant) rule(handled landlock.AccessFSSet, mounted bool) (landlock.Rule, error) {
	var st unix.Stat_t
	if err := unix.Stat(g.Path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: g.Path, Err: err}
	}
	want := landlock.AccessFSSet(rightsRead)
	if g.List {
		want = ll.AccessFSReadDir
	}
	if mounted && !g.List {
		want |= ll.AccessFSTruncate
	}
	if g.Exec {
		want |= rightsExec
	}
	if g.Write {
		want |= rightsContent | rightsEntries
	}
	if g.Ioctl {
		want |= ll.AccessFSIoctlDev
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		want &= rightsOfFile
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		want |= ll.AccessFSResolveUnix
	}
	return landlock.PathAccess(want&handled, g.Path), nil
}

// LandlockABI gives the Landlock ABI of this kernel, 0 when it has none.
func LandlockABI() int {
	v, err := landlockABI()
	if err != nil {
		return 0
	}
	return v
}

package sandbox

import "golang.org/x/sys/unix"

// A set-user-id file gains nothing inside, but a workspace and a standard stream
// lie on the host: whoever can execute the file there gets the rights of the
// launch's user, root's for a launch by root. So no file gets the bit.
//
// A directory may be set-group-id, which trees that a group shares live by, and
// the bits do not tell a directory from a file: chmod(2) of a file with it is the
// creation guard's business. What opens and makes is about files alone.
// openat2(2) has its mode in memory; the guard's program refuses it.

// filterMode says where a call has its mode, and which bits of it are refused.
type filterMode struct {
	call    string
	mode    uint32 // the argument
	flags   uint32 // the argument with the flags of open(2)
	creates bool   // the mode counts with O_CREAT or O_TMPFILE alone
	refused uint32
}

// filterModes are the calls that give a file its mode, the busiest first.
func filterModes() []filterMode {
	const both = unix.S_ISUID | unix.S_ISGID
	return []filterMode{
		{call: "openat", mode: 3, flags: 2, creates: true, refused: both},
		{call: "open", mode: 2, flags: 1, creates: true, refused: both},
		{call: "fchmod", mode: 1, refused: unix.S_ISUID},
		{call: "fchmodat", mode: 2, refused: unix.S_ISUID},
		{call: "fchmodat2", mode: 2, refused: unix.S_ISUID},
		{call: "chmod", mode: 1, refused: unix.S_ISUID},
		{call: "creat", mode: 1, refused: both},
		{call: "mknodat", mode: 2, refused: both},
		{call: "mknod", mode: 1, refused: both},
	}
}

func filterModeChecks() []filterCheck {
	var checks []filterCheck
	for _, m := range filterModes() {
		says := "any mode without the set-user-id bit"
		if m.refused&unix.S_ISGID != 0 {
			says = "any mode without the set-user-id and set-group-id bits"
		}
		checks = append(checks, filterCheck{call: m.call, says: says, emit: m.emit})
	}
	return checks
}

func (m filterMode) emit(c *filterCode, pass string) {
	if m.creates {
		c.emit(filterLoad, filterLow(m.flags))
		c.branch(filterIfAny, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, "", pass)
	}
	c.emit(filterLoad, filterLow(m.mode))
	c.branch(filterIfAny, m.refused, filterErrnoLabel(unix.EPERM), pass)
}

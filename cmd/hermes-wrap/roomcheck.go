package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// room is what the caller's session must leave a launch of one kind. Below that
// it is the Go runtime or the loader that ends, somewhere, in its own words.
type room struct {
	resource int
	what     string
	ulimit   string // the flag of ulimit, and how many bytes its unit is
	unit     uint64
	needed   uint64
}

// rooms lists them: about twice what a launch was seen to take on two processors.
func rooms(uid int) []room {
	list := []room{
		{unix.RLIMIT_NOFILE, "open files", "-n", 1, 96},
		{unix.RLIMIT_AS, "bytes of address space", "-v", 1 << 10, 3 << 30},
		{unix.RLIMIT_DATA, "bytes of data", "-d", 1 << 10, 256 << 20},
	}
	if uid != 0 { // root's are not counted
		list = append(list, room{unix.RLIMIT_NPROC, "processes and threads", "-u", 1, 64})
	}
	if exe, err := os.Stat("/proc/self/exe"); err == nil { // libcontainer copies it
		list = append(list, room{unix.RLIMIT_FSIZE, "bytes of a file", "-f", 1 << 10, uint64(exe.Size()) + 1<<20})
	}
	return list
}

// checkRoom fails a launch for which the session leaves too little, before it
// begins.
func checkRoom(uid int, limit func(resource int) (uint64, error)) error {
	for _, r := range rooms(uid) {
		has, err := limit(r.resource)
		if err != nil || has >= r.needed {
			continue // what cannot be asked is not known to be missing
		}
		return &sandbox.StepError{
			Step: sandbox.StepPreflight,
			Err:  fmt.Errorf("this session may have %d %s, and a launch needs %d", has, r.what, r.needed),
			Hint: fmt.Sprintf("raise that limit: ulimit %s %d", r.ulimit, (r.needed+r.unit-1)/r.unit),
		}
	}
	return nil
}

func softLimit(resource int) (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	return l.Cur, err
}

package sandbox

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// filterData is what a filter sees of one call, struct seccomp_data without
// the instruction pointer.
type filterData struct {
	nr   uint32
	arch uint32
	args [6]uint64
}

// word gives the 32 bits at an offset.
func (d filterData) word(off uint32) (uint32, error) {
	switch {
	case off == filterNr:
		return d.nr, nil
	case off == filterArch:
		return d.arch, nil
	case off >= filterArgs && off < filterArgs+48 && off%4 == 0:
		return uint32(d.args[(off-filterArgs)/8] >> (8 * (off % 8))), nil
	}
	return 0, fmt.Errorf("run filter: load at offset %d", off)
}

// filterResult is what a program decides about one call. The zero value kills.
type filterResult struct {
	action uint32 // SECCOMP_RET_*, without its data
	errno  syscall.Errno
	// looked is true when the decision read an argument.
	looked bool
}

// allowed tells whether the call goes through.
func (r filterResult) allowed() bool { return r.action == unix.SECCOMP_RET_ALLOW }

// filterRun executes a program as the kernel would. What the kernel does not
// accept is an error.
func filterRun(prog []filterInstr, d filterData) (filterResult, error) {
	var acc uint32
	var looked bool
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		yes := false
		switch in.code {
		case filterLoad:
			w, err := d.word(in.k)
			if err != nil {
				return filterResult{}, err
			}
			acc, looked = w, looked || in.k >= filterArgs
			continue
		case filterAnd:
			acc &= in.k
			continue
		case filterReturn:
			return filterResult{
				action: in.k & unix.SECCOMP_RET_ACTION_FULL,
				errno:  syscall.Errno(in.k & unix.SECCOMP_RET_DATA),
				looked: looked,
			}, nil
		case filterJump:
			pc += int(in.k)
			continue
		case filterJumpEq:
			yes = acc == in.k
		case filterJumpGe:
			yes = acc >= in.k
		case filterJumpGt:
			yes = acc > in.k
		case filterIfAny:
			yes = acc&in.k != 0
		default:
			return filterResult{}, fmt.Errorf("run filter: instruction %#x at %d", in.code, pc)
		}
		if yes {
			pc += int(in.jt)
		} else {
			pc += int(in.jf)
		}
	}
	return filterResult{}, errors.New("run filter: end without an answer")
}
